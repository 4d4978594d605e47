"""CIFAR-10 and CIFAR-100 in their *binary version*.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

A file is a sequence of records: one label byte (CIFAR-100: coarse, then fine), then 3072 pixels,
the red plane first. Files may be raw, .gz or .xz. The Python version is a pickle, which could run
code, so it is never opened.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.packed import present, unpacked_name
from fedloom.data.source import Source
from fedloom.errors import FedloomError

PIXELS = 3 * 32 * 32
PICKLE = b"\x80"  # its first opcode; as a label byte it is out of range in both data sets
FINE = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
ADVICE = "get the binary version, whose files end in .bin"


@dataclass(frozen=True)
class Kind:
    """One of the two data sets. The constants are those of its training images, in raw units."""

    name: str
    files: tuple[str, ...]
    folder: str  # that its archive unpacks to
    pickled: str  # the folder that the archive of the Python version unpacks to
    label_bytes: int  # the last of them is the label
    names_file: str
    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def record(self) -> int:
        """The bytes of one record."""
        return self.label_bytes + PIXELS


CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
TEN = Kind(
    name="cifar10",
    files=(
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
        "test_batch.bin",
    ),
    folder="cifar-10-batches-bin",
    pickled="cifar-10-batches-py",
    label_bytes=1,
    names_file="batches.meta.txt",
    names=CIFAR10_CLASSES,
    mean=(125.307, 122.950, 113.865),
    std=(62.993, 62.089, 66.705),
)
HUNDRED = Kind(
    name="cifar100",
    files=("train.bin", "test.bin"),
    folder="cifar-100-binary",
    pickled="cifar-100-python",
    label_bytes=2,
    names_file="fine_label_names.txt",
    names=tuple(FINE.split()),
    mean=(129.304, 124.070, 112.434),
    std=(68.170, 65.392, 70.418),
)
KINDS = (TEN, HUNDRED)


class Records(NamedTuple):
    """The images of one file, and their labels."""

    x: np.ndarray
    y: np.ndarray


def cifar10(directory: Path | None = None) -> Source:
    """60,000 colour images of 32×32 in 10 classes, from the binary version under --data-dir."""
    return whole(TEN, directory or Path())


def cifar100(directory: Path | None = None) -> Source:
    """60,000 colour images of 32×32 in 100 classes, from the binary version under --data-dir."""
    return whole(HUNDRED, directory or Path())


def is_batch(file: Path) -> bool:
    """Whether a file is named like one of CIFAR's, the refused Python version included."""
    name = unpacked_name(file.name)
    return name.endswith(".bin") or name.startswith("data_batch_") or name == "test_batch"


# A whole data set


def whole(kind: Kind, directory: Path) -> Source:
    """Reads all files of a data set, from this folder or the one that its archive unpacks to."""
    here = files_in(directory, kind)
    unpacked_there = files_in(directory / kind.folder, kind)
    files = here
    if len(unpacked_there) > len(here):
        files = unpacked_there
    missing = [name for name in kind.files if name not in files]
    if missing:
        raise incomplete(kind, directory, missing)
    return read_files(list(files.values()))


def files_in(folder: Path, kind: Kind) -> dict[str, Path]:
    """Returns the files of a data set that a folder has, by their published names."""
    files: dict[str, Path] = {}
    for name in kind.files:
        file = present(folder, name)
        if file is not None:
            files[name] = file
    return files


def incomplete(kind: Kind, directory: Path, missing: Sequence[str]) -> FedloomError:
    unpacked_to = directory / kind.folder
    files = "all its files, raw, .gz or .xz,"
    rule = f"--data {kind.name} must have {files} in {directory} or {unpacked_to}"
    verb = "are" if len(missing) > 1 else "is"
    loss = f"{', '.join(missing)} {verb} missing"
    for folder in (directory, unpacked_to, directory / kind.pickled):
        if has_pickles(folder, kind):
            return FedloomError(rule, f"{loss} and the Python version is there instead", ADVICE)
    get = f"try `fedloom data get {kind.name}`"
    example = f"--data path/{kind.files[0]},path/{kind.files[-1]}"
    advice = f"{get}, name another --data-dir, or list files you have: {example}"
    return FedloomError(rule, loss, advice)


def has_pickles(folder: Path, kind: Kind) -> bool:
    """Whether the Python version is here. Its files have the same names without `.bin`."""
    return any((folder / Path(name).stem).is_file() for name in kind.files)


# Single files


