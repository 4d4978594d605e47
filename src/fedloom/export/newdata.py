"""New samples for a finished run's models: any data that FedLoom reads, with or without labels."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedloom.config.models import Fit
from fedloom.data.checks import images
from fedloom.data.image_rules import ImageRules
from fedloom.data.mapped_clients import torch_copy
from fedloom.data.partitions.tint import tint
from fedloom.data.readers.image_files import is_picture
from fedloom.data.readers.npz import read_small, unreadable
from fedloom.data.readers.pictures import decoded
from fedloom.data.readers.tree import entries
from fedloom.data.resizing import resized, resized_source
from fedloom.data.source import SkippedFile, Source
from fedloom.data.sources import SOURCES, locate, open_source, open_table, reference
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.rules import TableRules, matching_column
from fedloom.data.tables.samples import one_table
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.types import Task

FAR = 5.0  # the largest accepted distance of the new average from the old, in standard deviations


class NewSamples(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor | None  # labels, numbered as in the run; None: there are none
    skipped: tuple[SkippedFile, ...] = ()  # files that could not be read
    files: tuple[str, ...] = ()  # the image file of each sample, if the data was given as files


@dataclass(frozen=True)
class Expected:
    """Properties of a run's samples, which new samples must have too."""

    task: Task
    resize: int | None = None  # the side to which images are resized; None: they are not
    fit: Fit = "stretch"  # what is done with images that are not square
    dtype: np.dtype | None = None  # of the values that the run was trained on; None: unknown here
    is_tinted: bool = False  # whether grey images are given a colour
    encoding: Encoding | None = None  # of a table; None: the data is not a table


def expected_by(finished: Finished) -> Expected:
    trained = finished.source.x
    dtype = None
    if len(trained) > 0:  # a federation's server has no samples
        dtype = trained.dtype
    return Expected(
        finished.task,
        finished.resize,
        finished.fit,
        dtype,
        finished.is_tinted,
        finished.encoding,
    )


def new_samples(
    expected: Expected,
    data: str,
    directory: Path | None,
    *,
    skip_bad: bool = False,
) -> NewSamples:
    """Read new samples, with labels if there are any."""
    if expected.encoding is not None:
        return rows_of_table(expected, expected.encoding, data, directory)
    if expected.task.kind == "image":
        files = unlabelled_files(data, directory)
        if files:
            return samples_of_files(expected, data, files, skip_bad=skip_bad)
    images_alone = unlabelled(data, directory)
    if images_alone is None or expected.task.kind == "text":
        return labelled_samples(expected, data, directory, skip_bad=skip_bad)
    if expected.resize is not None:
        images_alone = resized(images_alone, expected.resize, expected.fit)
    images_alone = coloured(images_alone, expected)
    check_shape(data, images_alone, expected.task)
    check_units(data, images_alone, expected)
    return NewSamples(torch_copy(images_alone), None)


def rows_of_table(
    expected: Expected, encoding: Encoding, data: str, directory: Path | None
) -> NewSamples:
    """Read rows with the run's columns, in any order. The labels may be missing or empty."""
    table = open_table(data, directory)
    x = torch_copy(encoding.encode(table))
    label = matching_column(encoding.label, list(table.columns))
    if label is None or table.columns[label].missing.all():
        return NewSamples(x, None)
    rules = TableRules(agreed=encoding, classes=expected.task.labels)
    source = one_table(data, table, rules)
    if encoding.target is None and source.labels != expected.task.labels:
        strange = next(name for name in source.labels if name not in expected.task.labels)
        rule = f"the labels of --data {data} must be among the run's"
        raise FedloomError(rule, f"{strange!r} is not", "rename it, or leave the labels out")
    return NewSamples(x, torch_copy(source.y))


def unlabelled_files(data: str, directory: Path | None) -> list[str]:
    """The image files that have no labels: one file, or those of a folder without class folders."""
    place = locate(data, directory)
    if place is None or data in SOURCES.names():
        return []
    if place.is_file() and is_picture(str(place)):
        return [str(place)]
    if not place.is_dir():
        return []
    inside = entries(str(place))
    holds_arrays = any(file.lower().endswith(".npz") for file in inside.files)
    if inside.folders or holds_arrays:
        return []
    return [file for file in inside.files if is_picture(file)]


def samples_of_files(
    expected: Expected,
    data: str,
    files: Sequence[str],
    *,
    skip_bad: bool = False,
) -> NewSamples:
    """Read image files without labels, each of which is one sample."""
    pictures = decoded(files, image_rules(expected, skip_bad))
    images_alone = coloured(pictures.x, expected)
    check_shape(data, images_alone, expected.task)
    check_units(data, images_alone, expected)
    names = tuple(files[place] for place in pictures.places)
    return NewSamples(torch_copy(images_alone), None, pictures.skipped, names)


