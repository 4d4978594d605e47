"""A configuration with what it names opened and checked: the data, the split, the method's stages.

What is prepared can be run (`experiment.py`), estimated, or asked for the models of a finished run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedloom.config.models import BY_LABELS, DataConfig, Experiment
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
from fedloom.federation.server.checkpoint import Archive
from fedloom.methods import ADAPT, METHODS, recipe, searched, stages
from fedloom.nets.model import check_kind
from fedloom.networks.building import check_weights
from fedloom.records.folder import RunFolder
from fedloom.records.result import Input
from fedloom.records.warm_start import WarmStart
from fedloom.registry import absolute
from fedloom.runs.attendance import clock_read
from fedloom.runs.clusters import with_topology
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.given_paths import with_given_paths
from fedloom.runs.same_space import check_space_again, last_checkpoint
from fedloom.runs.tier_latencies import with_latencies_read
from fedloom.runs.tiers import deal_of, devices_in, devices_read, with_files_read
from fedloom.runs.warm_start import begun, kept, settled
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
    start: State | None = None  # of --init
    tiers: TierDeal | None = None  # of the devices, for methods that know them
    devices: Sequence[Device] = ()  # of the clients; empty: those of a federation are not known
    written: bytes | None = None  # config.toml of a run that was begun before
    notices: tuple[str, ...] = ()  # of what was chosen for the user

    @property
    def hold(self) -> float:
        """The share of a client's rest kept back for selecting a round, or for judging it."""
        evaluate = self.config.evaluate
        if evaluate.select == "best" or evaluate.hold_back:
            return evaluate.hold
        for stage in self.stages:
            if stage.select == "best":
                return evaluate.hold
        return 0.0


def prepare(config: Experiment, split: Split | None = None, start: State | None = None) -> Prepared:
    """Open the data, make or read the split, and build the method's stages.

    `start` is what --init gives. It is read from the old run where it is asked for and not given.
    """
    config.check_data_at_hand("this", "leave --federation out, or use `fedloom run`")
    config = with_given_paths(config)
    method = absolute(config.method)
    options = resolve_options(method, options_asked_for(config))
    check_device(config.engine.device)
    agreed = None
    classes: Sequence[str] = ()
    if config.init is not None:
        if start is None:
            start = begun(config.init, config.method)
        before = WarmStart.read(start.meta).input
        agreed = before.encoding
        if agreed is not None:
            classes = before.labels
        partition = asked_partition(config.data) if split is None else split.partition
        changes = {
            "data": as_before(config.data, before, parse(partition)),
            "init": settled(config.init, start),
        }
        config = config.model_copy(update=changes)
    source = configured_source(config.data, agreed, classes)
    check_numbers_foretold(method, config, source)
    data = with_usual_partition(config.data, source)
    notices = partition_notices(config.data, data, source)
    if split is not None and data != config.data:  # of a comparison, or of a run that is named
        data = data.model_copy(update={"partition": split.partition})
    config = config.model_copy(update={"data": data})
    if split is None:
        split = configured_split(config.data, config.seed, source)
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
    table = devices_read(config.devices, len(split), config.seed)
    devices = devices_in(table, len(split), config.seed)  # tiers may be by their speed
    read = {"devices": table, "clock": clock_read(config.clock)}
    config = with_topology(config.model_copy(update=read), options, len(split))
    tiers = None
    tiered = recipe(method).tiered
    if tiered is not None:
        check_searched(searched(task), task)  # before its costs become limits
        asked = with_latencies_read(with_files_read(config.tiers), config.evaluate.profile, task)
        config = config.model_copy(update={"tiers": asked})
        tiers = deal_of(config.tiers, tiered(task), len(split), config.seed, devices)
    clock_devices = devices or devices_of(EQUAL, len(split), config.seed)
    return Prepared(
        config,
        source,
        split,
        task,
        stages(task),
        start,
        tiers,
        clock_devices,
        notices=notices,
    )


