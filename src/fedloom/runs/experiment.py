"""From a configuration to a finished run: source → partition → split → clients → rounds → result."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedloom.allocator import settle
from fedloom.config.models import DataConfig, Experiment
from fedloom.data.augmenting.augment import augmenter
from fedloom.data.configured import configured_source, configured_split, found_anywhere
from fedloom.data.mapped_clients import MappedClients, to_samples
from fedloom.data.parts import size_of_held
from fedloom.data.samples import Samples
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.engines import flower
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.engines.local import LocalEngine, Pool
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.checkpoint import Archive
from fedloom.federation.server.events import Listener, Notice
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.loop import Loop, Outcome, check_stages
from fedloom.federation.server.parcels import Engine
from fedloom.federation.server.settings import Registered, Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import parse_topology
from fedloom.learning.training import SgdOptions
from fedloom.methods import recipe, stages
from fedloom.methods.local import LocalOptions
from fedloom.nets.model import check_weights
from fedloom.records.folder import RunFolder, logging_to, making
from fedloom.registry import absolute
from fedloom.report import classes, sinks
from fedloom.runs import profiles
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.same_space import check_space_again, last_checkpoint
from fedloom.runs.warm_start import begun, keep, kept, seen_before, settled
from fedloom.spaces.checking import check_space_of
from fedloom.threads import one_thread
from fedloom.types import Setup, State, Task

log = logging.getLogger("fedloom")


@dataclass(frozen=True)
class Prepared:
    """An experiment whose every choice has been checked, before anything is trained."""

    config: Experiment
    source: Source
    split: Split
    task: Task
    stages: tuple[Stage, ...]
    start: State | None = None  # of --init
    written: bytes | None = None  # config.toml of a run that was begun before

    @property
    def hold(self) -> float:
        """The share of a client's rest kept back for selecting a round."""
        best = self.config.evaluate.select == "best" or any(stage.select == "best" for stage in self.stages)
        return self.config.evaluate.hold if best else 0.0


def prepare(config: Experiment, split: Split | None = None, start: State | None = None) -> Prepared:
    """Open the data, make or read the split, and build the method's stages. `start` is read if --init asks for it."""
    if config.is_federated:
        found = f"the sites of {config.engine.federation} keep theirs"
        raise FedloomError("the data must be at hand for this", found, "leave --federation out, or use `fedloom run`")
    method = absolute(config.method)
    options = resolve_options(method, with_given_constants(config))
    check_device(config.engine.device)
    if config.init is not None:
        start = begun(config.init, config.method) if start is None else start
        config = config.model_copy(update={"data": as_before(config.data, start), "init": settled(config.init, start)})
    data = config.data
    source = configured_source(data)
    if split is None:
        split = configured_split(data, config.seed, source)
    shape = tuple(int(size) for size in source.x.shape[1:])
    task = Task(method, options, source.kind, shape, source.labels, config.seed, source.mean, source.std)
    if "width" in options:
        check_weights(task, options.get("network"), options["width"])
    return Prepared(config, source, split, task, stages(task), start)


def as_before(data: DataConfig, start: State) -> DataConfig:
    """Weights go with the normalisation they were trained with, and with as many classes."""
    before, labels = start.meta["input"], configured_source(data).labels
    fewer = len(labels) < len(before["labels"]) and labels == tuple(map(str, range(len(labels))))
    given = {"classes": len(before["labels"])} if fewer and data.classes is None else {}
    return data.model_copy(update={**given, **normalised_as(data, start)})


def normalised_as(data: DataConfig, start: State) -> dict[str, list[float]]:
    """The constants of the run that --init names, unless the user gave others; text has none."""
    before = start.meta["input"]
    return {name: list(before[name]) for name in ("mean", "std") if before[name] and getattr(data, name) is None}


def with_given_constants(config: Experiment) -> dict[str, Any]:
    """The method's options. Normalisation that the user gave is for everybody: no client takes its own instead."""
    given = config.data.mean is not None or config.data.std is not None
    takes = issubclass(recipe(absolute(config.method)).options, LocalOptions)
    return {**({"constants": "fixed"} if given and takes else {}), **config.options}


def check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()  # "meta" has no values
    except (RuntimeError, AssertionError) as error:
        found = str(error).splitlines()[0]
        raise FedloomError(f"--device {device} must be usable here", found, "try --device cpu") from None


def create(
    config: Experiment, out: Path | None = None, split: Split | None = None, *, alone: bool = False
) -> tuple[RunFolder, Prepared]:
    """A new run folder with everything in it that decides the run; `alone`: it is not one of a comparison."""
    prepared = decided(prepare(config, split))
    if alone and config.evaluate.profile is not None:
        profiles.check_searchable(prepared.task)
    check(prepared)
    folder = RunFolder.create("run", f"{short_name(config.method)}-{short_name(config.data.name)}", out)
    with making(folder.path):
        prepared.split.save(folder.path / "split.json")
        keep(folder, prepared.start)
        classes.keep(folder, prepared.source, prepared.split)
        folder.write_text("config.toml", prepared.config.to_toml())
    return folder, prepared


