"""The cache: arrays that were decoded or converted once, and are memory-mapped from then on.

They lie in `$FEDLOOM_CACHE`, or in `~/.cache/fedloom`. A file is named by a hash of everything that
decides its content, so no file is ever out of date. All files may be deleted at any time: those
that are needed are made again. A file is written beside its place and then renamed, so if two
processes need the same one, at worst both make it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

from fedloom.errors import FedloomError
from fedloom.files import whole_file

DAY = 86_400.0  # seconds


class Rows(NamedTuple):
    """An array to be written, whose rows come block by block."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


def folder() -> Path:
    return Path(os.environ.get("FEDLOOM_CACHE") or "~/.cache/fedloom").expanduser()


def key_of(*facts: Any) -> str:
    """Returns a hash of plain values. The same values have the same hash in any process."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def version_of(file: Path) -> tuple[str, int, int, int]:
    """Returns what changes whenever a file does.

    Archives and copies can set a file's mtime, but nothing can set its ctime.
    """
    stat = file.stat()
    return str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def cached_array(key: str, make: Callable[[], Rows]) -> np.ndarray:
    """Maps the array of this key. `make` provides its content if it is not in the cache yet."""
    file = folder() / f"{key}.npy"
    array = opened(file)
    if array is not None:
        return array
    rows = make()
    with filling(file) as stream:
        write_rows(stream, rows)
    array = opened(file)
    if array is None:
        rule = f"{file} must be an array"
        raise FedloomError(rule, "it was damaged right after it was written", "check the disk")
    return array


def opened(file: Path) -> np.ndarray | None:
    """Maps an array. None: it is not there, or was damaged since, and must be made again."""
    try:
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def write_rows(stream: IO[bytes], rows: Rows) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": rows.shape,
    }
    np.lib.format.write_array_header_2_0(stream, header)
    for block in rows.blocks:
        stream.write(np.ascontiguousarray(block, rows.dtype).data)


@contextmanager
def filling(file: Path) -> Iterator[BinaryIO]:
    """Opens a file of the cache to write to, and moves it into place when it is complete.

    A failure leaves nothing behind. After a kill, an unfinished file stays until `sweep` removes
    it.
    """
    with writing(file.parent):
        sweep(file.parent)
        with whole_file(file, durable=False) as stream:
            yield stream


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Creates the folder, and turns errors of writing to it into a sentence for the user."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        rule = f"the cache {place} must be a folder with room"
        problem = f"writing there failed ({error.strerror or error})"
        advice = "make room, or set FEDLOOM_CACHE to another folder"
        raise FedloomError(rule, problem, advice) from error


def sweep(place: Path) -> None:
    """Removes unfinished files that killed processes left behind a day ago or earlier."""
    for file in place.glob(".*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > DAY:
                file.unlink()
