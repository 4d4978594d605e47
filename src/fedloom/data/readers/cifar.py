"""CIFAR-10 and CIFAR-100 in their *binary version*: Krizhevsky, "Learning Multiple Layers of Features from Tiny
Images", 2009.

A file is a row of records: one label byte (CIFAR-100: coarse, then fine), then 3072 pixels, the red plane first.
Files may be raw, .gz or .xz. The Python version is a pickle, which could run code, and is never opened.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

PIXELS = 3 * 32 * 32
PACKED = ("", ".gz", ".xz")  # looked for in this order
PICKLE = b"\x80"  # its first opcode; as a label byte it is out of range in both data sets
FINE = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm"""
ADVICE = "get the binary version, whose files end in .bin"


@dataclass(frozen=True)
class Kind:
    """One of the two data sets. The constants are those of its training images, in raw units."""

    name: str
    files: tuple[str, ...]
    folder: str  # where its archive unpacks to
    pickled: str  # and that of the Python version
    label_bytes: int  # the last of them is the label
    names_file: str
    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def record(self) -> int:
        return self.label_bytes + PIXELS


TEN = Kind(
    "cifar10", (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"), "cifar-10-batches-bin",
    "cifar-10-batches-py", 1, "batches.meta.txt",
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(125.307, 122.950, 113.865), std=(62.993, 62.089, 66.705),
)  # fmt: skip
HUNDRED = Kind(
    "cifar100", ("train.bin", "test.bin"), "cifar-100-binary", "cifar-100-python", 2, "fine_label_names.txt",
    tuple(FINE.split()),
    mean=(129.304, 124.070, 112.434), std=(68.170, 65.392, 70.418),
)  # fmt: skip
KINDS = (TEN, HUNDRED)


def cifar10(directory: Path | None = None) -> Source:
    """60,000 colour images of 32×32 in 10 classes, from the binary version's files under --data-dir."""
    return whole(TEN, Path() if directory is None else directory)


def cifar100(directory: Path | None = None) -> Source:
    """60,000 colour images of 32×32 in 100 classes, from the binary version's files under --data-dir."""
    return whole(HUNDRED, Path() if directory is None else directory)


def is_batch(file: Path) -> bool:
    """Whether a file's name is one that CIFAR comes in, the refused Python version included."""
    name = file.name.removesuffix(".gz").removesuffix(".xz")
    return name.endswith(".bin") or name.startswith("data_batch_") or name == "test_batch"


def read_files(files: Sequence[Path]) -> Source:
    """The samples of just these files, which must all be of one kind, in the order given."""
    twice = [file for number, file in enumerate(files) if file.resolve() in [one.resolve() for one in files[:number]]]
    if twice:
        raise FedloomError("a list of files must name each once", f"{twice[0]} is in it twice", "leave one out")
    contents = [unpacked(file) for file in files]
    kinds = [kind_of(file, content) for file, content in zip(files, contents, strict=True)]
    kind = kinds[0]
    for file, other in zip(files, kinds, strict=True):
        if other is not kind:
            must = f"{file} must be of {kind.name} as {files[0]} is"
            raise FedloomError(must, f"it is of {other.name}", "open one data set at a time")
    parts = [records(kind, file, content) for file, content in zip(files, contents, strict=True)]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    parts_of = official(kind, files, [len(labels) for _, labels in parts])
    return Source(kind.name, x, y, label_names(kind, files[0].parent), kind.mean, kind.std, official=parts_of)


def official(kind: Kind, files: Sequence[Path], sizes: Sequence[int]) -> np.ndarray | None:
    """0 for the training files, 2 for the test file; None if either is not among them or a name is not CIFAR's."""
    names = [file.name.removesuffix(".gz").removesuffix(".xz") for file in files]
    parts = [2 if name == kind.files[-1] else 0 for name in names]
    known = set(names) <= set(kind.files) and len(set(parts)) == 2
    return np.repeat(np.array(parts, np.uint8), sizes) if known else None


def whole(kind: Kind, directory: Path) -> Source:
    """All files of a data set, from the folder or the one that its archive makes there."""
    folders = (directory, directory / kind.folder)
    found = [[present(folder, name) for name in kind.files] for folder in folders]
    best = max(found, key=lambda files: sum(file is not None for file in files))
    missing = [name for name, file in zip(kind.files, best, strict=True) if file is None]
    if not missing:
        return read_files([file for file in best if file is not None])
    must = f"--data {kind.name} must have all its files, raw, .gz or .xz, in {folders[0]} or {folders[1]}"
    lost = f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    pickled = [folder / Path(name).stem for folder in (*folders, directory / kind.pickled) for name in kind.files]
    if any(file.is_file() for file in pickled):
        raise FedloomError(must, f"{lost} and the Python version is there instead", ADVICE)
    some = f"--data path/{kind.files[0]},path/{kind.files[-1]}"
    raise FedloomError(
        must, lost, f"try `fedloom data get {kind.name}`, name another --data-dir, or list files you have: {some}"
    )


def present(folder: Path, name: str) -> Path | None:
    tries = (folder / f"{name}{packed}" for packed in PACKED)
    return next((file for file in tries if file.is_file()), None)


def unpacked(file: Path) -> bytes:
    must = f"{file} must be a whole file of CIFAR's binary version"
    try:
        raw = file.read_bytes()
        content = (
            lzma.decompress(raw) if file.suffix == ".xz" else gzip.decompress(raw) if file.suffix == ".gz" else raw
        )
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FedloomError(must, f"it could not be read ({reason})", "copy or fetch it again") from error
    if content.startswith(PICKLE) or ".bin" not in file.suffixes:
        raise FedloomError(must, "it is of the Python version, a pickle", ADVICE)
    if not content:
        raise FedloomError(must, "it is empty", "copy or fetch it again")
    return content


def kind_of(file: Path, content: bytes) -> Kind:
    """By the length of a record; a length that fits both is CIFAR-10 unless its labels say otherwise."""
    fitting = [kind for kind in KINDS if len(content) % kind.record == 0]
    if not fitting:
        sizes = " or ".join(f"{kind.record} ({kind.name})" for kind in KINDS)
        must = f"{file} must be whole records of {sizes} bytes"
        raise FedloomError(
            must, f"its {len(content)} bytes are not", "it was cut short or is no CIFAR file: fetch it again"
        )
    return next((kind for kind in fitting if not len(wrong_labels(kind, content))), fitting[0])


def rows(kind: Kind, content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8).reshape(-1, kind.record)


def wrong_labels(kind: Kind, content: bytes) -> np.ndarray:
    return np.flatnonzero(rows(kind, content)[:, kind.label_bytes - 1] >= len(kind.names))


def records(kind: Kind, file: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    table, wrong = rows(kind, content), wrong_labels(kind, content)
    labels = table[:, kind.label_bytes - 1].astype(np.int64)
    if len(wrong):
        must = f"the labels of {file} must be from 0 to {len(kind.names) - 1}"
        raise FedloomError(must, f"record {wrong[0]} has {labels[wrong[0]]}", "it is damaged: fetch it again")
    return table[:, kind.label_bytes :].reshape(-1, 3, 32, 32), labels


def label_names(kind: Kind, folder: Path) -> tuple[str, ...]:
    """From the list beside the files, if it is there."""
    file = folder / kind.names_file
    if not file.is_file():
        return kind.names
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != len(kind.names) or len(set(names)) != len(names):
        must = f"{file} must name {len(kind.names)} classes, each once"
        raise FedloomError(must, f"it names {len(set(names))}", "restore or remove it")
    return names
