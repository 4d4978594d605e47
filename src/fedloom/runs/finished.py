"""A finished run, opened again for its models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.source import Source
from fedloom.data.split import ARRAYS, Split
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.methods import stages
from fedloom.reading import Unreadable
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, tell_damage
from fedloom.records.sites import Sites
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.experiment import Prepared, reopen
from fedloom.types import Setup, Task


def open_finished(path: Path | str) -> Finished:
    """All of it, if it was a simulation.

    Of a federation's run it is what the server has: the clients' own models stay with them.
    """
    run = FinishedRun.open(path)
    folder = RunFolder(run.path)
    tell_damage(folder)
    if folder.config().is_federated:
        return without_sites(run, folder)
    prepared = reopen(folder)
    at = at_the_end(Archive(folder.path).final(), prepared)
    site = embedded_site(folder, prepared)
    return finished(run, prepared, at, site)


def without_sites(run: FinishedRun, folder: RunFolder) -> Finished:
    """What the server of a federation knows.

    Its result says what goes into the network and what comes out.
    """
    prepared = prepared_without_data(run, folder)
    at = at_the_end(Archive(folder.path).final(), prepared)
    return finished(run, prepared, at, None)


def finished(run: FinishedRun, prepared: Prepared, at: Checkpoint, site: Site | None) -> Finished:
    population = len(prepared.split)
    return Finished(run, prepared.task, prepared.stages, prepared.source, population, at, site)


def prepared_without_data(run: FinishedRun, folder: RunFolder) -> Prepared:
    config = config_of(folder)
    network_input = run.record.input
    if network_input is None:
        rule = f"{run.path}/result.json must say what goes into the network"
        raise FedloomError(rule, "a version before 0.1.0 wrote it", "run it again")
    task = Task(
        method=config.method,
        options=resolve_options(config.method, config.options),
        kind=network_input.kind,
        shape=tuple(network_input.shape),
        labels=tuple(network_input.labels),
        seed=config.seed,
        mean=tuple(network_input.mean),
        std=tuple(network_input.std),
    )
    no_samples = np.zeros((0, *task.shape), np.uint8)
    no_targets = np.zeros(0, np.int64)
    source = Source(
        "federation",
        no_samples,
        no_targets,
        task.labels,
        task.mean,
        task.std,
        task.kind,
        group_names=site_names(folder),
    )
    return Prepared(config, source, Split.load(folder.path / "split.json"), task, stages(task))


def site_names(folder: RunFolder) -> tuple[str, ...]:
    """In the order of their numbers; none where the file is gone: they are for messages alone."""
    try:
        return tuple(Sites.read(folder.path).names)
    except Unreadable:
        return ()


def at_the_end(at: Checkpoint, prepared: Prepared) -> Checkpoint:
    """The last stage's state, also where nothing of the budget remained for it.

    Then it is the state that the stage began with.
    """
    setup = Setup(prepared.task, len(prepared.split), at.described, tiers=prepared.tiers)
    for number in range(at.stage + 1, len(prepared.stages)):
        stage = prepared.stages[number]
        at = replace(at, stage=number, state=stage.method.init(setup, at.state))
        if not stage.keeps_own:
            at = replace(at, versions={})
    return at


def embedded_site(folder: RunFolder, prepared: Prepared) -> Site:
    """The one process's view of all clients of an embedded run; nothing is copied or written."""
    clients_data = clients_of(prepared)
    return Site(
        lambda client: clients_data.client(client, prepared.hold),
        ClientStore(folder.path / "clients"),
        stages,
        prepared.task.shape,
        prepared.task.labels,
        prepared.config.engine.device,
    )


def clients_of(prepared: Prepared) -> MappedClients:
    """The clients' samples, as they lie in the source: nothing is copied or written."""
    source = prepared.source
    split = prepared.split
    split.check(source)
    arrays: dict[str, np.ndarray] = {"x": source.x, "y": source.y}
    for name in ARRAYS:
        arrays[name] = getattr(split, name)
    return MappedClients(arrays, split.partition)
