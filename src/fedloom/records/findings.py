"""result.json, made of a run's final evaluation and its ledger."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import torch

from fedloom.evaluate.summary import spread, summarise
from fedloom.federation.protocol.envelope import BASIC
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.metric import metric_of
from fedloom.records.claims import claims_in
from fedloom.records.folder import RunFolder
from fedloom.records.rows import MetricsRow
from fedloom.runs import profiles
from fedloom.runs.experiment import Prepared
from fedloom.types import Fields, Json, Task
from fedloom.version import __version__

SIZES = ("params", "macs", "architecture")


def findings(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> Json:
    phases = in_phases(prepared.stages, folder.rows())
    found = with_latencies(prepared, build_result(prepared, outcome, worked(folder.rows())))
    took_part = folder.head().versions
    if len(took_part) > 1:
        found = {**found, "versions": {**found["versions"], "took_part": took_part}}
    if phases:
        found["phases"] = phases
    lost = lost_states(folder.rows())
    if lost:
        found["lost_states"] = lost
    if outcome.taken_back:
        found["taken_back"] = [asdict(step) for step in outcome.taken_back]
    weights = capped(folder.rows())
    if weights:
        found["capped"] = weights
    claims = claims_in(folder)
    if claims:
        found["claims"] = claims
    return found


def lost_states(rows: Iterable[MetricsRow]) -> list[Json]:
    """Which clients had lost their own state, in which round, and what followed from it."""
    events = []
    for row in rows:
        for client in row.fresh:
            events.append({"client": client, "round": row.round, "how": "fresh"})
        for refusal in row.refused:
            if refusal.reason.startswith("lost: "):
                events.append({"client": refusal.client, "round": row.round, "how": "refused"})
    return events


def capped(rows: Iterable[MetricsRow]) -> dict[str, Json]:
    """Of clients whose weight --max-weight-share lowered: in how many rounds, and the largest share they claimed."""
    found: dict[str, Json] = {}
    for row in rows:
        for client, share in row.capped.items():
            before = found.get(str(client), {"rounds": 0, "share": 0.0})
            found[str(client)] = {"rounds": before["rounds"] + 1, "share": max(share, before["share"])}
    return found


def worked(rows: Iterable[MetricsRow]) -> dict[int, Json]:
    """What each client's work took, all rounds together: its seconds, and the most that its process held."""
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
    return {
        client: {"seconds": round(sum(found), 3), "memory": most(memory.get(client, []))}
        for client, found in seconds.items()
    }


def in_phases(stages: Sequence[Stage], rows: Iterable[MetricsRow]) -> list[Json]:
    """The rounds of each phase of a schedule, and the share of the budget that it has in the paper."""
    counts = Counter(row.phase for row in rows if "phase" in row.notes)
    paper = {name: share for stage in stages for name, share in stage.method.phases.items()}
    return [{"phase": name, "rounds": rounds, "paper": paper.get(name)} for name, rounds in counts.items()]


def most(values: Iterable[int | None]) -> int | None:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)


def build_result(prepared: Prepared, outcome: Outcome, work: Mapping[int, Json]) -> Json:
    """result.json, from the final evaluation and the ledger."""
    personal = [row["personal"] or {} for row in outcome.clients]
    shared = [row["shared"] for row in outcome.clients if row["shared"]]
    totals, metric = outcome.totals, metric_of(prepared.task.kind)
    macs = totals.macs if prepared.config.engine.federation is None else None  # a site does not tell
    return {
        "method": prepared.config.method, "options": dict(prepared.task.options), "seed": prepared.config.seed,
        "metric": metric.name, "lower_is_better": metric.lower_is_better,
        **{name: spread([row.get(name) for row in personal]) for name in metric.beside},
        metric.name: summarise(personal, metric),
        "global": summarise(shared, metric)["pooled"], "shared": summarise(shared, metric) if shared else None,
        "clients": [client_row(prepared, row, work) for row in outcome.clients],
        "confusion": confused(prepared.task, outcome.clients),
        "registered": len(prepared.split), "rounds": outcome.rounds, "selected": outcome.selected,
        "validation": outcome.validation, "macs": macs, "seconds": round(totals.wall, 3),
        "clock": round(totals.clock, 3), "memory": most(took["memory"] for took in work.values()),
        "bytes": {
            "down": totals.down, "up": totals.up, "lan_down": totals.lan_down, "lan_up": totals.lan_up,
            "evaluate_down": totals.evaluate_down, "evaluate_up": totals.evaluate_up,
        },
        "input": {name: getattr(prepared.task, name) for name in ("kind", "shape", "labels", "mean", "std")},
        "data": {"name": prepared.split.data, "partition": prepared.split.partition, "split": prepared.split.hash},
        "versions": {"fedloom": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "privacy": privacy(prepared.stages),
        **({} if prepared.config.init is None else {"init": prepared.config.init.model_dump(mode="json")}),
    }  # fmt: skip


def with_latencies(prepared: Prepared, result: Json) -> Json:
    """Every client's latency on the profile that was asked for, and on what machine that is."""
    name = prepared.config.evaluate.profile
    if name is None:
        return result
    rows = result["clients"]
    found = profiles.latencies(prepared.task, name, [row["architecture"] for row in rows])
    clients = [{**row, "latency_ms": value} for row, value in zip(rows, found, strict=True)]
    return {**result, "clients": clients, "latency": {"profile": name, **dict(profiles.find(name).machine)}}


def confused(task: Task, clients: Sequence[Mapping[str, Json]]) -> Json | None:
    """Over the clients that told, how many test samples of each class (rows) were taken for each (columns)."""
    told = [row["confusion"] for row in clients if row.get("confusion") is not None]
    if not told:
        return None
    return {"labels": list(task.labels), "clients": len(told), "counts": np.sum(told, axis=0).tolist()}


def client_row(prepared: Prepared, row: Mapping[str, Json], work: Mapping[int, Json]) -> Json:
    rest, test = prepared.split.client(row["client"])
    figures, facts, metric = row["personal"] or {}, row.get("facts") or {}, metric_of(prepared.task.kind)
    return {
        "client": row["client"], "samples": len(rest) + len(test), "test_samples": len(test),
        **{name: figures.get(name) for name in (metric.name, "interval", *metric.beside)},
        f"shared_{metric.name}": row["shared"][metric.name] if row["shared"] else None,
        "shared_interval": row["shared"].get("interval") if row["shared"] else None,
        **{name: facts.get(name) for name in SIZES}, **work.get(row["client"], {"seconds": None, "memory": None}),
        **({"reason": row["reason"]} if "reason" in row else {}),
    }  # fmt: skip


def privacy(stages: Sequence[Stage]) -> Json:
    """Every field that left a client, and who could see it."""
    rows = [left("every", kind, fields) for kind, fields in BASIC.items()]
    for stage in stages:
        rows += [left(stage.name, kind, fields) for kind, fields in stage.method.fields.items()]
    observed = "of an embedded run only: parameters, MACs and architecture of each client's network"
    return {"left_the_clients": rows, "observer": observed}


def left(stage: str, kind: str, fields: Fields) -> Json:
    sent = {"tensors": list(fields.tensors), "extra": list(fields.extra), "values": [*fields.meta, "weight"]}
    return {"stage": stage, "order": kind, "fields": sent, "seen_by": "server"}
