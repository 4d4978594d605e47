"""The earlier runs that a run began with (--init), and the samples that they were trained on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fedloom.config.models import Experiment
from fedloom.data.configured import configured_source
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.partition import Rule, parse
from fedloom.data.partitions.tint import form_of
from fedloom.data.source import Source
from fedloom.data.split import ARRAYS, Split
from fedloom.errors import FedloomError
from fedloom.export.finished import EarlierRun
from fedloom.federation.protocol.packing import WireError
from fedloom.records.folder import RunFolder
from fedloom.runs.configure import config_of
from fedloom.runs.warm_start import read_start
from fedloom.types import Task


def earlier_runs(config: Experiment, task: Task) -> Iterator[EarlierRun]:
    """The --init run, the one that it began with, and so on while they still exist.

    `task` is that of the latest run: only samples of the same form can be compared with its own.
    """
    while config.init is not None:
        path = Path(config.init.run)
        try:
            # This refuses a folder that now has another run's weights.
            read_start(config.init, config.method)
            folder = RunFolder.open(path)
            before = config_of(folder)
        except (FedloomError, OSError, WireError):
            yield EarlierRun(path, None)
            return
        yield EarlierRun(path, training_samples(folder, before, task))
        config = before


def training_samples(
    folder: RunFolder,
    config: Experiment,
    task: Task,
) -> Iterator[torch.Tensor] | None:
    """The samples that a run may train on; None if they are not at hand, or of another form."""
    if config.is_federated:
        return None
    try:
        split = Split.load(folder.path / "split.json")
        source = configured_source(config.data)
        clients = clients_in(source, split)
    except (FedloomError, OSError):
        return None
    if not has_form(source, parse(split.partition), task):
        return None
    return parts_of(clients)


def has_form(source: Source, rule: Rule, task: Task) -> bool:
    """Whether samples are comparable: images of the same size, or text of the same alphabet."""
    if (source.kind, form_of(rule, source).shape) != (task.kind, task.shape):
        return False
    return source.kind != "text" or source.labels == task.labels


def parts_of(clients: MappedClients) -> Iterator[torch.Tensor]:
    for client in range(len(clients)):
        yield clients.client(client).train.x
    server = clients.server()
    if server is not None:
        yield server.x


def clients_in(source: Source, split: Split) -> MappedClients:
    """The clients' samples, where they are in the source: nothing is copied or written."""
    split.check(source)
    arrays: dict[str, np.ndarray] = {"x": source.x, "y": source.y}
    for name in ARRAYS:
        arrays[name] = getattr(split, name)
    return MappedClients(arrays, split.partition)
