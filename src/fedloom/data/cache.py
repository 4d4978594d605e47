"""Arrays that were decoded or rearranged once and are mapped from then on.

They lie in `$FEDLOOM_CACHE`, or in `~/.cache/fedloom`. A file's name is a key of everything that
decides its content, so nothing in the folder is ever out of date, and all of it may be deleted at
any time: what is needed is made again. A file is written beside and moved into place, so two
processes that need the same one at worst both make it.
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
    """An array that is yet to be written: its rows come block by block."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


def folder() -> Path:
    return Path(os.environ.get("FEDLOOM_CACHE") or "~/.cache/fedloom").expanduser()


def key_of(*facts: Any) -> str:
    """Of plain values: the same for the same ones, in any process."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def version_of(file: Path) -> tuple[str, int, int, int]:
    """What changes when a file does: archives and copies set mtime, nothing sets ctime."""
    stat = file.stat()
    return str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def kept_array(key: str, make: Callable[[], Rows]) -> np.ndarray:
    """The array of this key, mapped. `make` gives its content, if it is not there yet."""
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
        raise FedloomError(rule, "it is damaged just after it was written", "check the disk")
    return array


def opened(file: Path) -> np.ndarray | None:
    """None if it is not there, or was damaged since: then it is made again."""
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
    """A file of the cache to write into: moved into place when it is complete.

    A failure leaves nothing behind, and a kill what the next day removes.
    """
    with writing(file.parent):
        sweep(file.parent)
        with whole_file(file, durable=False) as stream:
            yield stream


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What goes wrong with the folder becomes a sentence."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        rule = f"the cache {place} must be a folder with room"
        found = f"writing there failed ({error.strerror or error})"
        raise FedloomError(rule, found, "make room, or set FEDLOOM_CACHE to another") from error


def sweep(place: Path) -> None:
    """Removes what processes that were killed left half written, a day ago or more."""
    for file in place.glob(".*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > DAY:
                file.unlink()
