"""idx files, raw or gzipped, under the names they are published with: MNIST (LeCun, Cortes & Burges 1998),
Fashion-MNIST (Xiao, Rasul & Vollgraf 2017) and whatever else comes as `…train-images-idx3-ubyte`.

A file is two zero bytes, a type, a number of dimensions, their sizes, then the values, all big-endian. QMNIST
(Yadav & Bottou 2019) traced the writer of every MNIST digit: with its label files beside MNIST's, writers are groups.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IMAGES = re.compile(r"(?:(?P<set>.+)-)?(?P<part>train|t10k|test)-images[-.]idx(?P<dims>[34])-ubyte(?:\.gz)?")
OFFICIAL = {"train": 0, "t10k": 2, "test": 2}
MOST_PACKED = 1100  # bytes that one byte of deflate can stand for, rounded up
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
AGAIN = "copy or fetch it again"


class Part(NamedTuple):
    images: Path
    labels: Path
    official: int


def mnist(directory: Path | None = None) -> Source:
    """70,000 handwritten digits of 28×28 from the idx files under --data-dir; with QMNIST's labels, writers too."""
    folder = find_folder("mnist", ("mnist", "MNIST/raw"), directory)
    mean, std = (255 * 0.1307,), (255 * 0.3081,)  # of the training images, as PyTorch's own MNIST example has them
    return read("mnist", parts_of(folder), tuple("0123456789"), mean, std)


def fashion_mnist(directory: Path | None = None) -> Source:
    """70,000 grey pictures of clothes of 28×28 in 10 classes from the idx files under --data-dir."""
    folder = find_folder("fashion-mnist", ("fashion-mnist", "fashion", "FashionMNIST/raw"), directory)
    mean, std = (255 * 0.2860,), (255 * 0.3530,)  # of the training images, as its users publish them, to four digits
    return read("fashion-mnist", parts_of(folder), CLOTHES, mean, std)


def is_idx(path: Path) -> bool:
    """Whether it is a file of images by its name, or a folder that has one."""
    try:
        names = os.listdir(path) if path.is_dir() else [path.name]
    except OSError:
        return False  # another reader tells why
    return any(IMAGES.fullmatch(name) for name in names)


def read_path(path: Path) -> Source:
    """All parts in a folder, or the one part of a file."""
    return read(path.resolve().name.partition(".")[0], parts_of(path) if path.is_dir() else [part_of(path)])


def find_folder(name: str, below: tuple[str, ...], directory: Path | None) -> Path:
    """The set's own folder comes first: MNIST and Fashion-MNIST have the same file names."""
    home = Path() if directory is None else directory
    for folder in (*(home / one for one in below), home):
        if folder.is_dir() and is_idx(folder):
            return folder
    must = f"--data {name} must have its files (train-images-idx3-ubyte and three more, raw or .gz)"
    raise FedloomError(
        f"{must} in {home / below[0]} or {home}", "there are none", f"name --data-dir, or `fedloom data get {name}`"
    )


def parts_of(folder: Path) -> list[Part]:
    """Train, then test; of a file that is there raw and packed, the raw one."""
    found: dict[int, Part] = {}
    for file in sorted((file for file in folder.iterdir() if IMAGES.fullmatch(file.name)), key=lambda file: file.name):
        part = part_of(file)
        other = found.setdefault(part.official, part)
        if unpacked_name(other.images) != unpacked_name(file):
            must, had = f"{folder} must have one data set's images", f"it has {other.images.name} and {file.name}"
            raise FedloomError(must, had, "keep each in a folder of its own, or name one file as --data")
    if len(found) < 2:
        must, only = f"{folder} must have images to train and to test on", next(iter(found.values())).images.name
        raise FedloomError(must, f"it has only {only}", f"add the other, or give --data {folder / only}")
    return [found[official] for official in sorted(found)]


def unpacked_name(file: Path) -> str:
    return file.name.removesuffix(".gz").replace(".idx", "-idx")


def part_of(images: Path) -> Part:
    match = IMAGES.fullmatch(images.name)
    assert match is not None  # the caller looked
    stem = unpacked_name(images).partition("-images-idx")[0]
    tries = [f"{stem}-labels{mark}idx1-ubyte{packed}" for packed in ("", ".gz") for mark in "-."]
    labels = next((images.with_name(name) for name in tries if images.with_name(name).is_file()), None)
    if labels is None:
        raise FedloomError(f"{images} must have its labels beside it", f"there is no {tries[0]}", "add it, raw or .gz")
    return Part(images, labels, OFFICIAL[match["part"]])


