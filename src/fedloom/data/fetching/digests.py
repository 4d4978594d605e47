"""Checksums of files, and a folder's record of them: a .sha256 file beside it, as `sha256sum -c` reads it."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Mapping
from io import BufferedIOBase
from pathlib import Path

from fedloom.data.fetching.catalogue import Checksum
from fedloom.errors import FedloomError
from fedloom.files import write_whole

CHUNK = 1 << 20
PACKED = ("", ".gz", ".xz")  # looked for in this order, as the readers do
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what a damaged packed file raises


def opened(path: Path) -> BufferedIOBase:
    """The file's content as a reader sees it."""
    if path.suffix == ".gz":
        return gzip.open(path)
    return lzma.open(path) if path.suffix == ".xz" else open(path, "rb")


def present(folder: Path, name: str) -> Path | None:
    tries = (folder / f"{name}{packed}" for packed in PACKED)
    return next((file for file in tries if file.is_file()), None)


def unpacked_name(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".xz")


def measure(stream: BufferedIOBase, algorithms: Iterable[str], most: int | None = None) -> tuple[int, dict[str, str]]:
    """Bytes and digests, in one pass; a content that is longer than `most` is not read on."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        for one in hashes.values():
            one.update(chunk)
        if most is not None and size > most:
            break
    return size, {name: one.hexdigest() for name, one in hashes.items()}


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return measure(file, ["sha256"])[1]["sha256"]


def broken(path: Path, checksums: Iterable[Checksum]) -> tuple[Checksum, str] | None:
    """The first checksum that a file, as it lies there, does not have, and what it has instead."""
    wanted = tuple(checksums)
    with open(path, "rb") as file:
        found = measure(file, {one.algorithm for one in wanted})[1]
    return next(((one, found[one.algorithm]) for one in wanted if found[one.algorithm] != one.digest), None)


def record_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.sha256")


def write_record(folder: Path, digests: Mapping[str, str]) -> None:
    """Whole or not at all. The names are relative to where the record lies."""
    file = record_of(folder)
    lines = (f"{digest}  {folder.name}/{name}\n" for name, digest in sorted(digests.items()))
    write_whole(file, [line.encode("utf-8", errors="surrogateescape") for line in lines], durable=False)


def read_record(folder: Path) -> dict[str, str]:
    """Digests by name within the folder; empty if there is no record."""
    file = record_of(folder)
    if not file.is_file():
        return {}
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="surrogateescape").splitlines(), 1):
        digest, gap, name = line.partition("  ")
        inside = name.removeprefix(f"{folder.name}/")
        if not gap or len(digest) != 64 or inside == name or ".." in Path(inside).parts or inside.startswith("/"):
            must = f"line {number} of {file} must be a SHA-256, two spaces and a file of {folder.name}/"
            raise FedloomError(must, f"it is {line[:80]!r}", "restore or remove it")
        found[inside] = digest
    return found
