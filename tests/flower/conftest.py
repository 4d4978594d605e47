import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(
    0, str(Path(__file__).parents[1] / "integration")
)  # tiny runs and how to compare them


@pytest.fixture
def images(tmp_path):
    import tiny

    return tiny.write_images(tmp_path / "images.npz")


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """Two hospitals and their server. One for all tests, which leave it as they found it."""
    from deployment import Deployment
    from mischief import install

    folder = tmp_path_factory.mktemp("deployed")
    path = os.pathsep.join([str(install(folder / "installed")), os.environ.get("PYTHONPATH", "")])
    started = Deployment(folder, env={"PYTHONPATH": path}).init()
    try:
        started.serve()
        started.attend("hospital-a")
        started.attend("hospital-b", SENDS_TWICE=str(folder / "twice.log"))
        yield started
    finally:
        started.stop()
