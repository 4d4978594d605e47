"""One figure per client becomes a few over all of them: the mean, and how unequal they are."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

from fedloom.metrics.metric import Metric


def spread(
    values: Iterable[float | None],
    lower_is_better: bool = False,
) -> dict[str, float | None]:
    """Mean, std (ddof 0: these are all the clients), the worst, and the mean of the worst 10 %.

    The worst 10 % are n // 10 clients, at least one. Clients without a figure (None) are left out.
    Exact sums (which numpy and fmean do not give) make the order of the clients irrelevant, the std
    of equal clients 0 and their mean their own figure.
    """
    worst_first = sorted((value for value in values if value is not None), reverse=lower_is_better)
    if not worst_first:
        return {"mean": None, "std": None, "worst": None, "worst10": None}
    worst_tenth = worst_first[: max(1, len(worst_first) // 10)]
    return {
        "mean": float(mean(worst_first)),
        "std": float(pstdev(worst_first)),
        "worst": float(worst_first[0]),
        "worst10": float(mean(worst_tenth)),
    }


def summarise(rows: Sequence[Mapping[str, Any]], metric: Metric) -> dict[str, float | None]:
    """The spread of the metric over clients, and its value over all their samples."""
    with_figure = [row for row in rows if row.get(metric.name) is not None]
    figures = [row[metric.name] for row in with_figure]
    return {**spread(figures, metric.lower_is_better), "pooled": metric.pooled(with_figure)}


def most(values: Iterable[int | None]) -> int | None:
    """The largest of those that are known."""
    return max((value for value in values if value is not None), default=None)
