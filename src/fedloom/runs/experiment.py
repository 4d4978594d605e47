"""From a configuration to a finished run.

The steps: source → partition → split → clients → rounds → result.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from fedloom.allocator import settle
from fedloom.config.models import BudgetConfig, Experiment
from fedloom.data.augmenting.augment import augmenter
from fedloom.data.configured import with_absolute_paths
from fedloom.data.mapped_clients import MappedClients, to_samples
from fedloom.data.partition import parse
from fedloom.data.partitions.tint import tinted_by
from fedloom.data.samples import Samples
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.engines import flower
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.engines.local import LocalEngine
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.protocol.returned import state_from
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.events import Listener, Notice
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.loop import Loop, Outcome
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.stage_checks import check_stages
from fedloom.learning.training import StepOptions
from fedloom.methods import recipe, searched, stages
from fedloom.records.folder import RunFolder, logging_to, making
from fedloom.records.warm_start import WarmStart
from fedloom.report import classes, sinks
from fedloom.runs import profiles
from fedloom.runs.clusters import check_clusters_used
from fedloom.runs.expected_work import loop_topology
from fedloom.runs.least_budget import check_amount, check_limits
from fedloom.runs.loop_settings import server_samples, settings_of, worker_count
from fedloom.runs.notices import notices_of
from fedloom.runs.preparing import Prepared, pooled_share, prepare
from fedloom.runs.warm_start import save_start, seen_before
from fedloom.spaces.checking import check_searched
from fedloom.threads import one_thread
from fedloom.types import Setup, State, Task, active_of

log = logging.getLogger("fedloom")


def create(
    config: Experiment,
    out: Path | None = None,
    split: Split | None = None,
    *,
    alone: bool = False,
) -> tuple[RunFolder, Prepared]:
    """Create a run folder that holds everything that determines the run.

    `alone` says that the run is not part of a comparison.
    """
    prepared = with_complete_config(prepare(config, split))
    if alone:
        check_clusters_used(config, prepared.config)
    if alone and config.evaluate.profile is not None:
        profiles.check_searchable(prepared.task)
    check(prepared)
    name = f"{short_name(config.method)}-{short_name(config.data.name)}"
    folder = RunFolder.create("run", name, out)
    with making(folder.path):
        prepared.split.save(folder.path / "split.json")
        save_start(folder, prepared.start)
        classes.keep(folder, prepared.source, prepared.split)
        folder.write_text("config.toml", prepared.config.to_toml())
    return folder, prepared


def with_complete_config(prepared: Prepared) -> Prepared:
    """The same run with every option in its configuration, and absolute paths, for a resume."""
    config = prepared.config
    split = prepared.split
    data = with_absolute_paths(config.data)
    if data.split is not None:  # the split file decides, not the options for making a split
        data = data.model_copy(update={"clients": len(split), "partition": split.partition})
    evaluate = config.evaluate
    if evaluate.profile is not None:
        profile = profiles.place(evaluate.profile).resolve()
        evaluate = evaluate.model_copy(update={"profile": str(profile)})
    changes = {
        "method": prepared.task.method,
        "options": dict(prepared.task.options),
        "data": data,
        "evaluate": evaluate,
    }
    if config.init is not None:
        seen = seen_before(config.init, split)
        changes["init"] = config.init.model_copy(update={"seen": seen})
    return replace(prepared, config=config.model_copy(update=changes))


def check(prepared: Prepared) -> None:
    """Refuse what is bound to fail, before anything is written or trained."""
    config = prepared.config
    check_searched(searched(prepared.task), prepared.task)
    if config.engine.kind == "flower-sim":
        flower.require()
    topology = loop_topology(prepared)
    check_stages(settings_of(prepared), prepared.stages, topology)
    check_min_replies(prepared)
    check_samples(prepared)
    check_augmentation(prepared)
    sinks.require(config.evaluate.sinks or ())
    if config.evaluate.profile is not None:
        profiles.check_covers(prepared.task, config.evaluate.profile)
    check_first_state(prepared)
    check_budget(prepared)


def check_budget(prepared: Prepared) -> None:
    check_has_amount(prepared.config.budget)
    check_amount(prepared)
    check_limits(prepared)


def check_has_amount(budget: BudgetConfig) -> None:
    if budget.equal != "rounds" and budget.amount is None:
        raise FedloomError(
            f"--equal {budget.equal} in a single run must have an amount",
            "there is none",
            "add --set budget.amount=…, or use `fedloom compare`, where the first method sets it",
        )


def check_min_replies(prepared: Prepared) -> None:
    """A round cannot wait for more replies than it has clients."""
    least = prepared.config.engine.min_replies or 1
    cohort = active_of(len(prepared.split), prepared.config.budget.participation)
    if least > cohort:
        raise FedloomError(
            "--min-replies must not exceed the clients that take part in a round",
            f"got {least} of {cohort}",
            "lower it",
        )


def check_first_state(prepared: Prepared) -> None:
    """Refuse a network that cannot be built, before a folder is created."""
    method = prepared.stages[0].method
    if method.describe is not None:  # its first state needs the clients' answers
        return
    server_data = None
    server_indices = prepared.split.server
    if pooled_share(prepared) is not None:
        server_indices = prepared.split.client(0)[0][:2]  # a few samples suffice for this check
    if len(server_indices):
        samples = to_samples(prepared.source.x, prepared.source.y, server_indices)
        server_data = Samples(tinted_by(parse(prepared.split.partition), samples.x), samples.y)
    setup = Setup(
        prepared.task,
        len(prepared.split),
        server_data=server_data,
        tiers=prepared.tiers,
    )
    state = state_from(method, "init", method.init(setup, prepared.start))
    if prepared.start is not None:
        fitted(state, prepared.start)
        check_labels(prepared.start, prepared.task)


def check_labels(start: State, task: Task) -> None:
    """Refuse weights of --init that were trained for other labels than this data has."""
    labels_before = tuple(WarmStart.read(start.meta).input.labels)
    if labels_before == task.labels:
        return
    new_labels = [label for label in task.labels if label not in labels_before]
    example = task.labels[0]  # only the order differs
    if new_labels:
        example = new_labels[0]
    labels_here = f"the data has {len(task.labels)}, with {example!r} among them"
    raise FedloomError(
        "the labels must be those of the --init run, in the same order",
        f"{labels_here}, and that run has {len(labels_before)}",
        "give data with that run's classes",
    )


def check_samples(prepared: Prepared) -> None:
    """Refuse clients with fewer training samples than the method needs."""
    needed = max(stage.method.least_samples for stage in prepared.stages)
    samples = prepared.training_samples
    fewest = min(samples)
    if fewest < needed:
        method = prepared.config.method
        raise FedloomError(
            f"every client must have at least {needed} samples to train on for {method}",
            f"client {samples.index(fewest)} has {fewest}",
            "use fewer clients, or raise data.min_samples",
        )


def check_augmentation(prepared: Prepared) -> None:
    """Refuse operations that do not fit the data, whose first samples show their scale."""
    task = prepared.task
    if not issubclass(recipe(task.method).options, StepOptions):
        return
    operations = task.options["augment"]
    if operations != "none":
        first_samples = tinted_by(
            parse(prepared.split.partition),
            torch.tensor(prepared.source.x[:1000]),
        )
        augmenter(operations, task.kind, task.mean, first_samples)


def short_name(name: str) -> str:
    """A method's or data set's name as part of a folder's name."""
    if ".py:" in name:
        name = name.rpartition(":")[2]
    return Path(name).stem.replace(" ", "_").replace(":", "-")


