"""Files that may be packed: `NAME`, `NAME.gz` or `NAME.xz`."""

from __future__ import annotations

from pathlib import Path

PACKED = ("", ".gz", ".xz")  # tried in this order


def present(folder: Path, name: str) -> Path | None:
    """Returns the file of this name, packed or not, if there is one."""
    for packed in PACKED:
        file = folder / f"{name}{packed}"
        if file.is_file():
            return file
    return None


def unpacked_name(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".xz")
