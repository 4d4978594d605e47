"""Arrays in .npz files: one file, or a folder of them, a site each. Nothing in a file is ever unpickled.

What is large is never held in memory: an array that `numpy.savez` stored is mapped where it lies in the archive, one
that is compressed is unpacked once into the cache, and so are several that are to be joined.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.checks import Part, checked
from fedloom.data.mapped import BLOCK, Place, blocks, map_rows
from fedloom.data.source import Source
from fedloom.errors import FedloomError

LARGE = 64 << 20  # bytes of images, from which on they stay on disk
OFFICIAL = {"train_images": 0, "val_images": 1, "test_images": 2}  # MedMNIST's own parts
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Head(NamedTuple):
    """What an array's first bytes say, and how many they are."""

    dtype: np.dtype
    shape: tuple[int, ...]
    size: int


class Contents(NamedTuple):
    """One part for x and y, or MedMNIST's parts in its order, each by its key; and who the samples come from."""

    parts: dict[str, Part]
    clients: np.ndarray | None


def read_folder(folder: Path, classes: int | None) -> Source:
    files = sorted(folder.glob("*.npz"))
    large = 0 if sum(file.stat().st_size for file in files) >= LARGE else LARGE
    parts = [Part(str(file), *pooled(list(read_npz(file, classes, large).parts.values()), [file])) for file in files]
    sites = np.repeat(np.arange(len(files)), [len(part.y) for part in parts])
    names = tuple(file.stem for file in files)
    return Source(folder.resolve().name, *pooled(parts, files), groups=sites, group_names=names)


def read_file(file: Path, classes: int | None) -> Source:
    parts, clients = read_npz(file, classes, LARGE)
    sizes = [len(part.y) for part in parts.values()]
    official = np.repeat([OFFICIAL[key] for key in parts], sizes) if len(parts) > 1 else None
    source = Source(file.stem, *pooled(list(parts.values()), [file]), official=official)
    if clients is None:
        return source
    names, groups = np.unique(clients, return_inverse=True)
    return replace(source, groups=groups, group_names=tuple(map(str, names)), grouping="client")


def read_npz(file: Path, classes: int | None, large: int) -> Contents:
    """x stays on disk from `large` bytes on."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            pairs = pairs_of(list(members))
            arrays = {x: read_large(file, archive, members[x], large) for x, _ in pairs}
            small = [y for _, y in pairs] + [key for key in ("labels", "client") if key in members]
            arrays |= {key: read_small(archive, members[key]) for key in small}
    except FedloomError:
        raise
    except Exception as error:  # a damaged zip or array header can raise almost anything
        raise unreadable(file, error) from error
    if not pairs:
        must = f"{file} must have the keys x and y, or train_images and train_labels as MedMNIST has"
        todo = "rename them with numpy.savez(file, x=…, y=…)"
        raise FedloomError(must, f"its keys are {', '.join(members) or 'none'}", todo)
    labels = tuple(str(label) for label in np.ravel(arrays.get("labels", np.zeros(0, "U1"))))
    named = [(str(file) if x == "x" else f"{file} ({x})", x, y) for x, y in pairs]
    parts = {x: checked(where, arrays[x], arrays[y], labels, classes) for where, x, y in named}
    return Contents(parts, clients_of(file, arrays.get("client"), sum(len(part.y) for part in parts.values())))


def clients_of(file: Path, clients: np.ndarray | None, samples: int) -> np.ndarray | None:
    if clients is not None and (clients.shape != (samples,) or clients.dtype.kind not in "iuU"):
        must = f"client of {file} must be one number or name for each of {samples} samples"
        raise FedloomError(must, f"it is {clients.dtype} of shape {clients.shape}", "save who each sample comes from")
    return clients


def pairs_of(keys: list[str]) -> list[tuple[str, str]]:
    if "x" in keys and "y" in keys:
        return [("x", "y")]
    medmnist = [(f"{part}_images", f"{part}_labels") for part in ("train", "val", "test")]
    some = [pair for pair in medmnist if pair[0] in keys or pair[1] in keys]
    return some if all(key in keys for pair in some for key in pair) else []


def read_small(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # at its end an entry's checksum is compared
    return array


def read_large(file: Path, archive: zipfile.ZipFile, name: str, large: int) -> np.ndarray:
    """Mapped, from where it is stored or unpacked into the cache; what is small or unusual is read as it is."""
    info = archive.getinfo(name)
    if info.file_size < large:
        return read_small(archive, name)
    with archive.open(info) as stream:
        head = head_of(stream)
        if head is None or head.size + math.prod(head.shape) * head.dtype.itemsize != info.file_size:
            return read_small(archive, name)
        if info.compress_type == zipfile.ZIP_STORED:
            while stream.read(BLOCK):  # to its end, for its checksum
                pass
            return map_rows(Place(file, content_offset(file, info) + head.size), head.dtype, head.shape)
        key = cache.key_of("npz 1", cache.version_of(file), name)
        return cache.kept_array(key, lambda: (head.shape, head.dtype, values(stream, head.dtype)))


def head_of(stream: IO[bytes]) -> Head | None:
    """None if the array is of a kind that cannot be mapped: pickled objects, columns first, or no array at all."""
    read = HEADS.get(np.lib.format.read_magic(stream))
    if read is None:
        return None
    shape, columns_first, dtype = read(stream)
    return None if columns_first or dtype.hasobject or 0 in shape else Head(dtype, shape, stream.tell())


def content_offset(file: Path, info: zipfile.ZipInfo) -> int:
    """Where in the archive an entry's bytes begin: behind its own head, whose length only that head tells."""
    with file.open("rb") as stream:
        stream.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", stream.read(4))
    return info.header_offset + 30 + int(name) + int(extra)


def values(stream: IO[bytes], dtype: np.dtype) -> Iterator[np.ndarray]:
    """The rest of a stream, some megabytes at a time."""
    while content := stream.read(max(1, BLOCK // dtype.itemsize) * dtype.itemsize):
        yield np.frombuffer(content, dtype)


def unreadable(file: Path, error: Exception) -> FedloomError:
    must = f"{file} must be a whole .npz of plain arrays"
    if "allow_pickle" in str(error) or not begins_as_zip(file):
        todo = "save plain arrays with numpy.savez: pickled ones could run code and are never loaded"
        return FedloomError(must, "it holds pickled objects or no arrays at all", todo)
    reason = " ".join(str(error).split())[:200].rstrip(".")
    return FedloomError(must, f"it could not be read ({reason})", "copy or save it again")


def begins_as_zip(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(2) == b"PK"
    except OSError:
        return True  # what it holds is not known: the error tells why it cannot be read


def pooled(parts: list[Part], files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """One after the other; `files` are where they come from."""
    first = parts[0]
    for part in parts:
        for what, has, want in (
            ("images of shape", part.x.shape[1:], first.x.shape[1:]),
            ("values of type", part.x.dtype, first.x.dtype),
            ("the label names", part.labels or "none", first.labels or "none"),
        ):
            if has != want:
                must = f"{part.where} must have {what} {want} as {first.where} has"
                raise FedloomError(must, f"it has {has}", "make all parts alike")
    return joined([part.x for part in parts], files), np.concatenate([part.y for part in parts]), first.labels


def joined(parts: list[np.ndarray], files: Sequence[Path]) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    if sum(part.nbytes for part in parts) < LARGE:
        return np.concatenate(parts)
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    key = cache.key_of("joined 1", [cache.version_of(file) for file in files])
    rows = (block for part in parts for _, block in blocks(part))
    return cache.kept_array(key, lambda: (shape, parts[0].dtype, rows))
