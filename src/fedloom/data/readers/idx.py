"""Data sets in idx files, raw or gzipped, under the names that they are published with.

They are MNIST (LeCun, Cortes & Burges 1998), Fashion-MNIST (Xiao, Rasul & Vollgraf 2017) and any
other data set whose files are named `…train-images-idx3-ubyte`.

A file is two zero bytes, a type, a number of dimensions, their sizes, then the values, all
big-endian. QMNIST (Yadav & Bottou 2019) identified the writer of every MNIST digit: if its label
files lie beside MNIST's, writers are groups.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IMAGES = re.compile(
    r"""(?:(?P<set>.+)-)?
        (?P<part>train|t10k|test)
        -images[-.]idx(?P<dims>[34])-ubyte
        (?:\.gz)?""",
    re.VERBOSE,
)
OFFICIAL = {"train": 0, "t10k": 2, "test": 2}
MOST_PACKED = 1100  # bytes that one byte of deflate can expand to, rounded up
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
AGAIN = "copy or fetch it again"
Stream: TypeAlias = BinaryIO | gzip.GzipFile


@dataclass(frozen=True)
class Part:
    """A file of images and the file of their labels. `official` is their part: 0 train, 2 test."""

    images: Path
    labels: Path
    official: int


@dataclass(frozen=True)
class Writers:
    """Who wrote each digit, as an index into the writers' names."""

    groups: np.ndarray
    names: tuple[str, ...]


def mnist(directory: Path | None = None) -> Source:
    """70,000 handwritten digits of 28×28 from idx files under --data-dir; QMNIST adds writers."""
    folder = find_folder("mnist", ("mnist", "MNIST/raw"), directory)
    # Those of the training images, as in PyTorch's own MNIST example.
    mean = (255 * 0.1307,)
    std = (255 * 0.3081,)
    return read("mnist", parts_of(folder), tuple("0123456789"), mean, std)


def fashion_mnist(directory: Path | None = None) -> Source:
    """70,000 grey images of clothes of 28×28 in 10 classes from idx files under --data-dir."""
    below = ("fashion-mnist", "fashion", "FashionMNIST/raw")
    folder = find_folder("fashion-mnist", below, directory)
    # Those of the training images, to four digits, as its users publish them.
    mean = (255 * 0.2860,)
    std = (255 * 0.3530,)
    return read("fashion-mnist", parts_of(folder), CLOTHES, mean, std)


def is_idx(path: Path) -> bool:
    """Whether a path is named like a file of images, or is a folder that has one."""
    if not path.is_dir():
        return IMAGES.fullmatch(path.name) is not None
    try:
        names = os.listdir(path)
    except OSError:
        return False  # another reader reports the error
    return any(IMAGES.fullmatch(name) for name in names)


def read_path(path: Path) -> Source:
    """Reads all parts in a folder, or the single part of a file."""
    name = path.resolve().name.partition(".")[0]
    if path.is_dir():
        return read(name, parts_of(path))
    return read(name, [part_of(path)])


