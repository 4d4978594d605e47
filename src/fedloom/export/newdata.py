"""New samples for a finished run's models: any data the project reads, with or without labels, in its own terms."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedloom.data.checks import images
from fedloom.data.mapped_clients import torch_copy
from fedloom.data.readers.npz import read_small, unreadable
from fedloom.data.source import Source
from fedloom.data.sources import locate, open_source, reference
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.types import Task

FAR = 5.0  # standard deviations between the averages of old samples and new ones


class NewSamples(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor | None  # class numbers of the run; None: there are no labels


def new_samples(finished: Finished, data: str, directory: Path | None) -> NewSamples:
    """Checked: what would go through the network as nonsense is refused."""
    task = finished.task
    bare = unlabelled(data, directory)
    if bare is not None and task.kind != "text":
        x, y = bare, None
    else:
        source = open_source(reference(data), directory)
        if source.kind != task.kind and "text" in (source.kind, task.kind):
            must, todo = f"--data {data} must be {task.kind} data as the run's is", "give samples of the same kind"
            raise FedloomError(must, f"it is {source.kind}", todo)
        table = classes_of(data, source, task)
        x, y = (table[source.x] if task.kind == "text" else source.x), table[source.y]
        unknown(data, source, source.x if task.kind == "text" else source.y, table)
    check_shape(data, x, task)
    check_units(data, x, finished)
    return NewSamples(torch_copy(x), None if y is None else torch_copy(y))


def unlabelled(data: str, directory: Path | None) -> np.ndarray | None:
    """The samples of an .npz that has no labels; None: it is something else."""
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
    return tuple(labels) == tuple(str(number) for number in range(len(labels)))


def classes_of(data: str, source: Source, task: Task) -> np.ndarray:
    """The run's number for each label of the data, by name; -1: the run does not know it. Bare numbers are numbers."""
    if source.labels == task.labels or (is_numbered(source.labels) and len(source.labels) <= len(task.labels)):
        return np.arange(len(source.labels))
    places = {label: number for number, label in enumerate(task.labels)}
    return np.array([places.get(label, -1) for label in source.labels])


def unknown(data: str, source: Source, used: np.ndarray, table: np.ndarray) -> None:
    """Refuses what the run has no number for: a label, or a symbol of a text."""
    strange = np.unique(used)[table[np.unique(used)] < 0]
    if len(strange):
        what, todo = ("symbols", "take it out") if source.kind == "text" else ("labels", "rename it, or leave them out")
        must = f"the {what} of --data {data} must be among the run's"
        raise FedloomError(must, f"{source.labels[int(strange[0])]!r} is not", todo)


def check_shape(data: str, x: np.ndarray, task: Task) -> None:
    if tuple(x.shape[1:]) != task.shape:
        must = f"samples of --data {data} must have the shape {list(task.shape)} that the run was trained on"
        todo = "resize or convert them as the training data was"
        if task.kind == "text":
            todo = f"say the window behind the name, as in {data}:{task.shape[0]}"
        raise FedloomError(must, f"they have {list(x.shape[1:])}", todo)


def check_units(data: str, x: np.ndarray, finished: Finished) -> None:
    """Bytes and fractions are easily mistaken for each other; the network normalises what it was trained on."""
    trained, task = finished.source.x, finished.task
    if task.mean and len(x):
        usual, width, found = sum(task.mean) / len(task.mean), FAR * max(task.std), float(x.mean())
        if abs(found - usual) > width:
            must = f"values of --data {data} must be in the units that the run was trained on"
            far = f"those were about {usual:.3g} and these {found:.3g} on average"
            raise FedloomError(must, far, "convert them as the training data was")
    if finished.task.kind == "text" or len(trained) == 0 or (trained.dtype == x.dtype):
        return
    must = f"values of --data {data} must be in the units that the run was trained on"
    if trained.dtype == np.uint8 and float(x.max()) <= 1:
        raise FedloomError(must, "those were bytes and these end at 1", "give them as the training data was")
    if trained.dtype != np.uint8:
        raise FedloomError(must, "those were fractions and these are bytes", "convert them as the training data was")
