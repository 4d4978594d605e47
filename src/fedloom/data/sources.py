"""Data sets as arrays: `digits`, `cifar10`, one .npz, a folder of them (a site each), files of CIFAR, or
`path/file.py:Name`.

How an array `x` of an .npz is read: [n,h,w] has one channel; [n,a,b,c] is channels first if a ≤ 4, else
channels last if c ≤ 4 (MedMNIST), else refused. So [n,3,3,3], which could be either, is channels first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedloom.errors import FedloomError, unknown
from fedloom.registry import Registry, from_file

MAX_CLASSES = 65_536  # a label above this is a mistake, and would make as many class names
Floats: TypeAlias = Sequence[float] | None
SOURCES = Registry(
    "--data",
    "fedloom.data",
    {
        "cifar10": "fedloom.data.cifar:cifar10",
        "cifar100": "fedloom.data.cifar:cifar100",
        "digits": "fedloom.data.sources:digits",
        "fsdd": "fedloom.data.fsdd:fsdd",
        "fsdd:logmel": "fedloom.data.fsdd:fsdd_logmel",
        "speech-commands": "fedloom.data.speech:commands",
        "speech-commands:logmel": "fedloom.data.speech:commands_logmel",
        "speech-commands-12": "fedloom.data.keywords:commands12",
        "speech-commands-12:logmel": "fedloom.data.keywords:commands12_logmel",
    },
)


@dataclass(frozen=True, eq=False)  # arrays have no truth value; compare digests
class Source:
    """All samples of a data set. Left empty, labels, mean and std are filled in by `open_source`."""

    name: str
    x: np.ndarray  # [n,c,h,w], raw values, uint8 or finite float32
    y: np.ndarray  # [n], int64
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()  # per channel, in raw units
    std: tuple[float, ...] = ()
    kind: str = "image"
    groups: np.ndarray | None = None  # [n], int64, an index into group_names: who a sample comes from
    group_names: tuple[str, ...] = ()
    grouping: str = "site"  # what a group is: a site, writer, speaker, role, …
    official: np.ndarray | None = None  # [n], uint8, the data set's own parts: 0 train, 1 validation, 2 test

    @cached_property
    def digest(self) -> str:
        sha = hashlib.sha256()
        for array in (self.x, self.y, self.groups, self.official):
            if array is None:
                continue
            sha.update(f"{array.dtype.str}{array.shape};".encode())
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()


class Part(NamedTuple):
    """Checked samples of one file, or of one array of it; `where` is what an error names."""

    where: str
    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...]


def open_source(
    name: str,
    directory: Path | None = None,
    *,
    classes: int | None = None,
    mean: Floats = None,
    std: Floats = None,
) -> Source:
    """The data set of this name or path, checked. A relative path is looked for under `directory` too."""
    source = find(name, directory, classes)
    part = checked(f"--data {name}", source.x, source.y, source.labels, classes)
    middle, spread = (127.5, 127.5) if part.x.dtype == np.uint8 else (0.0, 1.0)  # bytes come to −1..1
    channels = part.x.shape[1]
    return replace(
        source,
        x=part.x,
        y=part.y,
        labels=class_names(part, classes),
        mean=constants("mean", source.mean if mean is None else mean, middle, channels),
        std=constants("std", source.std if std is None else std, spread, channels),
        groups=checked_groups(part, source),
    )


def find(name: str, directory: Path | None, classes: int | None) -> Source:
    if ".py:" in name:
        path, attribute = name.rsplit(":", 1)
        return called(name, from_file(f"{locate(path, directory) or path}:{attribute}"), directory)
    if name in SOURCES.names():
        return called(name, SOURCES.get(name), directory)
    found = locate(name, directory)
    if found is not None:
        return read_path(found, classes)
    if "," in name:
        return read_list(name, directory)
    if "/" in name or name.endswith(".npz"):
        raise missing(name, directory)
    raise unknown("--data, unless it is a path to an .npz or to a folder of them,", name, SOURCES.names())


def read_path(path: Path, classes: int | None) -> Source:
    from fedloom.data import cifar, npz, speech  # they build on this module

    if path.is_dir() and speech.holds_wav(path):
        return speech.read_tree(path)
    if path.is_dir():
        return npz.read_folder(path, classes)
    return cifar.read_files([path]) if cifar.is_batch(path) else npz.read_file(path, classes)


def read_list(names: str, directory: Path | None) -> Source:
    """Some files of CIFAR, in the order given."""
    from fedloom.data import cifar

    files: list[Path] = []
    for name in names.split(","):
        file = locate(name.strip(), directory)
        if file is None or not name.strip():
            raise missing(name.strip(), directory)
        if not cifar.is_batch(file):
            must = "a comma-separated --data must list files of CIFAR's binary version"
            raise FedloomError(must, f"{name} is none", "name .bin files, or one .npz or folder")
        files.append(file)
    return cifar.read_files(files)


def missing(name: str, directory: Path | None) -> FedloomError:
    tried = "there is none" if directory is None else f"there is none, nor under {directory}"
    return FedloomError(f"--data {name} must be a file or a folder", tried, "check the path and --data-dir")


def locate(name: str, directory: Path | None) -> Path | None:
    path = Path(name).expanduser()
    tries = [path] if directory is None else [path, directory / path]
    try:
        return next((one for one in tries if one.exists()), None)
    except OSError:  # a list of files can be longer than a name may be
        return None


def called(name: str, make: Callable[[Path | None], Any], directory: Path | None) -> Source:
    source = make(directory) if callable(make) else make
    if not callable(make) or not isinstance(source, Source):
        got = f"got {type(source).__name__}"
        todo = "return fedloom.data.sources.Source(name, x, y)"
        raise FedloomError(f"--data {name} must be a callable (directory) -> Source", got, todo)
    return source


def digits(directory: Path | None = None) -> Source:
    """The 1,797 handwritten digits of 8×8 pixels, 0..16, that come with scikit-learn."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    labels = tuple(str(digit) for digit in range(10))
    x, y = raw.images.astype(np.uint8)[:, None], raw.target.astype(np.int64)
    return Source("digits", x, y, labels, mean=(4.8842,), std=(6.0168,))  # of all pixels, raw units