def read(
    name: str,
    parts: list[Part],
    names: tuple[str, ...] = (),
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Source:
    """Reads these parts, one after the other, as one data set."""
    x = [read_idx(part.images, (3, 4), "u1") for part in parts]
    y = [read_idx(part.labels, (1,), "u1") for part in parts]
    for part, images, labels in zip(parts, x, y, strict=True):
        check_labels(part, images, labels)
        if images.shape[1:] != x[0].shape[1:]:
            first = parts[0].images.name
            rule = f"{part.images} must have images of {x[0].shape[1:]} as {first} has"
            problem = f"they are of {images.shape[1:]}"
            raise FedloomError(rule, problem, "keep one data set in a folder")
    sizes = [len(labels) for labels in y]
    source = Source(
        name,
        np.concatenate(x),
        np.concatenate(y).astype(np.int64),
        names,
        mean,
        std,
        official=np.repeat(np.array([part.official for part in parts], np.uint8), sizes),
    )
    writers = writers_of(parts, y)
    if writers is None:
        return source
    return replace(source, groups=writers.groups, group_names=writers.names, grouping="writer")


def check_labels(part: Part, images: np.ndarray, labels: np.ndarray) -> None:
    if len(images) == len(labels):
        return
    pictures = f"the {len(images)} images of {part.images.name}"
    rule = f"{part.labels} must have a label for each of {pictures}"
    advice = "they are of different data sets: fetch both again"
    raise FedloomError(rule, f"it has {len(labels)}", advice)


# Which files belong together


def find_folder(name: str, below: tuple[str, ...], directory: Path | None) -> Path:
    """Returns the folder with the files of a data set.

    The folder with its name comes first, because MNIST and Fashion-MNIST have the same file names.
    """
    home = directory or Path()
    own_folders = [home / subfolder for subfolder in below]
    for folder in (*own_folders, home):
        if folder.is_dir() and is_idx(folder):
            return folder
    files = "its files (train-images-idx3-ubyte and three more, raw or .gz)"
    raise FedloomError(
        f"--data {name} must have {files} in {own_folders[0]} or {home}",
        "there are none",
        f"name --data-dir, or `fedloom data get {name}`",
    )


def parts_of(folder: Path) -> list[Part]:
    """Returns the training part, then the test part. A raw file is preferred to a packed one."""
    parts: dict[int, Part] = {}
    files = [file for file in folder.iterdir() if IMAGES.fullmatch(file.name)]
    for file in sorted(files, key=lambda file: file.name):
        part = part_of(file)
        first = parts.setdefault(part.official, part)
        if unpacked_name(first.images) != unpacked_name(file):
            raise FedloomError(
                f"{folder} must have one data set's images",
                f"it has {first.images.name} and {file.name}",
                "keep each in a separate folder, or name one file as --data",
            )
    if len(parts) < 2:
        [only] = [part.images.name for part in parts.values()]
        rule = f"{folder} must have images to train and to test on"
        advice = f"add the other, or give --data {folder / only}"
        raise FedloomError(rule, f"it has only {only}", advice)
    return [parts[official] for official in sorted(parts)]


def part_of(images: Path) -> Part:
    match = IMAGES.fullmatch(images.name)
    assert match is not None  # the caller made sure
    stem = unpacked_name(images).partition("-images-idx")[0]
    for packed in ("", ".gz"):
        for mark in ("-", "."):
            labels = images.with_name(f"{stem}-labels{mark}idx1-ubyte{packed}")
            if labels.is_file():
                return Part(images, labels, OFFICIAL[match["part"]])
    rule = f"{images} must have its labels beside it"
    raise FedloomError(rule, f"there is no {stem}-labels-idx1-ubyte", "add it, raw or .gz")


def unpacked_name(file: Path) -> str:
    return file.name.removesuffix(".gz").replace(".idx", "-idx")


# QMNIST's writers


def writers_of(parts: list[Part], y: list[np.ndarray]) -> Writers | None:
    """Returns the writer of every digit, if QMNIST's label files lie beside MNIST's.

    Their rows are in the same order as MNIST's.
    """
    writers = []
    for part, labels in zip(parts, y, strict=True):
        file = qmnist_labels(part)
        if file is not None:
            writers.append(writers_in(file, part, labels))
    if not writers:
        return None
    if len(writers) < len(parts):
        folder = parts[0].labels.parent
        rule = f"{folder} must have QMNIST's labels for train and test, or neither"
        raise FedloomError(rule, "it has one of the two", "add the other or remove it")
    numbers, groups = np.unique(np.concatenate(writers), return_inverse=True)
    return Writers(groups, tuple(f"{number:04d}" for number in numbers))


def qmnist_labels(part: Part) -> Path | None:
    """Returns QMNIST's labels of this part, if they exist and the part is named like MNIST's."""
    if not unpacked_name(part.images).startswith(("train-", "t10k-")):
        return None
    half = "test" if part.official else "train"
    name = f"qmnist-{half}-labels-idx2-int"
    for file in (part.labels.with_name(name), part.labels.with_name(f"{name}.gz")):
        if file.is_file():
            return file
    return None


def writers_in(file: Path, part: Part, labels: np.ndarray) -> np.ndarray:
    table = read_idx(file, (2,), ">i4")
    table = table[: len(labels)]  # MNIST's test digits are the first 10,000 of QMNIST's
    if len(table) != len(labels) or table.shape[1] < 3 or (table[:, 0] != labels).any():
        rule = f"the digits of {file} must be those of {part.labels.name}, row by row"
        advice = "fetch both again, or remove it to go without writers"
        raise FedloomError(rule, "they differ", advice)
    return table[:, 2].astype(np.int64)


# One file


def read_idx(file: Path, dims: tuple[int, ...], wanted: str) -> np.ndarray:
    """Reads the array in a file. Its header must match `dims`, the `wanted` type and its size."""
    try:
        with opened(file) as stream:
            shape = read_header(stream, file, dims, wanted)
            size = math.prod(shape) * np.dtype(wanted).itemsize
            check_size(file, size, head_size=4 + 4 * len(shape))
            content = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise refused(file, f"it could not be read ({reason})") from error
    if len(content) > size:
        raise refused(file, "it has more values than its header says")
    if len(content) < size:
        raise refused(file, "it has fewer values than its header says")
    return np.frombuffer(content, wanted).reshape(shape)


def opened(file: Path) -> Stream:
    if file.suffix == ".gz":
        return gzip.open(file)
    return file.open("rb")


def read_header(stream: Stream, file: Path, dims: tuple[int, ...], wanted: str) -> tuple[int, ...]:
    """Reads the header of a file, checks it, and returns the sizes of the dimensions."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES:
        raise refused(file, f"it begins with {magic.hex() or 'nothing'}, which is no idx header")
    dimensions = magic[3]
    value_type = TYPES[magic[2]]
    if dimensions not in dims or value_type != wanted:
        expected = f"{' or '.join(map(str, dims))} of {np.dtype(wanted)}"
        rule = f"{file} must have dimensions {expected}"
        problem = f"it has {dimensions} dimensions of {np.dtype(value_type)}"
        raise FedloomError(rule, problem, "check which file it is")
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise refused(file, "it ends within its header")
    return tuple(int(size) for size in np.frombuffer(sizes, ">u4"))


def check_size(file: Path, size: int, head_size: int) -> None:
    """Refuses a header that promises more than the file can hold, before memory is allocated."""
    file_size = file.stat().st_size
    possible = size == file_size - head_size
    if file.suffix == ".gz":
        possible = size <= file_size * MOST_PACKED
    if not possible:
        problem = f"its header promises {size} bytes of values that {file_size} cannot hold"
        raise refused(file, problem)


def refused(file: Path, problem: str) -> FedloomError:
    return FedloomError(f"{file} must be a complete idx file", problem, AGAIN)