def read_files(files: Sequence[Path]) -> Source:
    """Reads only these files, in the order given. They must all be of the same data set."""
    refuse_repeated(files)
    contents = [unpacked(file) for file in files]
    kinds = [kind_of(file, content) for file, content in zip(files, contents, strict=True)]
    kind = kinds[0]
    for file, other in zip(files, kinds, strict=True):
        if other is not kind:
            rule = f"{file} must be of {kind.name} as {files[0]} is"
            raise FedloomError(rule, f"it is of {other.name}", "open one data set at a time")
    parts: list[Records] = []
    for file, content in zip(files, contents, strict=True):
        parts.append(records(kind, file, content))
    return Source(
        kind.name,
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        label_names(kind, files[0].parent),
        kind.mean,
        kind.std,
        official=official(kind, files, [len(part.y) for part in parts]),
    )


def refuse_repeated(files: Sequence[Path]) -> None:
    seen = set[Path]()
    for file in files:
        resolved = file.resolve()
        if resolved in seen:
            rule = "a list of files must name each once"
            raise FedloomError(rule, f"{file} occurs twice", "leave one out")
        seen.add(resolved)


def official(kind: Kind, files: Sequence[Path], sizes: Sequence[int]) -> np.ndarray | None:
    """Returns the official part of every sample: 0 in training files, 2 in the test file.

    None: there are no training files, or no test file, or one of the names is not CIFAR's.
    """
    parts = []
    for file in files:
        name = unpacked_name(file.name)
        if name not in kind.files:
            return None
        is_test = name == kind.files[-1]
        parts.append(2 if is_test else 0)
    if len(set(parts)) < 2:
        return None
    return np.repeat(np.array(parts, np.uint8), sizes)


def label_names(kind: Kind, folder: Path) -> tuple[str, ...]:
    """Reads the class names from the list beside the files, if it is there."""
    file = folder / kind.names_file
    if not file.is_file():
        return kind.names
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != len(kind.names) or len(set(names)) != len(names):
        rule = f"{file} must name {len(kind.names)} classes, each once"
        raise FedloomError(rule, f"it names {len(set(names))}", "restore or remove it")
    return names


# One file


def unpacked(file: Path) -> bytes:
    rule = f"{file} must be a complete file of CIFAR's binary version"
    try:
        content = decompressed(file)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        problem = f"it could not be read ({reason})"
        raise FedloomError(rule, problem, "copy or fetch it again") from error
    if content.startswith(PICKLE) or ".bin" not in file.suffixes:
        raise FedloomError(rule, "it is of the Python version, a pickle", ADVICE)
    if not content:
        raise FedloomError(rule, "it is empty", "copy or fetch it again")
    return content


def decompressed(file: Path) -> bytes:
    raw = file.read_bytes()
    if file.suffix == ".xz":
        return lzma.decompress(raw)
    if file.suffix == ".gz":
        return gzip.decompress(raw)
    return raw


def kind_of(file: Path, content: bytes) -> Kind:
    """Tells by the size of its records which data set a file belongs to.

    A file that fits both is taken for CIFAR-10, unless its labels only fit CIFAR-100.
    """
    fitting = [kind for kind in KINDS if len(content) % kind.record == 0]
    if not fitting:
        sizes = " or ".join(f"{kind.record} ({kind.name})" for kind in KINDS)
        raise FedloomError(
            f"{file} must be whole records of {sizes} bytes",
            f"its {len(content)} bytes are not",
            "it was cut short or is no CIFAR file: fetch it again",
        )
    for kind in fitting:
        if not len(wrong_labels(kind, content)):
            return kind
    return fitting[0]


def records(kind: Kind, file: Path, content: bytes) -> Records:
    table = rows(kind, content)
    labels = table[:, kind.label_bytes - 1].astype(np.int64)
    wrong = wrong_labels(kind, content)
    if len(wrong):
        rule = f"the labels of {file} must be from 0 to {len(kind.names) - 1}"
        problem = f"record {wrong[0]} has {labels[wrong[0]]}"
        raise FedloomError(rule, problem, "it is damaged: fetch it again")
    return Records(table[:, kind.label_bytes :].reshape(-1, 3, 32, 32), labels)


def wrong_labels(kind: Kind, content: bytes) -> np.ndarray:
    return np.flatnonzero(rows(kind, content)[:, kind.label_bytes - 1] >= len(kind.names))


def rows(kind: Kind, content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8).reshape(-1, kind.record)
