"""Opens a data set, given by name, by path, or as `path/file.py:Name`, as arrays.

Names are `digits`, `cifar10` and so on. A path may lead to an .npz, a folder with one .npz per
site, a folder of class folders, a .csv or .parquet of numbers and categories or a folder of them, a
.csv of files and labels, or files in the idx or CIFAR format.

How an array `x` of an .npz is read: [n,h,w] has one channel; [n,a,b,c] is channels first if a ≤ 4,
else channels last if c ≤ 4 (MedMNIST), else refused. So [n,3,3,3], which could be either, is
channels first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedloom.data import cache
from fedloom.data.checks import (
    LEAST_CLASSES,
    checked,
    checked_groups,
    checked_official,
    class_names,
    constants,
)
from fedloom.data.fetching.places import fetched
from fedloom.data.image_rules import AS_THEY_ARE, ImageRules
from fedloom.data.source import Source as Source
from fedloom.data.tables.rules import USUAL, TableRules
from fedloom.data.tables.samples import one_table
from fedloom.data.tables.table import Table
from fedloom.errors import FedloomError, raised, unknown
from fedloom.registry import EXTENSION, Registry, absolute, from_file, without_attribute

Floats: TypeAlias = Sequence[float] | None
MOST_LOOKED_AT = 500  # samples whose range of values is looked at
MOST_DARK = 63  # a quarter of a byte's range
SOURCES = Registry(
    "--data",
    "fedloom.data",
    {
        "breast-cancer": "fedloom.data.readers.scikit_tables:breast_cancer",
        "cifar10": "fedloom.data.readers.cifar:cifar10",
        "cifar100": "fedloom.data.readers.cifar:cifar100",
        "cinic10": "fedloom.data.readers.tree:cinic10",
        "diabetes": "fedloom.data.readers.scikit_tables:diabetes",
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
        "wine": "fedloom.data.readers.scikit_tables:wine",
    },
)


class Scale(NamedTuple):
    """How samples are normalised if their source brings no constants."""

    channels: int
    mean: float
    std: float


# What a path may lead to, for errors about a path to something else.
FORMATS = (
    "an .npz of arrays x and y or a folder of them, a folder of class folders of images or .wav "
    "files, a .csv or .parquet of numbers and categories or a folder of them, a .csv of files and "
    "labels, a .txt, LEAF's .json, files of idx or of CIFAR's binary version, or file.py:Name"
)
TEXT_SCALE = Scale(0, 0.0, 1.0)  # symbols have no scale: networks take them as they are


class Sized(NamedTuple):
    """The name of a data set, and the window and stride that may follow the name of a text."""

    name: str
    sizes: str  # ":40:10", or empty


def open_source(
    name: str,
    directory: Path | None = None,
    *,
    classes: int | None = None,
    mean: Floats = None,
    std: Floats = None,
    images: ImageRules = AS_THEY_ARE,
    least: int = LEAST_CLASSES,
    tables: TableRules = USUAL,
) -> Source:
    """Opens the data set of this name or path and checks it.

    A relative path is also looked up under `directory`. `images` are the options for image files,
    `tables` those for tables. There must be at least `least` classes.
    """
    try:
        source = read_named(name, directory, classes, images, least, tables)
    except OSError as error:  # one that no reader handles: mostly folders that cannot be listed
        rule = f"{error.filename or f'--data {name}'} must be readable"
        problem = f"it is not ({error.strerror or error})"
        raise FedloomError(rule, problem, "repair or remove it") from error
    check_table_options(name, source, tables)
    part = checked(
        f"--data {name}",
        source.x,
        source.y,
        source.labels,
        classes,
        source.kind,
        least,
    )
    check_constants(name, source, mean, std, classes)
    if mean is None:
        mean = source.mean
    if std is None:
        std = source.std
    scale = default_scale(source.kind, part.x)
    notices = source.notices
    if not mean and not std and source.kind == "image":
        notices += dark_notices(name, part.x)
    return replace(
        source,
        notices=notices,
        x=part.x,
        y=part.y,
        labels=class_names(part, classes, least),
        mean=constants("mean", mean, scale.mean, scale.channels),
        std=constants("std", std, scale.std, scale.channels),
        groups=checked_groups(part, source),
        official=checked_official(part, source),
    )


def check_table_options(name: str, source: Source, tables: TableRules) -> None:
    if source.table is None and not tables.are_usual:
        rule = "--label, --task, --ignore and --categorical must be for a table"
        raise FedloomError(rule, f"--data {name} is {source.kind}", "leave them out")


def check_constants(
    name: str,
    source: Source,
    mean: Floats,
    std: Floats,
    classes: int | None,
) -> None:
    """Refuses constants for samples that have no scale, or whose columns decide it."""
    has_constants = mean is not None or std is not None
    if source.kind == "text" and has_constants:
        rule = f"mean and std must not be given for text, which --data {name} is"
        raise FedloomError(rule, "they are given", "leave them out")
    if source.table is not None and (has_constants or classes is not None):
        rule = f"mean, std and classes must be left to the columns of --data {name}, a table"
        raise FedloomError(rule, "they are given", "leave them out")


def default_scale(kind: str, x: np.ndarray) -> Scale:
    if kind == "text":
        return TEXT_SCALE
    if x.dtype == np.uint8:
        return Scale(x.shape[1], 127.5, 127.5)  # scales bytes to −1..1
    return Scale(x.shape[1], 0.0, 1.0)


def dark_notices(name: str, x: np.ndarray) -> tuple[str, ...]:
    """Says if bytes use a small part of their range, such as 0 to 16 or 0 and 1.

    Scaled as if they went to 255, they are almost constant, and networks learn slowly.
    """
    if x.dtype != np.uint8 or not len(x):
        return ()
    step = -(-len(x) // MOST_LOOKED_AT)
    seen = x[::step]
    largest = int(seen.max())
    if largest > MOST_DARK:
        return ()
    range_seen = f"in {len(seen)} samples of --data {name} no value is above {largest}"
    advice = "networks learn faster with data.mean and data.std of the data itself"
    return (f"{range_seen}, but they are scaled as if they went to 255: {advice}",)


# Finding the reader


def read_named(
    name: str,
    directory: Path | None,
    classes: int | None,
    images: ImageRules,
    least: int,
    tables: TableRules,
) -> Source:
    """Reads the data set with the reader that its name or path asks for."""
    plain, sizes = sized(name)
    if sizes:
        window_and_stride = [int(size) for size in sizes.removeprefix(":").split(":")]
        return read_named_text(plain, directory, *window_and_stride)
    if ".py:" in name:
        path, attribute = name.rsplit(":", 1)
        file = locate(path, directory) or path
        make = from_file(f"{file}:{attribute}", is_data_function)
        return call_source(name, guarded(name, make), directory, tables)
    if name.endswith(".py"):
        file = locate(name, directory) or name
        raise without_attribute("--data", str(file), is_data_function)
    if name in SOURCES.names():
        return call_source(name, registered(name, images.skip_bad), directory, tables)
    place = locate(name, directory)
    if place is not None:
        return read_path(place, classes, images, least, tables)
    if "," in name:
        return read_list(name, directory)
    if "/" in name or name.endswith((".npz", ".txt", ".json", ".csv", ".parquet")):
        raise missing(name, directory)
    subject = "--data, unless it is a path to an .npz or to a folder of them,"
    raise unknown(subject, name, SOURCES.names())


def is_data_function(value: object) -> bool:
    """Whether this may be what a file offers as --data: a function that it defines."""
    return inspect.isfunction(value) and value.__module__.startswith(EXTENSION)


def guarded(name: str, make: Any) -> Any:
    """A function of a user's file, whose errors become one sentence."""
    if not callable(make):
        return make

    def guarded_make(directory: Path | None) -> Any:
        try:
            return make(directory)
        except (FedloomError, OSError):
            raise
        except Exception as error:
            rule = f"--data {name} must return a Source"
            raise FedloomError(rule, raised(error), "fix it; --debug shows where") from error

    return guarded_make


