"""Arrays that take long to make, made once: `.npy` files under FEDLOOM_CACHE (else ~/.cache/fedloom), mapped read-only.

A key names its content wholly (a hash of the inputs and of the settings), so a file is never out of date. It is written
beside under a lock and moved into place: of two processes one works and the other waits, and a killed one leaves
nothing that is taken for whole. The folder may be removed at any time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike

from fedloom.errors import FedloomError

Fill = Callable[[np.ndarray], None]
Item = TypeVar("Item")


def folder() -> Path:
    return Path(os.environ.get("FEDLOOM_CACHE") or Path.home() / ".cache/fedloom").expanduser()


def kept(key: str, shape: tuple[int, ...], dtype: DTypeLike, fill: Fill) -> np.ndarray:
    """The array of this key, from the cache or made by `fill`, which is given the zeros to write it into."""
    path = folder() / f"{key}.npy"
    found = whole(path, shape, dtype)
    if found is not None:
        return found
    with locked(path.with_suffix(".lock")):
        if whole(path, shape, dtype) is None:  # another process may have made it meanwhile
            make(path, shape, dtype, fill)
        made = whole(path, shape, dtype)
    assert made is not None  # this process wrote it, or saw it whole, under the lock
    return made


def whole(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray | None:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # not there, or damaged: it is made again
        return None
    return found if isinstance(found, np.memmap) and (found.shape, found.dtype) == (shape, np.dtype(dtype)) else None


def make(path: Path, shape: tuple[int, ...], dtype: DTypeLike, fill: Fill) -> None:
    beside = path.with_suffix(".part")  # one a key, so that the next try takes the place of a killed one
    try:
        with problems_named():
            array = open_memmap(beside, mode="w+", dtype=np.dtype(dtype), shape=shape)
            reserve(beside)
        fill(array)  # what it cannot read is no problem of the cache
        with problems_named():
            array.flush()
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def reserve(path: Path) -> None:
    """A full disk says so here; in a mapped file with holes it would end the process with SIGBUS."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with problems_named():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("ab")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def problems_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        must = f"the cache folder {folder()} must be writable and have room"
        raise FedloomError(must, f"{error.strerror or error}", "make room, or set FEDLOOM_CACHE to another") from error


def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, with a bar on the terminal while they are worked on; it is gone when they are done."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, f"{what} (once)", console=console, transient=True, disable=not console.is_terminal)
