"""Preparing a run: everything that a configuration names is opened and checked.

The result has the data, the split and the method's stages. It can be run (`experiment.py`),
estimated, or used to rebuild the models of a finished run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedloom.config.models import DataConfig, Experiment, InitConfig
from fedloom.config.topology import BY_LABELS
from fedloom.cost.devices import EQUAL, PHONES, Device, devices_of, is_file
from fedloom.data.checks import TABLES
from fedloom.data.configured import (
    asked_partition,
    configured_source,
    configured_split,
    with_usual_partition,
)
from fedloom.data.partition import Rule, parse
from fedloom.data.partitions.changes import check_changes
from fedloom.data.partitions.tint import form_of
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.archive import Archive
from fedloom.methods import ADAPT, METHODS, recipe, searched, stages
from fedloom.nets.model import check_kind
from fedloom.networks.building import check_weights
from fedloom.records.folder import RunFolder
from fedloom.records.result_parts import Input
from fedloom.records.warm_start import WarmStart
from fedloom.registry import absolute
from fedloom.runs.attendance import clock_read
from fedloom.runs.clusters import with_topology
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.given_paths import with_given_paths
from fedloom.runs.same_space import check_space_again, last_checkpoint
from fedloom.runs.tier_latencies import with_latencies_read
from fedloom.runs.tiers import deal_of, devices_in, devices_read, with_files_read
from fedloom.runs.warm_start import load_start, read_start, stored_config
from fedloom.spaces.checking import check_searched
from fedloom.types import State, Task, TierDeal


@dataclass(frozen=True)
class Prepared:
    """An experiment whose every choice has been checked, before anything is trained."""

    config: Experiment
    source: Source
    split: Split
    task: Task
    stages: tuple[Stage, ...]
    start: State | None = None  # what --init gives
    tiers: TierDeal | None = None  # device tiers, for methods that use them
    devices: Sequence[Device] = ()  # of the clients; empty in a federation, where they are unknown
    written: bytes | None = None  # config.toml of a run that was started before
    notices: tuple[str, ...] = ()  # what was chosen for the user

    @property
    def hold(self) -> float:
        """The share of a client's training data kept to select a round or to evaluate it."""
        evaluate = self.config.evaluate
        if evaluate.select == "best" or evaluate.hold_back:
            return evaluate.hold
        for stage in self.stages:
            if stage.select == "best":
                return evaluate.hold
        return 0.0

    @property
    def training_samples(self) -> list[int]:
        """How many samples each client trains on: those neither for testing nor held back."""
        counts = np.diff(self.split.offsets) - self.split.tests
        return [int(count) - round(self.hold * int(count)) for count in counts]


def prepare(config: Experiment, split: Split | None = None, start: State | None = None) -> Prepared:
    """Open the data, make or read the split, and build the method's stages.

    `start` is the state that --init gives. If it is not passed, it is read from the run that --init
    names.
    """
    config.check_data_at_hand("this", "leave --federation out, or use `fedloom run`")
    config = with_given_paths(config)
    method = absolute(config.method)
    resolve_options(method, options_asked_for(config))  # wrong options fail before data is read
    check_device(config.engine.device)
    input_before = None  # of the run that --init names
    if config.init is not None:
        if start is None:
            start = read_start(config.init, config.method)
        input_before = WarmStart.read(start.meta).input
        config = with_start(config, config.init, start, input_before, split)
    source = source_for(config.data, input_before)
    check_labels_for_method(method, config, source)
    data = with_usual_partition(config.data, source)
    notices = partition_notices(config.data, data, source)
    if split is None:
        split = configured_split(data, config.seed, source)
    elif data != config.data:  # the split of a comparison or of another run
        data = data.model_copy(update={"partition": split.partition})
    config = config.model_copy(update={"data": data})
    task = task_on(source, split, config)
    clients = len(split)
    config = with_clock_and_topology(config, task, clients)
    devices = devices_in(config.devices, clients, config.seed)
    tiers = None
    tiered = recipe(method).tiered
    if tiered is not None:
        check_searched(searched(task), task)  # before the space's costs become limits
        config = with_tiers_read(config, task)
        # Where devices are given, their speeds decide about tiers.
        tiers = deal_of(config.tiers, tiered(task), clients, config.seed, devices)
    return Prepared(
        config=config,
        source=source,
        split=split,
        task=task,
        stages=stages(task),
        start=start,
        tiers=tiers,
        devices=devices or devices_of(EQUAL, clients, config.seed),
        notices=notices,
    )


def with_start(
    config: Experiment,
    init: InitConfig,
    start: State,
    input_before: Input,
    split: Split | None,
) -> Experiment:
    """The configuration with data as the run of --init had it, and with the hash of its weights."""
    partition = asked_partition(config.data) if split is None else split.partition
    changes = {
        "data": as_before(config.data, input_before, parse(partition)),
        "init": stored_config(init, start),
    }
    return config.model_copy(update=changes)


def source_for(data: DataConfig, input_before: Input | None) -> Source:
    """Open the data; a table is encoded as it was in the run of --init."""
    if input_before is None or input_before.encoding is None:
        return configured_source(data)
    return configured_source(data, input_before.encoding, input_before.labels)


def task_on(source: Source, split: Split, config: Experiment) -> Task:
    """The task that the method has on this data, with all of its options."""
    method = absolute(config.method)
    rule = parse(split.partition)
    check_changes(rule, source)
    form = form_of(rule, source)
    options = resolve_options(method, options_asked_for(config, source.kind, form.shape))
    task = Task(
        method=method,
        options=options,
        kind=source.kind,
        shape=form.shape,
        labels=source.labels,
        seed=config.seed,
        mean=form.mean,
        std=form.std,
        target=source.target,
    )
    check_space_for_table(task)
    if "width" in options:
        check_weights(task, options.get("network"), options["width"])
    return task