def registered(name: str, skip_bad: bool) -> Any:
    """Returns the function that makes the data set of this name.

    With `skip_bad` it leaves out files that cannot be read, if it can.
    """
    make = SOURCES.get(name)
    if skip_bad and callable(make) and "skip_bad" in inspect.signature(make).parameters:
        return partial(make, skip_bad=True)
    return make


def table_named(name: str, directory: Path | None = None) -> Table | None:
    """Reads the table of this name or path. None: it is no table."""
    from fedloom.data.readers import table_files

    if name in SOURCES.names():
        make = SOURCES.get(name)
        if not callable(make):
            return None
        if inspect.signature(make).return_annotation not in (Table, "Table"):
            return None
        table: Table = make(directory)
        return table
    place = locate(name, directory)
    if place is None or not place.is_file() or not table_files.is_table(place):
        return None
    return table_files.read_table(place, USUAL)


def open_table(name: str, directory: Path | None = None) -> Table:
    """Reads the table of this name or path, and refuses anything else."""
    table = table_named(name, directory)
    if table is not None:
        return table
    if name not in SOURCES.names() and locate(name, directory) is None:
        raise missing(name, directory)
    rule = f"--data {name} must be one table, as the run's data was"
    raise FedloomError(rule, "it is no table", "give a .csv or .parquet with the same columns")


def read_named_text(
    name: str,
    directory: Path | None,
    window: int,
    stride: int | None = None,
) -> Source:
    """Reads a registered text or a text file with this window, and perhaps this stride."""
    from fedloom.data.readers import text

    is_name = name in SOURCES.names()
    if is_name:
        make = SOURCES.get(name)
        if "window" in inspect.signature(make).parameters:
            return call_source(name, lambda folder: make(folder, window, stride), directory)
    path = locate(name, directory)
    if not is_name and path is not None and path.suffix.lower() == ".txt":
        return text.read_text(path, window, stride)
    rule = f"--data {name} with a window after its name must be a text file or a registered text"
    problem = "there is no such thing"
    if is_name or path is not None:
        problem = "it is neither"
    raise FedloomError(rule, problem, "leave the numbers out")


