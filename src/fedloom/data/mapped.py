"""Arrays that may be larger than memory: mapped read-only, and read a block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.errors import FedloomError

BLOCK = 16 << 20  # bytes in a block: large enough to be fast, small enough for any machine


class Place(NamedTuple):
    """Where an array lies on disk, row after row."""

    file: Path
    offset: int


def place_of(x: np.ndarray) -> Place | None:
    """Returns where `x` lies on disk.

    None: `x` is not one contiguous stretch of a file that was memory-mapped for reading.
    """
    root = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not x.flags.c_contiguous:
        return None
    if not isinstance(root, np.memmap) or root.mode != "r" or root.filename is None:
        return None
    inside = x.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return Place(Path(root.filename), root.offset + inside)


def blocks(x: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields all rows in order, some megabytes at a time, each block with its first row's number.

    Rows of a memory map are read from its file, not through the map: otherwise its pages would fill
    the memory of this process.
    """
    place = place_of(x)
    width = math.prod(x.shape[1:])  # values per row
    row_bytes = width * x.itemsize
    rows = max(1, BLOCK // max(1, row_bytes))  # per block
    for start in range(0, len(x), rows):
        if place is None:
            yield start, x[start : start + rows]
        else:
            count = min(rows, len(x) - start)
            offset = place.offset + start * row_bytes
            values = from_file(place.file, offset, x.dtype, count * width)
            yield start, values.reshape(count, *x.shape[1:])


def from_file(file: Path, offset: int, dtype: np.dtype, count: int) -> np.ndarray:
    rule = f"{file} must stay as it is while it is read"
    advice = "restore it and start again"
    try:
        values = np.fromfile(file, dtype, count, offset=offset)
    except OSError as error:
        raise FedloomError(rule, f"it is gone ({error.strerror})", advice) from error
    if len(values) < count:
        raise FedloomError(rule, "it was cut short", advice)
    return values


def map_rows(place: Place, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Memory-maps the rows at this place: they take no memory until they are used."""
    return np.asarray(np.memmap(place.file, dtype, "r", place.offset, shape))
