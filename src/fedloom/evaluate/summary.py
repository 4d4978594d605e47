"""Sums up one figure per client over all clients: their mean, and how unequal they are."""

from collections.abc import Iterable, Sequence
from statistics import mean, pstdev
from typing import TypeVar

from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.records.result import Spread

T = TypeVar("T")


def spread(values: Iterable[float | None], lower_is_better: bool = False) -> Spread:
    """Returns mean, std (ddof 0: these are all clients), the worst, and the mean of the worst 10 %.

    The worst 10 % are n // 10 clients, at least one. Clients without a figure (None) are left out.
    Sums are exact, which those of numpy and fmean are not: so the order of the clients does not
    matter, and clients with equal figures have exactly that mean and a std of 0.
    """
    worst_first = sorted(without_none(values), reverse=lower_is_better)
    if not worst_first:
        return Spread(mean=None, std=None, worst=None, worst10=None)
    worst_tenth = worst_first[: max(1, len(worst_first) // 10)]
    return Spread(
        mean=float(mean(worst_first)),
        std=float(pstdev(worst_first)),
        worst=float(worst_first[0]),
        worst10=float(mean(worst_tenth)),
    )


def summarise(clients: Sequence[Figures], metric: Metric) -> Spread:
    """Returns the spread of the metric over clients, and its value over all their samples."""
    values = [figures.value for figures in clients]
    return spread(values, metric.lower_is_better).replace(pooled=metric.pooled(clients))


def most(values: Iterable[int | None]) -> int | None:
    """Returns the largest value that is not None, or None if there is no such value."""
    return max(without_none(values), default=None)


def without_none(values: Iterable[T | None]) -> list[T]:
    """Returns the values that are known, in their order."""
    return [value for value in values if value is not None]