def checked(where: str, x: np.ndarray, y: np.ndarray, labels: tuple[str, ...], classes: int | None) -> Part:
    """The samples in the one form that everything after reads. What is checked already stays as it is."""
    x, y = images(where, np.asarray(x)), targets(where, np.asarray(y))
    if len(x) != len(y):
        todo = "save one label a sample"
        raise FedloomError(f"{where} must have as many labels as samples", f"has {len(x)} and {len(y)} labels", todo)
    limit = class_count(where, labels, classes) or MAX_CLASSES
    wrong = np.flatnonzero((y < 0) | (y >= limit))
    if len(wrong):
        must = f"the labels of {where} must be class numbers from 0 to {limit - 1}"
        todo = "correct the labels, or the number of classes"
        raise FedloomError(must, f"row {wrong[0]} has {y[wrong[0]]}", todo)
    return Part(where, x, y.astype(np.int64), labels)


def images(where: str, x: np.ndarray) -> np.ndarray:
    found = f"its shape is {x.shape}"
    if x.size == 0:
        raise FedloomError(f"{where} must have at least one sample", found, "save it again with samples")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] > 4 and x.shape[3] <= 4:
        x = np.moveaxis(x, 3, 1)
    if x.ndim != 4 or x.shape[1] > 4:
        must = f"{where} must be [n,h,w], [n,c,h,w] or [n,h,w,c] with 1 to 4 channels"
        raise FedloomError(must, found, "reshape it")
    return np.ascontiguousarray(numbers(where, x))


def numbers(where: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        if x.min() < 0 or x.max() > 255:
            found = f"they run from {x.min()} to {x.max()}"
            raise FedloomError(f"integers of {where} must lie in 0..255", found, "save them as float32")
        return x.astype(np.uint8, copy=False)
    if x.dtype.kind != "f":
        raise FedloomError(f"{where} must be integers or floats", f"its type is {x.dtype}", "convert it")
    with np.errstate(over="ignore"):  # a float64 too large becomes Inf, and is refused as such
        x = x.astype(np.float32, copy=False)
    wrong = np.flatnonzero(~np.isfinite(x).all(axis=(1, 2, 3)))
    if len(wrong):
        must = f"{where} must be finite in float32"
        raise FedloomError(must, f"row {wrong[0]} has NaN or Inf", "clean or drop such samples")
    return x


def targets(where: str, y: np.ndarray) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y  # MedMNIST's [n,1]
    if y.ndim != 1:
        must, found = f"{where} must have one label a sample", f"the labels have shape {y.shape}"
        raise FedloomError(must, found, "choose one column: multi-label data is not supported")
    if y.dtype.kind not in "iu":
        must, found = f"the labels of {where} must be integers", f"their type is {y.dtype}"
        raise FedloomError(must, found, "save class numbers, y.astype('int64')")
    return y


def class_count(where: str, labels: tuple[str, ...], classes: int | None) -> int | None:
    """How many classes were declared, by name or by number; None: the labels themselves tell."""
    if classes is not None and labels and classes != len(labels):
        found = f"got {classes} and {len(labels)} names"
        raise FedloomError(f"classes must be the number of label names of {where}", found, "leave it out")
    count = len(labels) if labels else classes
    if count is not None and not 2 <= count <= MAX_CLASSES:
        found = f"got {count}"
        raise FedloomError(f"{where} must have 2 to {MAX_CLASSES} classes", found, "name every class")
    return count


def class_names(part: Part, classes: int | None) -> tuple[str, ...]:
    if classes is None and not part.labels and part.y.min() == part.y.max():
        must, found = f"{part.where} must have at least 2 classes", f"every label is {part.y[0]}"
        raise FedloomError(must, found, "give the number of classes if the others have no samples here")
    return part.labels or tuple(str(label) for label in range(classes or int(part.y.max()) + 1))


def constants(what: str, given: Sequence[float], default: float, channels: int) -> tuple[float, ...]:
    values = tuple(float(value) for value in given) or (default,)
    good = all(np.isfinite(value) and (value > 0 or what == "mean") for value in values)
    if not good or len(values) not in (1, channels):
        must = f"{what} must be 1 or {channels} finite numbers" + " above 0" * (what == "std")
        raise FedloomError(must, f"got {list(values)}", "give one a channel, in raw units")
    return values if len(values) == channels else values * channels


def checked_groups(part: Part, source: Source) -> np.ndarray | None:
    if source.groups is None:
        return None
    groups, count = np.asarray(source.groups), len(source.group_names)
    good = groups.shape == part.y.shape and groups.dtype.kind in "iu"
    if not good or groups.min() < 0 or groups.max() >= count:
        must = f"groups of {part.where} must be one index into its {count} group_names a sample"
        raise FedloomError(must, f"got {groups.dtype} of shape {groups.shape}", "count groups from 0")
    return groups.astype(np.int64)
