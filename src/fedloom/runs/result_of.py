"""What a run found, as its result: made of the final evaluation, the ledger and the folder's notes."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fedloom.evaluate.summary import most, spread, summarise
from fedloom.federation.protocol.envelope import BASIC
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.metric import Metric, metric_of
from fedloom.records.claims import claims_in
from fedloom.records.folder import RunFolder
from fedloom.records.result import (
    Capped,
    ClientResult,
    Confusion,
    Data,
    Departure,
    Input,
    Latency,
    LostState,
    Phase,
    Privacy,
    RunResult,
    SentFields,
    Spread,
    Start,
    StepBack,
    Traffic,
    Versions,
)
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.runs import profiles
from fedloom.runs.experiment import Prepared
from fedloom.types import Fields, Json, Task
from fedloom.version import __version__


@dataclass(frozen=True)
class Work:
    """What a client's work took, all rounds together."""

    seconds: float | None = None
    memory: int | None = None  # bytes that its process held at most


def result_of(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> RunResult:
    """All of result.json but the checksums. What has nothing to tell is left out."""
    result = with_latencies(prepared, build_result(prepared, outcome, worked(folder.rows())))
    changes: dict[str, Json] = {}
    took_part = folder.head().versions
    if len(took_part) > 1 and result.versions is not None:
        changes["versions"] = result.versions.replace(took_part=took_part)
    phases = in_phases(prepared.stages, folder.rows())
    if phases:
        changes["phases"] = phases
    lost = lost_states(folder.rows())
    if lost:
        changes["lost_states"] = lost
    if outcome.taken_back:
        changes["taken_back"] = [StepBack(**asdict(step)) for step in outcome.taken_back]
    lowered = capped(folder.rows())
    if lowered:
        changes["capped"] = lowered
    claims = claims_in(folder)
    if claims:
        changes["claims"] = claims
    return result.replace(**changes)


def lost_states(rows: Iterable[MetricsRow]) -> list[LostState]:
    """Which clients had lost their own state, in which round, and what followed from it."""
    events = []
    for row in rows:
        for client in row.fresh:
            events.append(LostState(client=client, round=row.round, how="fresh"))
        for refusal in row.refused:
            if refusal.reason.startswith("lost: "):
                events.append(LostState(client=refusal.client, round=row.round, how="refused"))
    return events


def capped(rows: Iterable[MetricsRow]) -> dict[str, Capped]:
    """Of clients whose weight --max-weight-share lowered: in how many rounds, and the largest share they claimed."""
    clients: dict[str, Capped] = {}
    for row in rows:
        for client, share in row.capped.items():
            before = clients.get(str(client))
            if before is None:
                clients[str(client)] = Capped(rounds=1, share=share)
            else:
                clients[str(client)] = Capped(rounds=before.rounds + 1, share=max(share, before.share))
    return clients


def worked(rows: Iterable[MetricsRow]) -> dict[int, Work]:
    """What each client's work took: lines of its describing and evaluating, whose hop is below 0, are no work."""
    seconds: dict[int, list[float]] = {}
    memory: dict[int, list[int]] = {}
    for row in rows:
        for line in row.ledger:
            if line.hop < 0:
                continue
            if line.seconds is not None:
                seconds.setdefault(line.client, []).append(line.seconds)
            if line.memory is not None:
                memory.setdefault(line.client, []).append(line.memory)
    return {client: Work(round(sum(parts), 3), most(memory.get(client, []))) for client, parts in seconds.items()}


def in_phases(stages: Sequence[Stage], rows: Iterable[MetricsRow]) -> list[Phase]:
    """The rounds of each phase of a schedule, and the share of the budget that it has in the paper."""
    counts = Counter(row.phase for row in rows if "phase" in row.notes)
    paper: dict[str, float] = {}
    for stage in stages:
        paper.update(stage.method.phases)
    return [Phase(phase=name, rounds=rounds, paper=paper.get(name)) for name, rounds in counts.items()]


def build_result(prepared: Prepared, outcome: Outcome, work: Mapping[int, Work]) -> RunResult:
    """From the final evaluation and the ledger."""
    metric = metric_of(prepared.task.kind)
    personal = [row["personal"] or {} for row in outcome.clients]
    shared = [row["shared"] for row in outcome.clients if row["shared"]]
    of_shared = Spread(**summarise(shared, metric))
    totals = outcome.totals
    in_simulation = not prepared.config.is_federated
    result = RunResult(
        method=prepared.config.method,
        options=dict(prepared.task.options),
        seed=prepared.config.seed,
        metric=metric.name,
        lower_is_better=metric.lower_is_better,
        beside={name: Spread(**spread([row.get(name) for row in personal])) for name in metric.beside},
        spread=Spread(**summarise(personal, metric)),
        shared_pooled=of_shared.pooled,
        shared=of_shared if shared else None,
        clients=[client_result(prepared, row, metric, work) for row in outcome.clients],
        confusion=confused(prepared.task, outcome.clients),
        registered=len(prepared.split),
        rounds=outcome.rounds,
        selected=outcome.selected,
        validation=outcome.validation,
        macs=totals.macs if in_simulation else None,  # a site does not tell
        seconds=round(totals.wall, 3),
        clock=round(totals.clock, 3),
        memory=most(took.memory for took in work.values()),
        traffic=traffic(totals),
        input=input_of(prepared.task),
        data=Data(name=prepared.split.data, partition=prepared.split.partition, split=prepared.split.hash),
        versions=Versions(fedloom=__version__, torch=str(torch.__version__), python=platform.python_version()),
        privacy=privacy(prepared.stages),
    )
    if prepared.config.init is None:
        return result
    return result.replace(init=Start(**prepared.config.init.model_dump(mode="json")))


def traffic(totals: Totals) -> Traffic:
    return Traffic(
        down=totals.down,
        up=totals.up,
        lan_down=totals.lan_down,
        lan_up=totals.lan_up,
        evaluate_down=totals.evaluate_down,
        evaluate_up=totals.evaluate_up,
    )


def input_of(task: Task) -> Input:
    return Input(
        kind=task.kind,
        shape=list(task.shape),
        labels=list(task.labels),
        mean=list(task.mean),
        std=list(task.std),
    )


def with_latencies(prepared: Prepared, result: RunResult) -> RunResult:
    """Every client's latency on the profile that was asked for, and on what machine that is."""
    name = prepared.config.evaluate.profile
    if name is None:
        return result
    architectures = [client.architecture for client in result.clients]
    latencies = profiles.latencies(prepared.task, name, architectures)
    clients = [client.replace(latency_ms=latency) for client, latency in zip(result.clients, latencies, strict=True)]
    machine = profiles.find(name).machine
    return result.replace(clients=clients, latency=Latency(profile=name, **dict(machine)))


def confused(task: Task, clients: Sequence[Mapping[str, Json]]) -> Confusion | None:
    """Over the clients that told."""
    matrices = [row["confusion"] for row in clients if row.get("confusion") is not None]
    if not matrices:
        return None
    counts = np.sum(matrices, axis=0).tolist()
    return Confusion(labels=list(task.labels), clients=len(matrices), counts=counts)


def client_result(
    prepared: Prepared, row: Mapping[str, Json], metric: Metric, work: Mapping[int, Work]
) -> ClientResult:
    """Of a line of the final evaluation: a client that did not answer has no figures, and a reason."""
    rest, test = prepared.split.client(row["client"])
    personal, shared, facts = row["personal"] or {}, row["shared"] or {}, row.get("facts") or {}
    took = work.get(row["client"], Work())
    client = ClientResult(
        client=row["client"],
        samples=len(rest) + len(test),
        test_samples=len(test),
        figure=personal.get(metric.name),
        interval=interval_in(personal),
        beside={name: personal.get(name) for name in metric.beside},
        shared_figure=shared.get(metric.name),
        shared_interval=interval_in(shared),
        params=facts.get("params"),
        macs=facts.get("macs"),
        architecture=facts.get("architecture"),
        seconds=took.seconds,
        memory=took.memory,
    )
    if "reason" in row:
        return client.replace(reason=row["reason"])
    return client


def interval_in(figures: Mapping[str, Json]) -> list[float] | None:
    ends = figures.get("interval")
    return None if ends is None else list(ends)


def privacy(stages: Sequence[Stage]) -> Privacy:
    """Every field that left a client, and who could see it."""
    departures = [departure("every", kind, fields) for kind, fields in BASIC.items()]
    for stage in stages:
        for kind, fields in stage.method.fields.items():
            departures.append(departure(stage.name, kind, fields))
    observed = "of an embedded run only: parameters, MACs and architecture of each client's network"
    return Privacy(left_the_clients=departures, observer=observed)


def departure(stage: str, kind: str, fields: Fields) -> Departure:
    values = [*fields.meta, "weight"]
    sent = SentFields(tensors=list(fields.tensors), extra=list(fields.extra), values=values)
    return Departure(stage=stage, order=kind, fields=sent, seen_by="server")
