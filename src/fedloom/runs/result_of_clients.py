"""The clients in a run's result, from the final evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedloom.data.partition import parse
from fedloom.data.partitions.changes import transforms_of
from fedloom.data.partitions.rule import Tint
from fedloom.data.split import Split
from fedloom.evaluate.summary import spread
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.metrics.regression import MAE, pooled_mae
from fedloom.records.result import ClientResult, RunResult, Spread
from fedloom.records.result_parts import ClientTransform, Confusion, Latency, RouteSummary
from fedloom.runs import profiles
from fedloom.runs.preparing import Prepared
from fedloom.runs.result_of_rounds import Work
from fedloom.types import Json, Task


def client_result(
    prepared: Prepared,
    evaluation: ClientEvaluation,
    metric: Metric,
    work: Mapping[int, Work],
) -> ClientResult:
    """A client's result by the final evaluation; without a reply, a reason and no figures."""
    rest, test = prepared.split.client(evaluation.client)
    personal = evaluation.own.figures or no_figures(metric)
    shared = evaluation.shared or no_figures(metric)
    network = evaluation.own.network
    own_work = work.get(evaluation.client, Work())
    client = ClientResult(
        client=evaluation.client,
        samples=len(rest) + len(test),
        test_samples=len(test),
        figure=personal.value,
        interval=ends_of(personal.interval),
        beside={name: personal.of(name) for name in metric.beside},
        shared_figure=shared.value,
        shared_interval=ends_of(shared.interval),
        params=network.params,
        macs=network.macs,
        architecture=network.architecture,
        head=network.head,
        seconds=own_work.seconds,
        memory=own_work.memory,
    )
    changes: dict[str, Json] = {}
    if metric.counts_answers:
        changes["answers"] = personal.answers
        changes["shared_answers"] = shared.answers
        changes["shared_balanced_accuracy"] = shared.of("balanced_accuracy")
        if len(prepared.task.labels) == 2:
            changes["shared_auc"] = shared.of("auc")
    if evaluation.own.reason is not None:
        changes["reason"] = evaluation.own.reason
    transforms = transforms_in(prepared.split, evaluation.client)
    if transforms is not None:
        changes["transform"] = transforms
    changes.update(spread_of_costs(network.routes))
    return client.replace(**changes)


def transforms_in(split: Split, client: int) -> list[ClientTransform] | None:
    """How this client's samples are transformed; None if the partition transforms no samples."""
    rule = parse(split.partition)
    if all(isinstance(change, Tint) for change in rule.changes):
        return None
    transforms = []
    for transform in transforms_of(rule, client, len(split)):
        transforms.append(ClientTransform(name=transform.name, amount=transform.amount))
    return transforms


def spread_of_costs(routes: Json) -> dict[str, Json]:
    """Costs of a model whose samples take different paths; empty if all take the same."""
    if routes is None:
        return {}
    changes = {"macs": round(routes["macs"]), "routes": RouteSummary(**routes["routes"])}
    for name in ("params_used", "macs_std", "macs_max", "shuffled_accuracy"):
        changes[name] = routes[name]
    return changes


def no_figures(metric: Metric) -> Figures:
    return Figures(metric.name, samples=0, correct=0, value=None, interval=None, beside={})


def ends_of(interval: tuple[float, float] | None) -> list[float] | None:
    """The interval as a list, for JSON."""
    if interval is None:
        return None
    return list(interval)


def with_latencies(
    prepared: Prepared, result: RunResult, evaluations: Sequence[ClientEvaluation]
) -> RunResult:
    """Add every client's latency by the profile of --profile, and which machine that is."""
    name = prepared.config.evaluate.profile
    if name is None:
        return result
    latencies = profiles.Latencies(prepared.task, name)
    clients = []
    for client, evaluation in zip(result.clients, evaluations, strict=True):
        routes = evaluation.own.network.routes
        if routes is None or client.is_searched:
            latency = latencies.of_network(client.architecture)
        else:
            latency = latencies.of_paths(routes["paths"])
        clients.append(
            client.replace(
                latency_ms=latency.mean,
                latency_p95_ms=latency.p95,
                latency_worst_ms=latency.worst,
            )
        )
    machine = profiles.find(name).machine
    return result.replace(clients=clients, latency=Latency(profile=name, **dict(machine)))


def own_figures(evaluations: Iterable[ClientEvaluation]) -> list[Figures]:
    """Figures of the clients that replied, each with the model that it uses."""
    figures = []
    for evaluation in evaluations:
        if evaluation.own.figures is not None:
            figures.append(evaluation.own.figures)
    return figures


def has_another_model(evaluation: ClientEvaluation) -> bool:
    """Whether a client's own model has other figures than the shared one."""
    return evaluation.shared is not None and evaluation.own.figures != evaluation.shared


def spreads_beside(clients: Sequence[Figures], metric: Metric) -> dict[str, Spread]:
    """Spreads of the figures that are reported besides the metric."""
    spreads = {}
    for name in metric.beside:
        values = [figures.of(name) for figures in clients]
        if name == MAE:
            over_clients = spread(values, lower_is_better=True)
            spreads[name] = over_clients.replace(pooled=pooled_mae(clients))
        else:
            spreads[name] = spread(values)
    return spreads


def summed_confusion(task: Task, evaluations: Iterable[ClientEvaluation]) -> Confusion | None:
    """The sum of the confusion matrices that clients reported."""
    matrices = []
    for evaluation in evaluations:
        if evaluation.own.confusion is not None:
            matrices.append(evaluation.own.confusion)
    if not matrices:
        return None
    counts = np.sum(matrices, axis=0).tolist()
    return Confusion(labels=list(task.labels), clients=len(matrices), counts=counts)
