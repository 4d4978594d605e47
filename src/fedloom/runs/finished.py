"""A finished run, opened again for its models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.source import Source
from fedloom.data.split import ARRAYS, Split
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished, NamedModel
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import WireError, read_state
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.methods import stages
from fedloom.methods.fedoras_path import path_model
from fedloom.reading import Unreadable
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, tell_damage
from fedloom.records.searches import MODEL, found_search, read_answer
from fedloom.records.sections import tuned_model
from fedloom.records.sites import Sites
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.experiment import Prepared, reopen
from fedloom.types import Order, Setup, State, Task


def open_finished(
    path: Path | str,
    *,
    tier: int | None = None,
    search: str | None = None,
) -> Finished:
    """All of it, if it was a simulation.

    Of a federation's run it is what the server has: the clients' own models stay with them. The
    network of a tier, or the one that a search found, may stand for the shared model.
    """
    if tier is not None and search is not None:
        raise FedloomError("one of tier and search must be given", "got both", "leave one out")
    return with_named(opened(path), tier, search)


def open_without_data(
    path: Path | str,
    *,
    tier: int | None = None,
    search: str | None = None,
) -> Finished:
    """What the server of a run has, be it a simulation or not: no data are opened."""
    run = FinishedRun.open(path)
    return with_named(without_sites(run, RunFolder(run.path)), tier, search)


def with_named(finished: Finished, tier: int | None, search: str | None) -> Finished:
    if tier is not None:
        return replace(finished, named=model_of_tier(finished, tier))
    if search is not None:
        return replace(finished, named=model_of_search(finished, search))
    return finished


def opened(path: Path | str) -> Finished:
    run = FinishedRun.open(path)
    folder = RunFolder(run.path)
    tell_damage(folder)
    if folder.config().is_federated:
        return without_sites(run, folder)
    prepared = reopen(folder)
    at = at_the_end(Archive(folder.path).final(), prepared)
    site = embedded_site(folder, prepared)
    return finished(run, prepared, at, site)


def model_of_tier(finished: Finished, tier: int) -> NamedModel:
    """The network that the run ended with for this tier of devices."""
    order = order_for_tier(finished.stage.method, finished.at.state, tier, finished.run.path)
    text = "Not measured."
    for row in finished.run.record.tiers:
        if row.tier == tier and row.pooled_over_all is not None:
            metric = finished.run.metric
            figure = f"{metric.text(row.pooled_over_all)}{metric.unit}"
            text = f"On the test parts of all clients, {metric.name}: {figure} over all samples."
    return NamedModel(f"tier-{tier}", f"the network of tier {tier}", order, text)


def order_for_tier(method: Method, state: State, tier: int, run: Path) -> Order:
    name = tuned_model(tier)
    numbers = []
    for model in method.models(state):
        number = model.rpartition("-")[2]
        if number.isdecimal() and model == tuned_model(int(number)):
            numbers.append(int(number))
    if not numbers:
        rule = "--tier must be of a run whose method has a network for every tier of devices"
        raise FedloomError(rule, f"{run} is none", "take --client K or --shared")
    if tier not in numbers:
        rule = f"--tier must be one of the run's, from 1 to {max(numbers)}"
        raise FedloomError(rule, f"got {tier}", "choose one of them")
    return method.serve_model(state, name, 0)


def model_of_search(finished: Finished, name: str) -> NamedModel:
    """The network that `fedloom search` found."""
    order = order_for_search(finished.run.path, name)
    answer = read_answer(finished.run.path, name)
    score = f"loss {answer.loss:.4f} and accuracy {100 * answer.accuracy:.1f} %"
    text = f"With the supernet's weights, on validation samples: {score}."
    if answer.tuned is not None and answer.tuned.figures.pooled is not None:
        metric = finished.run.metric
        figure = f"{metric.text(answer.tuned.figures.pooled)}{metric.unit}"
        rounds = f"After {answer.tuned.rounds} rounds of training"
        text = f"{rounds}, on the test parts of all clients, {metric.name}: {figure}."
    return NamedModel(f"search-{name}", f"the network of search {name}", order, text)


def order_for_search(run: Path, name: str) -> Order:
    path = found_search(run, name) / MODEL
    try:
        return path_model(read_state(path.read_bytes()))
    except (KeyError, OSError, WireError) as error:
        rule = f"{path} must be the network that a search found"
        raise FedloomError(rule, f"{type(error).__name__}: {error}", "search again") from None


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
