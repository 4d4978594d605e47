"""Arrays in .npz files: one file, or a folder with one file per site.

Nothing in a file is ever unpickled. Large arrays are never held in memory: an array that
`numpy.savez` stored is memory-mapped where it lies in the archive; a compressed one is unpacked
once into the cache, and arrays that have to be joined are joined there.
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
from fedloom.data.checks import LEAST_CLASSES, LEAST_OF_A_SITE, Part, checked
from fedloom.data.labels import label_notices, renumbered, united
from fedloom.data.mapped import BLOCK, Place, blocks, map_rows
from fedloom.data.source import Source
from fedloom.errors import FedloomError

LARGE = 64 << 20  # bytes; images of this size or more stay on disk
OFFICIAL = {"train_images": 0, "val_images": 1, "test_images": 2}  # MedMNIST's own parts
HEADS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Head(NamedTuple):
    """The header of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    size: int  # of the header itself, in bytes


class Keys(NamedTuple):
    """The names under which a file has samples and their labels."""

    x: str
    y: str


MEDMNIST = (
    Keys("train_images", "train_labels"),
    Keys("val_images", "val_labels"),
    Keys("test_images", "test_labels"),
)


class Contents(NamedTuple):
    """The content of a file: its parts by the key of their samples, and each sample's client.

    There is one part for x and y, or there are MedMNIST's parts in their order.
    """

    parts: dict[str, Part]
    clients: np.ndarray | None


class Pooled(NamedTuple):
    """The samples of several parts, one after the other."""

    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...]


def read_folder(folder: Path, classes: int | None) -> Source:
    """Reads a folder in which every file is one site."""
    files = sorted(folder.glob("*.npz"))
    folder_size = sum(file.stat().st_size for file in files)
    # Small files add up: in a large folder, the images of every file stay on disk.
    large = 0 if folder_size >= LARGE else LARGE
    sites: list[Part] = []
    for file in files:
        contents = read_npz(file, classes, large, LEAST_OF_A_SITE)
        site = pooled(list(contents.parts.values()), [file])
        sites.append(Part(str(file), site.x, site.y, site.labels))
    labels = united(site.labels for site in sites)
    notices: tuple[str, ...] = ()
    if all(site.labels for site in sites):
        by_site = {file.stem: site.labels for file, site in zip(files, sites, strict=True)}
        notices = label_notices(by_site, labels)
        sites = [with_names(site, labels) for site in sites]
    samples = pooled(sites, files)
    return Source(
        folder.resolve().name,
        samples.x,
        samples.y,
        samples.labels,
        groups=np.repeat(np.arange(len(files)), [len(site.y) for site in sites]),
        group_names=tuple(file.stem for file in files),
        notices=notices,
    )


def with_names(site: Part, labels: tuple[str, ...]) -> Part:
    """Returns a site's samples with classes numbered by the names of all sites."""
    y = renumbered(site.y, site.labels, labels)
    return Part(site.where, site.x, y, labels)


def read_file(file: Path, classes: int | None, least: int = LEAST_CLASSES) -> Source:
    contents = read_npz(file, classes, LARGE, least)
    parts = list(contents.parts.values())
    samples = pooled(parts, [file])
    source = Source(file.stem, samples.x, samples.y, samples.labels)
    if len(parts) > 1:
        numbers = [OFFICIAL[key] for key in contents.parts]
        source = replace(source, official=np.repeat(numbers, [len(part.y) for part in parts]))
    if contents.clients is None:
        return source
    names, groups = np.unique(contents.clients, return_inverse=True)
    group_names = tuple(map(str, names))
    return replace(source, groups=groups, group_names=group_names, grouping="client")


# One file


def read_npz(
    file: Path,
    classes: int | None,
    large: int,
    least: int = LEAST_CLASSES,
) -> Contents:
    """Reads and checks the arrays of a file.

    Samples of `large` bytes or more stay on disk. If the file names classes, there must be at least
    `least` of them.
    """
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            pairs = pairs_of(list(members))
            for keys in pairs:
                arrays[keys.x] = read_large(file, archive, members[keys.x], large)
                arrays[keys.y] = read_small(archive, members[keys.y])
            for key in ("labels", "client"):
                if key in members:
                    arrays[key] = read_small(archive, members[key])
    except FedloomError:
        raise
    except Exception as error:  # a damaged zip or array header can raise almost anything
        raise unreadable(file, error) from error
    if not pairs:
        raise FedloomError(
            f"{file} must have the keys x and y, or MedMNIST's train_images and train_labels",
            f"its keys are {', '.join(members) or 'none'}",
            "rename them with numpy.savez(file, x=…, y=…)",
        )
    labels = tuple(str(label) for label in np.ravel(arrays.get("labels", np.zeros(0, "U1"))))
    parts: dict[str, Part] = {}
    for keys in pairs:
        where = str(file)
        if keys.x != "x":
            where = f"{file} ({keys.x})"
        x = arrays[keys.x]
        y = arrays[keys.y]
        parts[keys.x] = checked(where, x, y, labels, classes, least=least)
    samples = sum(len(part.y) for part in parts.values())
    return Contents(parts, checked_clients(file, arrays.get("client"), samples))


