"""Data sets as arrays, by a name (`digits`, `cifar10`, …), by a path (an .npz, a folder of them, a site each, a
folder of class folders, a .csv of files and labels, files of idx or CIFAR), or by `path/file.py:Name`.

How an array `x` of an .npz is read: [n,h,w] has one channel; [n,a,b,c] is channels first if a ≤ 4, else
channels last if c ≤ 4 (MedMNIST), else refused. So [n,3,3,3], which could be either, is channels first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedloom.data import cache
from fedloom.data.checks import checked, checked_groups, checked_official, class_names, constants
from fedloom.data.fetching.places import fetched
from fedloom.data.source import Source as Source
from fedloom.errors import FedloomError, unknown
from fedloom.registry import Registry, absolute, from_file

Floats: TypeAlias = Sequence[float] | None
SOURCES = Registry(
    "--data",
    "fedloom.data",
    {
        "cifar10": "fedloom.data.readers.cifar:cifar10",
        "cifar100": "fedloom.data.readers.cifar:cifar100",
        "cinic10": "fedloom.data.readers.tree:cinic10",
        "digits": "fedloom.data.readers.digits:digits",
        "fashion-mnist": "fedloom.data.readers.idx:fashion_mnist",
        "fsdd": "fedloom.data.readers.fsdd:fsdd",
        "fsdd:logmel": "fedloom.data.readers.fsdd:fsdd_logmel",
        "mnist": "fedloom.data.readers.idx:mnist",
        "shakespeare": "fedloom.data.readers.text:shakespeare",
        "speech-commands": "fedloom.data.readers.speech:commands",
        "speech-commands:logmel": "fedloom.data.readers.speech:commands_logmel",
        "speech-commands-12": "fedloom.data.readers.keywords:commands12",
        "speech-commands-12:logmel": "fedloom.data.readers.keywords:commands12_logmel",
    },
)


def open_source(
    name: str,
    directory: Path | None = None,
    *,
    classes: int | None = None,
    mean: Floats = None,
    std: Floats = None,
) -> Source:
    """The data set of this name or path, checked. A relative path is looked for under `directory` too."""
    try:
        source = find(name, directory, classes)
    except OSError as error:  # what no reader looks after: folders, for the most part
        place, found = error.filename or f"--data {name}", f"it is not ({error.strerror or error})"
        raise FedloomError(f"{place} must be readable", found, "mend or remove it") from error
    part = checked(f"--data {name}", source.x, source.y, source.labels, classes, source.kind)
    if source.kind == "text":
        if mean is not None or std is not None:
            must = f"mean and std must be of numbers, and --data {name} is text"
            raise FedloomError(must, "they are given", "leave them out")
        channels, middle, spread = 0, 0.0, 1.0  # symbols have no scale, and go into a network as they are
    else:
        channels = part.x.shape[1]
        middle, spread = (127.5, 127.5) if part.x.dtype == np.uint8 else (0.0, 1.0)  # bytes come to −1..1
    return replace(
        source,
        x=part.x,
        y=part.y,
        labels=class_names(part, classes),
        mean=constants("mean", source.mean if mean is None else mean, middle, channels),
        std=constants("std", source.std if std is None else std, spread, channels),
        groups=checked_groups(part, source),
        official=checked_official(part, source),
    )


def find(name: str, directory: Path | None, classes: int | None) -> Source:
    plain, sizes = sized(name)
    if sizes:
        return find_text(plain, directory, *(int(size) for size in sizes[1:].split(":")))
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
    if "/" in name or name.endswith((".npz", ".txt", ".json")):
        raise missing(name, directory)
    raise unknown("--data, unless it is a path to an .npz or to a folder of them,", name, SOURCES.names())


def reference(name: str) -> str:
    """`file.py:Name` with its full path; a .json, unlike a network's, may also lie under --data-dir."""
    return absolute(name) if ".py:" in name else name


def sized(name: str) -> tuple[str, str]:
    """`play.txt:40:10` → the name of a text, and behind it the window and the stride to read it with, if any."""
    found = re.fullmatch(r"(.+?)((?::\d+){1,2})", name)
    return (found[1], found[2]) if found else (name, "")


def find_text(name: str, directory: Path | None, window: int, stride: int | None = None) -> Source:
    """A registered text or a text file, with another window and perhaps another stride."""
    from fedloom.data.readers import text

    make, path = SOURCES.get(name) if name in SOURCES.names() else None, locate(name, directory)
    if make is not None and "window" in inspect.signature(make).parameters:
        return called(name, lambda folder: make(folder, window, stride), directory)
    if make is None and path is not None and path.suffix.lower() == ".txt":
        return text.read_text(path, window, stride)
    must = f"--data {name} with a window behind it must be a text file or a registered text"
    raise FedloomError(must, "it is none" if make or path else "there is no such thing", "leave the numbers out")


def read_path(path: Path, classes: int | None) -> Source:
    """By what the files are called; every reader looks into them before it believes the name."""
    from fedloom.data.readers import cifar, idx, leaf, npz, speech, table, text, tree

    if idx.is_idx(path):
        return idx.read_path(path)
    if leaf.is_leaf(path):
        return leaf.read_path(path)
    if path.suffix.lower() == ".txt":
        return text.read_text(path)
    if path.is_dir() and speech.holds_wav(path):
        return speech.read_tree(path)
    if path.is_dir():
        return npz.read_folder(path, classes) if any(path.glob("*.npz")) else tree.read_folder(path)
    if path.suffix.lower() == ".csv":
        return table.read_csv(path)
    return cifar.read_files([path]) if cifar.is_batch(path) else npz.read_file(path, classes)


def read_list(names: str, directory: Path | None) -> Source:
    """Some files of CIFAR, in the order given."""
    from fedloom.data.readers import cifar

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
    todo = "check the path and --data-dir"
    if Path(name).parent == cache.folder():
        todo = "the cache was emptied: give the same torch data set to fedloom.search again, which writes it anew"
    return FedloomError(f"--data {name} must be a file or a folder", tried, todo)


def locate(name: str, directory: Path | None) -> Path | None:
    """The file or folder that is meant; not a pipe or a device, which would be waited for or never end."""
    path = Path(name).expanduser()
    tries = [path] if directory is None else [path, directory / path]
    try:
        return next((one for one in tries if one.is_file() or one.is_dir()), None)
    except OSError:  # a list of files can be longer than a name may be
        return None


def called(name: str, make: Callable[[Path | None], Any], directory: Path | None) -> Source:
    source = make(directory or fetched(name)) if callable(make) else make
    if not callable(make) or not isinstance(source, Source):
        got = f"got {type(source).__name__}"
        todo = "return fedloom.data.sources.Source(name, x, y)"
        raise FedloomError(f"--data {name} must be a callable (directory) -> Source", got, todo)
    return source