def check_space_for_table(task: Task) -> None:
    """A table has nothing to search in: spaces are for maps and for text."""
    if task.kind not in TABLES:
        return
    space = searched(task)
    if space is not None:
        name = f"the search space {space.space.family}"
        advice = "use a method that trains a fixed network"
        check_kind(name, task.kind, space.space.kinds, advice)


def check_numbers_foretold(method: str, config: Experiment, source: Source) -> None:
    """Whether a run can do without classes, if its labels are numbers."""
    if source.kind != "regression":
        return
    name = method.rpartition("/")[2]
    if not recipe(method).foretells_numbers:
        able = []
        for other in sorted(METHODS.builtin):
            if other != ADAPT and recipe(other).foretells_numbers:
                able.append(other)
        raise FedloomError(
            f"{name} must have labels that are classes",
            f"those of {source.name} are numbers",
            f"use one of {', '.join(able)}, or --task classification",
        )
    if config.topology.clusters in BY_LABELS:
        raise FedloomError(
            f"--clusters {config.topology.clusters} must be for labels that are classes",
            f"those of {source.name} are numbers",
            "try --clusters random",
        )


def partition_notices(asked: DataConfig, data: DataConfig, source: Source) -> tuple[str, ...]:
    """What a person should hear who did not ask for the partition that the data has."""
    if data.partition == asked.partition:
        return ()
    rule = f"(--partition {data.partition})"
    if source.groups is None:
        text = "labels that are numbers have no classes to deal out unevenly"
        return (f"{text}: clients have equal random shares {rule}",)
    count = len(source.group_names)
    if count == 1:
        return (f"the data comes from one {source.grouping}, which is the only client {rule}",)
    groups = f"the data comes in {count} {source.grouping}s"
    if data.clients not in (None, count):
        joined = f"joined or cut into {data.clients}"
        return (f"{groups}, {joined} {rule}; another partition would mix them",)
    return (f"{groups} and stays so {rule}; another partition would mix them",)


def as_before(data: DataConfig, before: Input, rule: Rule) -> DataConfig:
    """Weights go with the size and normalisation they were trained with, and as many classes."""
    data = sized_as(data, before)
    if before.encoding is not None:  # it has the constants, and classes go with it
        return data
    labels = configured_source(data).labels
    are_numbers = labels == tuple(str(number) for number in range(len(labels)))
    has_fewer = are_numbers and len(labels) < len(before.labels)
    changes: dict[str, Any] = dict(normalised_as(data, before, rule))
    if has_fewer and data.classes is None:
        changes["classes"] = len(before.labels)
    return data.model_copy(update=changes)


def sized_as(data: DataConfig, before: Input) -> DataConfig:
    """With images of the size of the run that --init names, unless the user gave another."""
    if before.resize is None or data.resize is not None:
        return data
    return data.model_copy(update={"resize": before.resize, "fit": before.fit})


def normalised_as(data: DataConfig, before: Input, rule: Rule) -> dict[str, list[float]]:
    """The constants of the run that --init names, unless the user gave others; text has none.

    Those of tinted images begin with those of the grey ones, which are what the data has.
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
    """The user's options, and what the data that the user described mean for the method."""
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
            "--device must be torch's name of a device",
            f"got {device}",
            f"did you mean --devices {device}",
        )
    try:
        torch.zeros(1, device=device).item()  # "meta" has no values
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        rule = f"--device {device} must be usable here"
        raise FedloomError(rule, reason, "try --device cpu") from None


def reopen(folder: RunFolder) -> Prepared:
    """A run that was started before, with the split it was started with."""
    prepared = prepared_again(folder)
    check_space_again(prepared.task, last_checkpoint(Archive(folder.path)))
    return replace(prepared, written=folder.config_bytes())


def prepared_again(folder: RunFolder) -> Prepared:
    split = Split.load(folder.path / "split.json")
    return prepare(config_of(folder), split, kept(folder))


def pooled_share(prepared: Prepared) -> float | None:
    """Of each client's training part, what the server of this simulation sees."""
    task = prepared.task
    return recipe(task.method).options.model_validate(dict(task.options)).pooled_share