def decided(prepared: Prepared) -> Prepared:
    """With the configuration that a resume will read: every option, and paths that are found from any folder."""
    config, task = prepared.config, prepared.task
    data = found_anywhere(config.data)
    if data.split is not None:  # what the file says, not what would have been made without it
        data = data.model_copy(update={"clients": len(prepared.split), "partition": prepared.split.partition})
    evaluate = config.evaluate
    if evaluate.profile is not None:
        evaluate = evaluate.model_copy(update={"profile": str(profiles.place(evaluate.profile).resolve())})
    final = {"method": task.method, "options": dict(task.options), "data": data, "evaluate": evaluate}
    if config.init is not None:
        final["init"] = config.init.model_copy(update={"seen": seen_before(config.init, prepared.split)})
    return replace(prepared, config=config.model_copy(update=final))


def reopen(folder: RunFolder) -> Prepared:
    """A run that was started before, with the split it was started with."""
    prepared = prepared_again(folder)
    check_space_again(prepared.task, last_checkpoint(Archive(folder.path)))
    return replace(prepared, written=folder.config_bytes())


def prepared_again(folder: RunFolder) -> Prepared:
    return prepare(config_of(folder), Split.load(folder.path / "split.json"), kept(folder))


def check(prepared: Prepared) -> None:
    """What can be known to fail before anything is made or trained."""
    check_space_of(prepared.task)
    if prepared.config.engine.kind == "flower-sim":
        flower.require()
    check_stages(settings_of(prepared), prepared.stages, parse_topology(prepared.config.engine.topology))
    population, share = len(prepared.split), prepared.config.budget.participation
    least, cohort = prepared.config.engine.min_replies or 1, max(1, round(share * population))
    if least > cohort:
        found = f"got {least} of {cohort}"
        raise FedloomError("--min-replies must not exceed the clients that work in a round", found, "lower it")
    check_samples(prepared)
    check_augmentation(prepared)
    sinks.require(prepared.config.evaluate.sinks or ())
    if prepared.config.evaluate.profile is not None:
        profiles.check_covers(prepared.task, prepared.config.evaluate.profile)
    first = prepared.stages[0].method
    if first.describe is None:  # else its state needs the clients' answers
        held = prepared.split.server
        server = to_samples(prepared.source.x, prepared.source.y, held) if len(held) else None
        # a network that cannot be built is named before a folder is made
        state = first.init(Setup(prepared.task, population, server_data=server), prepared.start)
        if prepared.start is not None:
            check_start(prepared, state)
    budget = prepared.config.budget
    if budget.equal != "rounds" and budget.amount is None:
        raise FedloomError(
            f"--equal {budget.equal} in a single run must have an amount", "there is none",
            "add --set budget.amount=…, or use `fedloom compare`, where the first method sets it",
        )  # fmt: skip


def check_start(prepared: Prepared, state: State) -> None:
    """Whether what --init gives fits this method, this network and this data."""
    assert prepared.start is not None
    fitted(state, prepared.start)
    before, labels = tuple(prepared.start.meta["input"]["labels"]), prepared.task.labels
    if before != labels:
        strange = next((label for label in labels if label not in before), labels[0])
        must = "the labels must be those of the run of --init, in the same order"
        found = f"here are {len(labels)}, with {strange!r} among them, and there {len(before)}"
        raise FedloomError(must, found, "give data of its classes")


def check_samples(prepared: Prepared) -> None:
    """Every client must have what the method needs to train on, after what is held back."""
    needed = max(stage.method.least_samples for stage in prepared.stages)
    rests = np.diff(prepared.split.offsets) - prepared.split.tests
    smallest = int(rests.argmin())
    left = int(rests[smallest]) - round(prepared.hold * int(rests[smallest]))
    if left < needed:
        raise FedloomError(
            f"every client must have at least {needed} samples to train on for {prepared.config.method}",
            f"client {smallest} has {left}", "use fewer clients, or raise data.min_samples",
        )  # fmt: skip


def check_augmentation(prepared: Prepared) -> None:
    """The operations must fit the data; their first samples tell of the scale."""
    task = prepared.task
    if issubclass(recipe(task.method).options, SgdOptions) and task.options["augment"] != "none":
        augmenter(task.options["augment"], task.kind, task.mean, torch.tensor(prepared.source.x[:1000]))


