import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))  # tiny runs and how to compare them


@pytest.fixture
def images(tmp_path):
    import tiny

    return tiny.write_images(tmp_path / "images.npz")