def with_clock_and_topology(config: Experiment, task: Task, clients: int) -> Experiment:
    """The configuration with the content of its files about devices, clock and clusters."""
    files_read = {
        "devices": devices_read(config.devices, clients, config.seed),
        "clock": clock_read(config.clock),
    }
    return with_topology(config.model_copy(update=files_read), task.options, clients)


def with_tiers_read(config: Experiment, task: Task) -> Experiment:
    """The configuration with the content of its files about tiers, latencies included."""
    tiers = with_files_read(config.tiers)
    tiers = with_latencies_read(tiers, config.evaluate.profile, task)
    return config.model_copy(update={"tiers": tiers})


def check_space_for_table(task: Task) -> None:
    """Refuse a search on a table: search spaces are for feature maps and for text."""
    if task.kind not in TABLES:
        return
    space = searched(task)
    if space is not None:
        name = f"the search space {space.space.family}"
        advice = "use a method that trains a fixed network"
        check_kind(name, task.kind, space.space.kinds, advice)


def check_labels_for_method(method: str, config: Experiment, source: Source) -> None:
    """If the labels are numbers, refuse methods and clusterings that need classes."""
    if source.kind != "regression":
        return
    name = method.rpartition("/")[2]
    if not recipe(method).supports_regression:
        alternatives = []
        for other in sorted(METHODS.builtin):
            if other != ADAPT and recipe(other).supports_regression:
                alternatives.append(other)
        raise FedloomError(
            f"{name} must have labels that are classes",
            f"those of {source.name} are numbers",
            f"use one of {', '.join(alternatives)}, or --task classification",
        )
    if config.topology.clusters in BY_LABELS:
        raise FedloomError(
            f"--clusters {config.topology.clusters} must be used with labels that are classes",
            f"those of {source.name} are numbers",
            "try --clusters random",
        )


def partition_notices(asked: DataConfig, data: DataConfig, source: Source) -> tuple[str, ...]:
    """Tell users that the data decided the partition, if they did not ask for it."""
    if data.partition == asked.partition:
        return ()
    rule = f"(--partition {data.partition})"
    if source.groups is None:
        text = "labels that are numbers have no classes that could be distributed unevenly"
        return (f"{text}: clients have equal random shares {rule}",)
    count = len(source.group_names)
    if count == 1:
        return (f"the data comes from one {source.grouping}, which is the only client {rule}",)
    groups = f"the data comes in {count} {source.grouping}s"
    if data.clients not in (None, count):
        regrouped = f"joined or cut into {data.clients}"
        return (f"{groups}, {regrouped} {rule}; another partition would mix them",)
    return (f"{groups} and stays so {rule}; another partition would mix them",)


def as_before(data: DataConfig, before: Input, rule: Rule) -> DataConfig:
    """The data with the image size, normalisation and classes that the weights are trained for."""
    data = sized_as(data, before)
    if before.encoding is not None:  # a table's encoding has the constants and the classes
        return data
    labels = configured_source(data).labels
    are_numbers = labels == tuple(str(number) for number in range(len(labels)))
    has_fewer = are_numbers and len(labels) < len(before.labels)
    changes: dict[str, Any] = dict(normalised_as(data, before, rule))
    if has_fewer and data.classes is None:
        changes["classes"] = len(before.labels)
    return data.model_copy(update=changes)


def sized_as(data: DataConfig, before: Input) -> DataConfig:
    """The data with the image size of the run that --init names, unless the user gave another."""
    if before.resize is None or data.resize is not None:
        return data
    return data.model_copy(update={"resize": before.resize, "fit": before.fit})


def normalised_as(data: DataConfig, before: Input, rule: Rule) -> dict[str, list[float]]:
    """The normalisation of the run that --init names, unless the user gave another; text has none.

    The constants of tinted images begin with those of the grey images, which the data consists of.
    """
    channels = 1 if rule.has_tint else len(before.mean)
    constants = {}
    if before.mean and data.mean is None:
        constants["mean"] = list(before.mean)[:channels]
    if before.std and data.std is None:
        constants["std"] = list(before.std)[:channels]
    return constants


def options_asked_for(
    config: Experiment,
    kind: str | None = None,
    shape: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The user's options, and those that follow from the data that the user described."""
    schema = recipe(absolute(config.method)).options
    implied: dict[str, Any] = {}
    if config.data.mean is not None or config.data.std is not None:
        implied.update(schema.for_given_constants())
    if config.data.server_share > 0:
        implied.update(schema.for_server_data())
    implied.update(schema.for_data(config.options, kind, shape))
    return {**implied, **config.options}


def check_device(device: str) -> None:
    if device in (EQUAL, PHONES) or is_file(device):
        raise FedloomError(
            "--device must be a device that torch knows",
            f"got {device}",
            f"did you mean --devices {device}",
        )
    try:
        torch.zeros(1, device=device).item()  # .item() refuses "meta", whose tensors have no values
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        rule = f"--device {device} must be usable here"
        raise FedloomError(rule, reason, "try --device cpu") from None


def reopen(folder: RunFolder) -> Prepared:
    """Prepare a run that was started before, with the split that it was started with."""
    prepared = prepared_again(folder)
    check_space_again(prepared.task, last_checkpoint(Archive(folder.path)))
    return replace(prepared, written=folder.config_bytes())


def prepared_again(folder: RunFolder) -> Prepared:
    split = Split.load(folder.path / "split.json")
    return prepare(config_of(folder), split, load_start(folder))


def pooled_share(prepared: Prepared) -> float | None:
    """The share of each client's training part that the server of this simulation sees."""
    task = prepared.task
    return recipe(task.method).options.model_validate(dict(task.options)).pooled_share