def read(
    name: str,
    parts: list[Part],
    names: tuple[str, ...] = (),
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Source:
    x = [read_idx(part.images, (3, 4), "u1") for part in parts]
    y = [read_idx(part.labels, (1,), "u1") for part in parts]
    for part, images, labels in zip(parts, x, y, strict=True):
        if len(images) != len(labels):
            must = f"{part.labels} must have a label for each of the {len(images)} images of {part.images.name}"
            raise FedloomError(must, f"it has {len(labels)}", "they are of different data sets: fetch both again")
        if images.shape[1:] != x[0].shape[1:]:
            must = f"{part.images} must have images of {x[0].shape[1:]} as {parts[0].images.name} has"
            raise FedloomError(must, f"they are of {images.shape[1:]}", "keep one data set in a folder")
    official = np.repeat(np.array([part.official for part in parts], np.uint8), [len(labels) for labels in y])
    groups, group_names = writers(parts, y)
    labels = np.concatenate(y).astype(np.int64)
    return Source(
        name, np.concatenate(x), labels, names, mean, std, groups=groups, group_names=group_names,
        grouping="site" if groups is None else "writer", official=official,
    )  # fmt: skip


def writers(parts: list[Part], y: list[np.ndarray]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The writer of every digit, if QMNIST's labels are beside MNIST's: their rows are in the same order."""
    ids = []
    for part, labels in zip(parts, y, strict=True):
        name = f"qmnist-{'test' if part.official else 'train'}-labels-idx2-int"
        file = next(
            (f for f in (part.labels.with_name(name), part.labels.with_name(f"{name}.gz")) if f.is_file()), None
        )
        if file is None or not unpacked_name(part.images).startswith(("train-", "t10k-")):
            continue
        table = read_idx(file, (2,), ">i4")[: len(labels)]  # MNIST's test digits are the first 10,000 of QMNIST's
        if len(table) != len(labels) or table.shape[1] < 3 or (table[:, 0] != labels).any():
            must = f"the digits of {file} must be those of {part.labels.name}, row by row"
            raise FedloomError(must, "they differ", "fetch both again, or remove it to go without writers")
        ids.append(table[:, 2].astype(np.int64))
    if not ids:
        return None, ()
    if len(ids) < len(parts):
        must = f"{parts[0].labels.parent} must have QMNIST's labels for train and test, or neither"
        raise FedloomError(must, "it has one of the two", "add the other or remove it")
    numbers, groups = np.unique(np.concatenate(ids), return_inverse=True)
    return groups, tuple(f"{number:04d}" for number in numbers)


def read_idx(file: Path, dims: tuple[int, ...], wanted: str) -> np.ndarray:
    """The array in a file, whose head must say what is asked for and be true of its length."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            shape = read_head(stream, file, dims, wanted)
            size = math.prod(shape) * np.dtype(wanted).itemsize
            held, head = file.stat().st_size, 4 + 4 * len(shape)
            if size > held * MOST_PACKED if file.suffix == ".gz" else size != held - head:
                raise refused(file, f"its head promises {size} bytes of values that {held} cannot hold")
            content = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise refused(file, f"it could not be read ({reason})") from error
    if len(content) != size:
        raise refused(file, f"it has {'more' if len(content) > size else 'fewer'} values than its head says")
    return np.frombuffer(content, wanted).reshape(shape)


def read_head(stream: BinaryIO | gzip.GzipFile, file: Path, dims: tuple[int, ...], wanted: str) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES:
        raise refused(file, f"it begins with {magic.hex() or 'nothing'}, no idx head")
    if magic[3] not in dims or TYPES[magic[2]] != wanted:
        kind = f"{magic[3]} dimensions of {np.dtype(TYPES[magic[2]])}"
        expected = f"{' or '.join(map(str, dims))} of {np.dtype(wanted)}"
        raise FedloomError(f"{file} must have dimensions {expected}", f"it has {kind}", "check which file it is")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise refused(file, "it ends within its head")
    return tuple(int(size) for size in np.frombuffer(sizes, ">u4"))


def refused(file: Path, found: str) -> FedloomError:
    return FedloomError(f"{file} must be a whole idx file", found, AGAIN)