def labelled_samples(
    expected: Expected,
    data: str,
    directory: Path | None,
    *,
    skip_bad: bool = False,
) -> NewSamples:
    """Read samples with labels, and refuse those that the network was not trained for."""
    task = expected.task
    source = open_source(reference(data), directory, images=image_rules(expected, skip_bad))
    if expected.resize is not None and source.kind == "image":
        source = resized_source(source, expected.resize, expected.fit)
    if source.kind != task.kind and "text" in (source.kind, task.kind):
        rule = f"--data {data} must be {task.kind} data as the run's is"
        raise FedloomError(rule, f"it is {source.kind}", "give samples of the same kind")
    table = classes_of(source, task)
    x = source.x
    if task.kind == "text":  # samples are made of symbols, as labels are
        x = table[source.x]
        check_numbered(data, source, source.x, table)
    else:
        x = coloured(source.x, expected)
        check_numbered(data, source, source.y, table)
    check_shape(data, x, task)
    check_units(data, x, expected)
    return NewSamples(torch_copy(x), torch_copy(table[source.y]), source.skipped)


def image_rules(expected: Expected, skip_bad: bool) -> ImageRules:
    """The rules by which the run read its own image files, which apply to new ones too.

    If the run's images have colours, grey files are accepted as well.
    """
    channels = expected.task.shape[0]
    is_colour = expected.task.kind == "image" and channels == 3 and not expected.is_tinted
    return ImageRules(expected.resize, expected.fit, skip_bad, colour=is_colour)


def coloured(images: np.ndarray, expected: Expected) -> np.ndarray:
    """Grey images, tinted as the run's `+tint` does; other images stay as they are."""
    if not expected.is_tinted or images.ndim != 4 or images.shape[1] != 1:
        return images
    tinted: np.ndarray = tint(torch_copy(images)).numpy()
    return tinted


def unlabelled(data: str, directory: Path | None) -> np.ndarray | None:
    """The samples of an .npz file that has no labels; None: the data is something else."""
    file = locate(data, directory)
    if file is None or not file.is_file() or file.suffix.lower() != ".npz":
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            if "x" not in members or "y" in members:
                return None
            x = read_small(archive, members["x"])
    except Exception as error:  # a damaged zip or array header can raise almost anything
        raise unreadable(file, error) from error
    return images(str(file), x)


def is_numbered(labels: Sequence[str]) -> bool:
    """Whether the labels are just the numbers 0, 1, 2, …"""
    return tuple(labels) == tuple(map(str, range(len(labels))))


def classes_of(source: Source, task: Task) -> np.ndarray:
    """The run's number for each label of the data, by name; -1: the run does not have the label.

    Labels that are just numbers are taken as the run's numbers.
    """
    if source.labels == task.labels:
        return np.arange(len(source.labels))
    if is_numbered(source.labels) and len(source.labels) <= len(task.labels):
        return np.arange(len(source.labels))
    places = {label: number for number, label in enumerate(task.labels)}
    return np.array([places.get(label, -1) for label in source.labels])


def check_numbered(data: str, source: Source, used: np.ndarray, table: np.ndarray) -> None:
    """Refuse labels, or symbols of a text, that the run does not have."""
    numbers = np.unique(used)
    strange = numbers[table[numbers] < 0]
    if len(strange) == 0:
        return
    names = "labels"
    advice = "rename it, or leave the labels out"
    if source.kind == "text":
        names = "symbols"
        advice = "remove it from the text"
    rule = f"the {names} of --data {data} must be among the run's"
    raise FedloomError(rule, f"{source.labels[int(strange[0])]!r} is not", advice)


def check_shape(data: str, x: np.ndarray, task: Task) -> None:
    if tuple(x.shape[1:]) == task.shape:
        return
    shape = list(task.shape)
    rule = f"samples of --data {data} must have the shape {shape} that the run was trained on"
    advice = "resize or convert them as the training data was"
    if task.kind == "text":
        advice = f"add the window to the name, as in {data}:{task.shape[0]}"
    raise FedloomError(rule, f"they have {list(x.shape[1:])}", advice)


def check_units(data: str, x: np.ndarray, expected: Expected) -> None:
    """Refuse values in other units than those of the training data.

    Bytes and fractions are easily mistaken for each other, and the network normalises its input
    with the constants of its training data.
    """
    rule = f"values of --data {data} must be in the units that the run was trained on"
    convert = "convert them as the training data was"
    as_trained = "give them as the training data was"
    task = expected.task
    if task.mean and len(x):
        usual = sum(task.mean) / len(task.mean)
        average = float(x.mean())
        if abs(average - usual) > FAR * max(task.std):
            averages = f"those were about {usual:.3g} and these {average:.3g} on average"
            raise FedloomError(rule, averages, convert)
        if expected.dtype is None and x.dtype != np.uint8 and x.max() <= 1 < usual:
            ends = f"those were about {usual:.3g} on average and these end at {x.max():.3g}"
            raise FedloomError(rule, ends, as_trained)
    if task.kind == "text" or expected.dtype is None or expected.dtype == x.dtype:
        return
    if expected.dtype == np.uint8 and float(x.max()) <= 1:
        raise FedloomError(rule, "those were bytes and these end at 1", as_trained)
    if expected.dtype != np.uint8:
        raise FedloomError(rule, "those were fractions and these are bytes", convert)
