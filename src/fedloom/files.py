"""Writing files so that they are whole or absent whenever a process dies; and reading them."""

import mmap
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

Chunk: TypeAlias = bytes | memoryview
SMALL = 1 << 16  # bytes below which reading a file is quicker than mapping it


def write_whole(
    path: Path,
    chunks: Iterable[Chunk],
    *,
    durable: bool,
    over: Path | None = None,
) -> None:
    """Write the chunks, one after the other, as one file.

    `over` is a file in the same folder that is no longer needed: it is overwritten and renamed.
    """
    with whole_file(path, durable=durable, over=over) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def whole_file(
    path: Path,
    *,
    durable: bool,
    over: Path | None = None,
) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, which is renamed to `path` once it is written.

    With `durable` the file survives a power cut, not only a killed process.
    """
    beside = over
    mode: Literal["wb", "r+b"] = "r+b"
    if beside is None:
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        mode = "wb"
    try:
        with open(beside, mode) as file:
            yield file
            if over is not None:
                file.truncate(file.tell())  # it may have been longer
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()  # `path` stays as it was, and a full disk gets its space back
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cut_to(path: Path, size: int) -> None:
    """Shorten a file to `size` bytes.

    A shorter file stays as it is: truncating would fill it up with zeros.
    """
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line that a kill left, so that the next one starts a new line."""
    if path.exists():
        cut_to(path, path.read_bytes().rfind(b"\n") + 1)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that killed processes left half written."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def map_file(path: Path) -> mmap.mmap | bytearray:
    """A file's bytes, memory-mapped unless the file is small."""
    with open(path, "rb", buffering=0) as file:
        start = bytearray(file.read(SMALL))
        if len(start) < SMALL:
            return start
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def checksum(content: Chunk | mmap.mmap | bytearray) -> str:
    return f"{zlib.crc32(content):08x}"
