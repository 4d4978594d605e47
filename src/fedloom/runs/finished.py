"""Opening a finished run for its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished, NamedModel
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.methods import stages
from fedloom.reading import Unreadable
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, tell_damage
from fedloom.records.searches import read_answer
from fedloom.records.sites import Sites
from fedloom.report.numbers import named_figures
from fedloom.report.search_tables import score_in_words
from fedloom.runs.configure import config_of
from fedloom.runs.earlier import clients_in, earlier_runs
from fedloom.runs.named_models import (
    at_the_end,
    order_for_search,
    order_for_tier,
    task_without_data,
)
from fedloom.runs.preparing import Prepared, reopen
from fedloom.types import Setup


def open_finished(
    path: Path | str,
    *,
    tier: int | None = None,
    search: str | None = None,
) -> Finished:
    """Open a finished run: all of a simulation, or what the server of a federation has.

    In a federation the clients' own models stay with them. The network of a tier, or the one that
    a search found, may take the place of the shared model.
    """
    if tier is not None and search is not None:
        raise FedloomError("one of tier and search must be given", "got both", "leave one out")
    return with_named(opened(path), tier, search)


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
    final = final_checkpoint(folder, prepared)
    site = simulated_site(folder, prepared)
    return finished(run, prepared, final, site)


def model_of_tier(finished: Finished, tier: int) -> NamedModel:
    """The network that the run ended with for this tier of devices."""
    order = order_for_tier(finished.stage.method, finished.at.state, tier, finished.run.path)
    text = "Not measured."
    for row in finished.run.record.tiers:
        if row.tier == tier and row.pooled_over_all is not None:
            metric = finished.run.metric
            figure = f"{metric.text(row.pooled_over_all)}{metric.unit}"
            text = f"On the test parts of all clients, {metric.title}: {figure} over all samples"
            figures = {"balanced_accuracy": row.global_balanced_accuracy, "auc": row.global_auc}
            text += f"{means_over_clients(figures)}."
    return NamedModel(f"tier-{tier}", f"the network of tier {tier}", order, text)


def model_of_search(finished: Finished, name: str) -> NamedModel:
    """The network that `fedloom search` found."""
    order = order_for_search(finished.run.path, name)
    answer = read_answer(finished.run.path, name)
    metric = finished.run.metric
    score = score_in_words(answer, metric)
    samples = "validation samples"
    if answer.data is not None:
        file = Path(answer.data.name).name  # an exported model must not reveal local folders
        samples = f"{answer.data.samples} samples of {file}"
    text = f"With the supernet's weights, on {samples}: {score}."
    if answer.tuned is not None and answer.tuned.figures.pooled is not None:
        figure = f"{metric.text(answer.tuned.figures.pooled)}{metric.unit}"
        rounds = f"After {answer.tuned.rounds} rounds of training"
        text = f"{rounds}, on the test parts of all clients, {metric.title}: {figure}"
        tuned = answer.tuned
        figures = {"balanced_accuracy": tuned.balanced_accuracy, "auc": tuned.auc}
        text += f"{means_over_clients(figures)}."
    return NamedModel(f"search-{name}", f"the network of search {name}", order, text)


def means_over_clients(figures: Mapping[str, float | None]) -> str:
    """`; balanced accuracy 85.1 %, mean over clients`, for those figures that are known."""
    parts = [f"{text} %" for text in named_figures(figures)]
    if not parts:
        return ""
    return f"; {', '.join(parts)}, mean over clients"


def without_sites(run: FinishedRun, folder: RunFolder) -> Finished:
    """A federation's run as its server knows it.

    The result says what the network's inputs and outputs are.
    """
    prepared = prepared_without_data(run, folder)
    final = final_checkpoint(folder, prepared)
    return finished(run, prepared, final, None)


def final_checkpoint(folder: RunFolder, prepared: Prepared) -> Checkpoint:
    final = Archive(folder.path).final()
    setup = Setup(prepared.task, len(prepared.split), final.described, tiers=prepared.tiers)
    return at_the_end(final, setup, prepared.stages)


def finished(
    run: FinishedRun, prepared: Prepared, final: Checkpoint, site: Site | None
) -> Finished:
    population = len(prepared.split)
    return Finished(
        run,
        prepared.task,
        prepared.stages,
        prepared.source,
        population,
        final,
        site,
        earlier=partial(earlier_runs, prepared.config, prepared.task),
    )


def prepared_without_data(run: FinishedRun, folder: RunFolder) -> Prepared:
    config = config_of(folder)
    task = task_without_data(run, config)
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
    """The sites' names by number; none if their file is gone, as only messages need them."""
    try:
        return tuple(Sites.read(folder.path).names)
    except Unreadable:
        return ()


def simulated_site(folder: RunFolder, prepared: Prepared) -> Site:
    """All clients of a simulated run in this process; nothing is copied or written."""
    clients_data = clients_of(prepared)
    return Site(
        lambda client: clients_data.client(client, prepared.hold),
        ClientStore(folder.path / "clients"),
        stages,
        prepared.task.shape,
        prepared.task.labels,
        prepared.config.engine.device,
        secret=partial(simulated_secret, prepared.task.seed),
    )


def clients_of(prepared: Prepared) -> MappedClients:
    return clients_in(prepared.source, prepared.split)