def pairs_of(names: list[str]) -> list[Keys]:
    """Returns the keys x and y, or those of MedMNIST's parts that the file has.

    It returns none if a part lacks its images or its labels.
    """
    if "x" in names and "y" in names:
        return [Keys("x", "y")]
    pairs = []
    for keys in MEDMNIST:
        if keys.x in names and keys.y in names:
            pairs.append(keys)
        elif keys.x in names or keys.y in names:
            return []
    return pairs


def checked_clients(file: Path, clients: np.ndarray | None, samples: int) -> np.ndarray | None:
    if clients is None:
        return None
    if clients.shape != (samples,) or clients.dtype.kind not in "iuU":
        rule = f"client of {file} must be one number or name for each of {samples} samples"
        problem = f"it is {clients.dtype} of shape {clients.shape}"
        raise FedloomError(rule, problem, "save who each sample comes from")
    return clients


# One array of a file


def read_small(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # at the end of an entry, zipfile compares its checksum
    return array


def read_large(file: Path, archive: zipfile.ZipFile, name: str, large: int) -> np.ndarray:
    """Memory-maps an array where it is stored, or in the cache that it is unpacked to.

    Small arrays, and those that cannot be mapped, are read into memory.
    """
    info = archive.getinfo(name)
    if info.file_size < large:
        return read_small(archive, name)
    with archive.open(info) as stream:
        head = head_of(stream)
        if head is None:
            return read_small(archive, name)
        if head.size + math.prod(head.shape) * head.dtype.itemsize != info.file_size:
            return read_small(archive, name)
        if info.compress_type == zipfile.ZIP_STORED:
            while stream.read(BLOCK):  # to the end, where its checksum is compared
                pass
            place = Place(file, content_offset(file, info) + head.size)
            return map_rows(place, head.dtype, head.shape)
        key = cache.key_of("npz 1", cache.version_of(file), name)
        return cache.cached_array(key, lambda: content_of(stream, head))


def head_of(stream: IO[bytes]) -> Head | None:
    """Reads the header of an array.

    None: it cannot be mapped, because it has pickled objects, is stored columns first, is empty or
    of an unknown version.
    """
    read = HEADS.get(np.lib.format.read_magic(stream))
    if read is None:
        return None
    shape, columns_first, dtype = read(stream)
    if columns_first or dtype.hasobject or 0 in shape:
        return None
    return Head(dtype, shape, stream.tell())


def content_offset(file: Path, info: zipfile.ZipInfo) -> int:
    """Returns where the bytes of an entry begin in the archive.

    They come after the entry's own header, and only that header tells how long it is.
    """
    with file.open("rb") as stream:
        stream.seek(info.header_offset + 26)
        name_size, extra_size = struct.unpack("<HH", stream.read(4))
    return info.header_offset + 30 + int(name_size) + int(extra_size)


def content_of(stream: IO[bytes], head: Head) -> cache.Rows:
    return cache.Rows(head.shape, head.dtype, values(stream, head.dtype))


def values(stream: IO[bytes], dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yields the rest of a stream as values, some megabytes at a time."""
    size = max(1, BLOCK // dtype.itemsize) * dtype.itemsize
    while content := stream.read(size):
        yield np.frombuffer(content, dtype)


def unreadable(file: Path, error: Exception) -> FedloomError:
    rule = f"{file} must be a complete .npz of plain arrays"
    if "allow_pickle" in str(error) or not begins_as_zip(file):
        problem = "it holds pickled objects or no arrays at all"
        reason = "pickled objects could run code and are never loaded"
        advice = f"save plain arrays with numpy.savez: {reason}"
        return FedloomError(rule, problem, advice)
    reason = " ".join(str(error).split())[:200].rstrip(".")
    return FedloomError(rule, f"it could not be read ({reason})", "copy or save it again")


def holds_arrays(file: Path) -> bool:
    """Whether a file is an .npz under another name."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except Exception:  # a damaged zip can raise almost anything
        return False


def begins_as_zip(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(2) == b"PK"
    except OSError:
        return True  # what it holds is not known; the error says why it cannot be read


# Several parts as one


def pooled(parts: list[Part], files: Sequence[Path]) -> Pooled:
    """Joins parts one after the other. `files` are the files that they come from."""
    first = parts[0]
    for part in parts:
        refuse_unlike(part, first, "images of shape", part.x.shape[1:], first.x.shape[1:])
        refuse_unlike(part, first, "values of type", part.x.dtype, first.x.dtype)
        names = part.labels or "none"
        refuse_unlike(part, first, "the label names", names, first.labels or "none")
    x = joined([part.x for part in parts], files)
    y = np.concatenate([part.y for part in parts])
    return Pooled(x, y, first.labels)


def refuse_unlike(
    part: Part, first: Part, property_name: str, actual: object, expected: object
) -> None:
    if actual != expected:
        rule = f"{part.where} must have {property_name} {expected} as {first.where} has"
        raise FedloomError(rule, f"it has {actual}", "make all parts alike")


def joined(arrays: list[np.ndarray], files: Sequence[Path]) -> np.ndarray:
    """Joins arrays in memory, or in the cache if they are large."""
    if len(arrays) == 1:
        return arrays[0]
    if sum(array.nbytes for array in arrays) < LARGE:
        return np.concatenate(arrays)
    shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
    key = cache.key_of("joined 1", [cache.version_of(file) for file in files])
    rows = cache.Rows(shape, arrays[0].dtype, all_blocks(arrays))
    return cache.cached_array(key, lambda: rows)


def all_blocks(arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    for array in arrays:
        for _, block in blocks(array):
            yield block
