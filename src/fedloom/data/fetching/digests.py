"""Checksums of files, and a folder's record of them.

The record is a .sha256 file beside the folder, as `sha256sum -c` reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from fedloom.data.fetching.catalogue import Checksum
from fedloom.errors import FedloomError
from fedloom.files import write_whole

CHUNK = 1 << 20
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # raised by damaged packed files


class Measured(NamedTuple):
    """The size of a content in bytes, and its digest by each algorithm."""

    size: int
    digests: dict[str, str]


class Mismatch(NamedTuple):
    """A published checksum, and the digest that a file has instead."""

    published: Checksum
    digest: str


def opened(path: Path) -> BufferedIOBase:
    """Opens a file so that its unpacked content is read."""
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix == ".xz":
        return lzma.open(path)
    return open(path, "rb")


def measure(
    stream: BufferedIOBase,
    algorithms: Iterable[str],
    most: int | None = None,
) -> Measured:
    """Returns size and digests, in one pass. Reading stops soon after `most` bytes."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        for running in hashes.values():
            running.update(chunk)
        if most is not None and size > most:
            break
    return Measured(size, {name: running.hexdigest() for name, running in hashes.items()})


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return measure(file, ["sha256"]).digests["sha256"]


def broken(path: Path, checksums: Sequence[Checksum]) -> Mismatch | None:
    """Returns the first checksum that the file, as it is on disk, does not match."""
    with open(path, "rb") as file:
        measured = measure(file, {checksum.algorithm for checksum in checksums})
    for checksum in checksums:
        digest = measured.digests[checksum.algorithm]
        if digest != checksum.digest:
            return Mismatch(checksum, digest)
    return None


def record_of(folder: Path) -> Path:
    """Returns the path of a folder's record of checksums."""
    return folder.with_name(f"{folder.name}.sha256")


def write_record(folder: Path, digests: Mapping[str, str]) -> None:
    """Writes the record whole or not at all. File names are relative to where the record lies."""
    file = record_of(folder)
    lines = []
    for name, digest in sorted(digests.items()):
        line = f"{digest}  {folder.name}/{name}\n"
        lines.append(line.encode("utf-8", errors="surrogateescape"))
    write_whole(file, lines, durable=False)


def read_record(folder: Path) -> dict[str, str]:
    """Returns digests by file name within the folder; empty if there is no record."""
    file = record_of(folder)
    if not file.is_file():
        return {}
    digests: dict[str, str] = {}
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        digest, gap, name = line.partition("  ")
        inside = name.removeprefix(f"{folder.name}/")
        well_formed = gap and len(digest) == 64 and inside != name
        leads_out = ".." in Path(inside).parts or inside.startswith("/")
        if not well_formed or leads_out:
            form = f"a SHA-256, two spaces and a file of {folder.name}/"
            rule = f"line {number} of {file} must be {form}"
            raise FedloomError(rule, f"it is {line[:80]!r}", "restore or remove it")
        digests[inside] = digest
    return digests
