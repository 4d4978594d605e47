"""The evaluation of a model by its clients: the orders that ask for it, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.records.rows import BESIDE, Evaluation, Part, WorkerDeath
from fedloom.records.totals import Totals
from fedloom.types import Order


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation."""

    clients: tuple[ClientEvaluation, ...]
    totals: Totals
    deaths: tuple[WorkerDeath, ...]

    @property
    def own(self) -> list[Figures]:
        """The metrics of the models that clients use, in client order, for those that answered."""
        figures = []
        for client in self.clients:
            if client.own.figures is not None:
                figures.append(client.own.figures)
        return figures

    @property
    def shared(self) -> list[Figures]:
        """The metrics of the shared model, for the clients that have evaluated it."""
        return [client.shared for client in self.clients if client.shared is not None]


def evaluation_order(
    order: Order,
    part: Part,
    *,
    final: bool,
    sends_confusion: bool = True,
) -> Order:
    """An order to evaluate what a method serves on a part of the client's data.

    With `final`, the reply tells more about the model than its metrics. This includes a confusion
    matrix if `sends_confusion` is set.
    """
    meta = {**order.meta, "part": part, "final": final}
    if final and not sends_confusion:
        meta["confusion"] = False
    return replace(order, kind="evaluate", meta=meta)


def with_model(
    evaluations: Sequence[ClientEvaluation],
    name: str,
    of_model: Sequence[ClientEvaluation],
) -> list[ClientEvaluation]:
    """The same clients' evaluations, extended by those of a model that the method names."""
    joined = []
    for evaluation, answer in zip(evaluations, of_model, strict=True):
        assert evaluation.client == answer.client
        named = {**evaluation.named, name: answer.own}
        joined.append(replace(evaluation, named=named))
    return joined


def evaluation_row(
    evaluated: Evaluated,
    part: Part,
    metric: Metric,
    labels: Sequence[str],
) -> Evaluation:
    """The means over clients, for the round's row in metrics.jsonl."""
    values = values_of(evaluated.own, metric.name)
    shared_means = means_beside(evaluated.shared, metric, labels)
    return Evaluation(
        part=part,
        clients=len(values),
        metric=metric.name,
        value=mean(values),
        shared=mean(values_of(evaluated.shared, metric.name)),
        deaths=evaluated.deaths,
        **means_beside(evaluated.own, metric, labels),
        **{f"shared_{name}": value for name, value in shared_means.items()},
    )


def means_beside(
    clients: Sequence[Figures],
    metric: Metric,
    labels: Sequence[str],
) -> dict[str, float | None]:
    """The means of the metrics that are reported in addition to the main one, by name.

    In these, every class counts the same. AUC is reported for two classes only.
    """
    means = {}
    for name in BESIDE:
        if name not in metric.columns:
            continue
        if name == "auc" and len(labels) != 2:
            continue
        means[name] = mean(values_of(clients, name))
    return means


def values_of(clients: Iterable[Figures], name: str) -> list[float]:
    """The metric of this name, for the clients that have it."""
    values = []
    for figures in clients:
        value = figures.of(name)
        if value is not None:
            values.append(value)
    return values


def mean(values: Sequence[float]) -> float | None:
    """The mean of the values, or None if there are none."""
    if not values:
        return None
    return sum(values) / len(values)
