"""Files of data that come with scikit-learn, found without importing the package.

The import alone takes as long as that of torch.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

FOLDER = Path("datasets", "data")  # in scikit-learn's folder


def scikit_file(name: str) -> Path | None:
    """Returns scikit-learn's file of this name. None: this version of it has no such file."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / FOLDER / name
    if not file.is_file():
        return None
    return file