def short_name(name: str) -> str:
    """A method's or data set's name as part of a folder's name."""
    return Path(name.rpartition(":")[2] if ".py:" in name else name).stem.replace(" ", "_").replace(":", "-")


def execute(
    folder: RunFolder, prepared: Prepared, pool: Pool | None = None, listen: Listener = lambda event: None
) -> Outcome:
    """Run to the end, from the beginning or from wherever an earlier process left off."""
    with folder.writing(), folder.lock(), logging_to(folder.path / "run.log"), one_thread():
        settle()
        folder.sweep()
        note_versions(folder, listen)
        exchange = folder.fresh("exchange")  # what a killed process left there is wiped
        try:
            clients_data = MappedClients.build(exchange / "data", prepared.source, prepared.split)
            with engine_for(folder, prepared, exchange, pool) as engine:
                return make_loop(folder, prepared, engine, clients_data.server(), listen).run()
        finally:
            shutil.rmtree(exchange, ignore_errors=True)


def note_versions(folder: RunFolder, listen: Listener) -> None:
    """Write down which version works here, and say so where it is not the only one."""
    versions = folder.note_version()
    if len(versions) == 1:
        return
    text = f"several versions of fedloom took part in this run ({', '.join(versions)}); "
    text += "equal bits are promised within one version"
    log.warning(text)
    listen(Notice(text))


@contextmanager
def engine_for(folder: RunFolder, prepared: Prepared, exchange: Path, pool: Pool | None) -> Iterator[Engine]:
    """The engine of this run; a pool of workers that is not shared with other runs ends with it."""
    config = prepared.config.engine
    spec = SiteSpec(
        str((exchange / "data").resolve()), str((folder.path / "clients").resolve()), prepared.hold,
        prepared.task.shape, prepared.task.labels, config.device,
    )  # fmt: skip
    workers = worker_count(config.workers)
    if config.kind == "flower-sim":
        from fedloom.federation.engines.flower.simulation import simulation

        with simulation(spec, stages, len(prepared.split), max(1, workers)) as engine:
            yield engine
        return
    if workers == 0:
        yield InlineEngine(spec.site(stages))
        return
    used = pool or Pool(workers)
    try:
        used.wait()
        yield LocalEngine(spec, exchange, used)
    finally:
        if pool is None:
            used.close()


def worker_count(asked: int | None) -> int:
    """One a core this process may use."""
    return len(os.sched_getaffinity(0)) if asked is None else asked


def settings_of(prepared: Prepared) -> Settings:
    config = prepared.config
    budget, evaluate = config.budget, config.evaluate
    return Settings(
        experiment=experiment_id(prepared), task=prepared.task, population=len(prepared.split), rounds=budget.rounds,
        unit=budget.equal, amount=budget.amount, participation=budget.participation,
        min_replies=config.engine.min_replies or 1, lost_state=config.engine.lost_state,
        deadline=config.engine.deadline, max_weight_share=config.engine.max_weight_share,
        evaluate_every=evaluate.every or max(1, budget.rounds // 20), evaluate_clients=evaluate.clients,
        select=evaluate.select, names=names_of(prepared), registered=registered(prepared),
        norm_bound=None if config.engine.norm_bound == "off" else config.engine.norm_bound,
    )  # fmt: skip


def registered(prepared: Prepared) -> list[Registered]:
    """Every client's samples, as the split that the run began with has them."""
    totals = np.diff(prepared.split.offsets)
    counts = []
    for total, tests in zip(totals.tolist(), prepared.split.tests.tolist(), strict=True):
        rest = total - tests
        counts.append(Registered(rest - size_of_held(rest, prepared.hold), total))
    return counts


def names_of(prepared: Prepared) -> dict[int, str]:
    """What clients are called, where each is a site."""
    return dict(enumerate(prepared.source.group_names)) if prepared.split.partition == "sites" else {}


def make_loop(
    folder: RunFolder, prepared: Prepared, engine: Engine, server_data: Samples | None, listen: Listener
) -> Loop:
    return Loop(
        settings=settings_of(prepared),
        stages=prepared.stages,
        engine=engine,
        spool=Spool(folder.path / "spool"),
        topology=parse_topology(prepared.config.engine.topology),
        archive=Archive(folder.path),
        server_data=server_data,
        holds_back=prepared.hold > 0,
        listen=listen,
        start=prepared.start,
    )


def experiment_id(prepared: Prepared) -> str:
    """The same for the same experiment, so that equal runs send equal bytes.

    It comes from the text of the run's own config.toml, so that no later version changes it: a federation's sites keep
    their states under it.
    """
    written = prepared.written
    if written is None:  # of a new run, which writes exactly this
        written = prepared.config.to_toml().encode()
    return hashlib.sha256(written + prepared.split.hash.encode()).hexdigest()[:16]