def execute(
    folder: RunFolder,
    prepared: Prepared,
    pool: Pool | None = None,
    listen: Listener = lambda event: None,
) -> Outcome:
    """Run to the end, from the beginning or from where an earlier process stopped."""
    with folder.writing(), folder.lock(), logging_to(folder.path / "run.log"), one_thread():
        settle()
        folder.sweep()
        note_versions(folder, listen)
        for text in notices_of(prepared):
            log.warning(text)
            listen(Notice(text, once=True))
        exchange = folder.fresh("exchange")  # without leftovers of a killed process
        try:
            clients_data = MappedClients.build(exchange / "data", prepared.source, prepared.split)
            with engine_for(folder, prepared, exchange, pool) as engine:
                server_data = server_samples(prepared, clients_data)
                loop = make_loop(folder, prepared, engine, server_data, listen)
                return loop.run()
        finally:
            shutil.rmtree(exchange, ignore_errors=True)


def note_versions(folder: RunFolder, listen: Listener) -> None:
    """Record this version of fedloom in the run, and warn if another one took part before."""
    versions = folder.note_version()
    if len(versions) == 1:
        return
    text = (
        f"several versions of fedloom took part in this run ({', '.join(versions)}); "
        "results are reproducible to the bit only within one version"
    )
    log.warning(text)
    listen(Notice(text))


@contextmanager
def engine_for(
    folder: RunFolder,
    prepared: Prepared,
    exchange: Path,
    pool: Pool | None,
) -> Iterator[Engine]:
    """The engine of this run. It closes its pool of workers, unless runs share the pool."""
    config = prepared.config.engine
    spec = site_spec(folder, prepared, exchange)
    workers = worker_count(config.workers)
    if config.kind == "flower-sim":
        from fedloom.federation.engines.flower.simulation import simulation

        with simulation(spec, stages, len(prepared.split), max(1, workers)) as engine:
            yield engine
        return
    if workers == 0:
        yield InlineEngine(spec.site(stages))
        return
    if pool is not None:
        pool.wait()
        yield LocalEngine(spec, exchange, pool)
        return
    own_pool = Pool(workers)
    try:
        own_pool.wait()
        yield LocalEngine(spec, exchange, own_pool)
    finally:
        own_pool.close()


def site_spec(folder: RunFolder, prepared: Prepared, exchange: Path) -> SiteSpec:
    """What a worker process needs: where the clients' data and private states are, and so on."""
    return SiteSpec(
        str((exchange / "data").resolve()),
        str((folder.path / "clients").resolve()),
        prepared.hold,
        prepared.task.shape,
        prepared.task.labels,
        prepared.config.engine.device,
        prepared.task.seed,
    )


def make_loop(
    folder: RunFolder,
    prepared: Prepared,
    engine: Engine,
    server_data: Samples | None,
    listen: Listener,
) -> Loop:
    return Loop(
        settings=settings_of(prepared),
        stages=prepared.stages,
        engine=engine,
        spool=Spool(folder.path / "spool"),
        topology=loop_topology(prepared),
        archive=Archive(folder.path),
        server_data=server_data,
        holds_back=prepared.hold > 0,
        listen=listen,
        start=prepared.start,
    )
