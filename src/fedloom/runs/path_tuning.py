"""`fedloom search --tune ROUNDS`: clients whose devices can run the found network train it.

The rounds are like those of any run, in the same engine and on the same split, but in a separate
folder. The run itself is not changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from fedloom.data.mapped_clients import MappedClients
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.events import Listener
from fedloom.federation.server.loop import Loop, Outcome
from fedloom.federation.server.spool import Spool
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_path import TunePath, able_clients
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.metrics.metric import metric_of
from fedloom.records.folder import RunFolder
from fedloom.records.result import Spread
from fedloom.runs.clusters import topology_of
from fedloom.runs.experiment import engine_for
from fedloom.runs.loop_settings import settings_of
from fedloom.runs.preparing import Prepared, reopen
from fedloom.runs.tier_results import mean_over, spread_over
from fedloom.searchers.paths import Path
from fedloom.threads import one_thread
from fedloom.types import State, Tensors


@dataclass(frozen=True)
class Tuned:
    """A network after tuning."""

    weights: Tensors
    rounds: int
    clients: int  # number of clients that can run it
    figures: Spread  # over all clients' test parts
    beside: Mapping[str, float | None]  # other figures by name, as means over clients


def tune_path(
    folder: RunFolder,
    place: FilePath,
    supernet: State,
    path: Path,
    rounds: int,
    listen: Listener,
) -> Tuned:
    """Tune a path from the supernet's weights. The rounds write into the folder `place`."""
    prepared = reopen(folder)
    clients = able_clients(supernet, path)
    if not clients:
        raise FedloomError(
            "--tune needs clients whose devices can run the network",
            "it costs more than the limit of every tier that has clients",
            "leave --tune out, or lower --limit",
        )
    stage = stage_for(prepared, supernet, path, clients)
    outcome = run_rounds(folder, place, prepared, stage, rounds, listen)
    metric = metric_of(prepared.task.kind)
    beside = {}
    if metric.counts_answers:
        beside["balanced_accuracy"] = mean_over(outcome.clients, "balanced_accuracy")
        if len(prepared.task.labels) == 2:
            beside["auc"] = mean_over(outcome.clients, "auc")
    return Tuned(
        weights=outcome.state.tensors,
        rounds=outcome.rounds,
        clients=len(clients),
        figures=spread_over(outcome.clients, metric),
        beside=beside,
    )


def stage_for(
    prepared: Prepared,
    supernet: State,
    path: Path,
    clients: tuple[int, ...],
) -> Stage:
    """The run's last stage with this one network, under the name that sites know."""
    last = prepared.stages[-1]
    assert isinstance(last.method, TuneTiers)
    frame = Frame.from_plain(supernet.meta["frame"])
    weights = frame.part(supernet.tensors, as_sub_space(path))
    return Stage(last.name, TunePath(last.method.options, path, weights, clients))


def run_rounds(
    folder: RunFolder,
    place: FilePath,
    prepared: Prepared,
    stage: Stage,
    rounds: int,
    listen: Listener,
) -> Outcome:
    settings = replace(
        settings_of(prepared),
        rounds=rounds,
        unit="rounds",
        amount=None,
        select="last",
        evaluate_every=max(1, rounds // 20),
    )
    exchange = place / "exchange"
    exchange.mkdir()
    temporary = (exchange, place / "checkpoints", place / "spool")
    try:
        MappedClients.build(exchange / "data", prepared.source, prepared.split)
        with one_thread(), engine_for(folder, prepared, exchange, None) as engine:
            loop = Loop(
                settings=settings,
                stages=(stage,),
                engine=engine,
                spool=Spool(place / "spool"),
                topology=topology_of(prepared.config, prepared.task),
                archive=Archive(place),
                holds_back=prepared.hold > 0,
                listen=listen,
            )
            return loop.run()
    finally:
        for leftover in temporary:
            shutil.rmtree(leftover, ignore_errors=True)
