"""One figure per client becomes a few over all of them: the mean, and how unequal they are."""

from collections.abc import Iterable, Sequence
from statistics import mean, pstdev

from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.records.result import Spread


def spread(values: Iterable[float | None], lower_is_better: bool = False) -> Spread:
    """Mean, std (ddof 0: these are all the clients), the worst, and the mean of the worst 10 %.

    The worst 10 % are n // 10 clients, at least one. Clients without a figure (None) are left out.
    Exact sums (which numpy and fmean do not give) make the order of the clients irrelevant, the std
    of equal clients 0 and their mean their own figure.
    """
    worst_first = sorted((value for value in values if value is not None), reverse=lower_is_better)
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
    """The spread of the metric over clients, and its value over all their samples."""
    values = [figures.value for figures in clients]
    return spread(values, metric.lower_is_better).replace(pooled=metric.pooled(clients))


def most(values: Iterable[int | None]) -> int | None:
    """The largest of those that are known."""
    return max((value for value in values if value is not None), default=None)