def read_path(
    path: Path,
    classes: int | None,
    images: ImageRules = AS_THEY_ARE,
    least: int = LEAST_CLASSES,
    tables: TableRules = USUAL,
) -> Source:
    """Chooses the reader by file names. Each reader checks the content before it trusts a name."""
    from fedloom.data.readers import cifar, idx, leaf, npz, speech, table, table_files, text, tree

    if idx.is_idx(path):
        return idx.read_path(path)
    if leaf.is_leaf(path):
        return leaf.read_path(path)
    if path.suffix.lower() == ".txt":
        return text.read_text(path)
    if path.is_dir() and speech.holds_wav(path):
        return speech.read_tree(path, skip_bad=images.skip_bad, least=least)
    if path.is_dir() and any(path.glob("*.npz")):
        return npz.read_folder(path, classes)
    if path.is_dir() and table_files.holds_tables(path):
        return table_files.read_folder(path, tables)
    if path.is_dir():
        return tree.read_folder(path, images)
    if table_files.is_table(path):
        return table_files.read_file(path, tables)
    if path.suffix.lower() == ".csv":
        return table.read_csv(path, images)
    if cifar.is_batch(path):
        return cifar.read_files([path])
    if path.suffix.lower() == ".npz" or npz.holds_arrays(path):
        return npz.read_file(path, classes, least)
    raise unsupported(path)


def unsupported(path: Path) -> FedloomError:
    from fedloom.data.readers.bad_files import unknown_format
    from fedloom.data.readers.image_files import is_picture

    rule = f"--data {path} must be in a supported format"
    if is_picture(path.name):
        advice = "give the folder that holds the class folders, or a .csv of files and labels"
        return FedloomError(rule, "it is one image, without a label", advice)
    return FedloomError(rule, f"it has {unknown_format(path.name)}", f"give {FORMATS}")


def read_list(names: str, directory: Path | None) -> Source:
    """Reads a comma-separated list of CIFAR files, in the order given."""
    from fedloom.data.readers import cifar

    files: list[Path] = []
    for name in names.split(","):
        file = locate(name.strip(), directory)
        if file is None or not name.strip():
            raise missing(name.strip(), directory)
        if not cifar.is_batch(file):
            rule = "a comma-separated --data must list files of CIFAR's binary version"
            advice = "name .bin files, or one .npz or folder"
            raise FedloomError(rule, f"{name} is not one", advice)
        files.append(file)
    return cifar.read_files(files)


def call_source(
    name: str,
    make: Callable[[Path | None], Any],
    directory: Path | None,
    tables: TableRules = USUAL,
) -> Source:
    """Calls the function of a data set with this folder, or with the one it was fetched to."""
    result: Any = make
    if callable(make):
        result = make(directory or fetched(name))
    if isinstance(result, Table):
        result = one_table(name, result, tables)
    if not callable(make) or not isinstance(result, Source):
        rule = f"--data {name} must be a callable (directory) -> Source"
        problem = f"got {type(result).__name__}"
        raise FedloomError(rule, problem, "return fedloom.data.sources.Source(name, x, y)")
    return result


# Names and paths


def reference(name: str) -> str:
    """Returns `file.py:Name` with its full path, and any other name as it is.

    A .json stays too, unlike that of a network: it may also lie under --data-dir.
    """
    if ".py:" in name:
        return absolute(name)
    return name


def sized(name: str) -> Sized:
    """Splits `play.txt:40:10` into `play.txt` and `:40:10`."""
    match = re.fullmatch(r"(.+?)((?::\d+){1,2})", name)
    if match is None:
        return Sized(name, "")
    return Sized(match[1], match[2])


def locate(name: str, directory: Path | None) -> Path | None:
    """Returns the file or folder of this name, looked up under `directory` too, if there is one.

    Pipes and devices do not count: reading them could block or never end.
    """
    path = Path(name).expanduser()
    places = [path]
    if directory is not None:
        places.append(directory / path)
    try:
        for place in places:
            if place.is_file() or place.is_dir():
                return place
    except OSError:  # a list of files can be longer than a path may be
        return None
    return None


def missing(name: str, directory: Path | None) -> FedloomError:
    rule = f"--data {name} must be a file or a folder"
    problem = "there is none"
    if directory is not None:
        problem = f"there is none, nor under {directory}"
    if Path(name).parent == cache.folder():
        again = "give the same torch data set to fedloom.search again, which writes it again"
        return FedloomError(rule, problem, f"the cache was emptied: {again}")
    return FedloomError(rule, problem, "check the path and --data-dir")
