"""Two methods on the same seeds: the seed's own luck cancels in the difference of each pair."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple


class Paired(NamedTuple):
    difference: float  # the mean of b − a
    low: float | None  # None: one pair has no spread to judge by
    high: float | None
    n: int


def paired(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Paired:
    """The mean of b − a, paired by seed, with Student's t interval (std with ddof 1)."""
    differences = [after - before for before, after in zip(a, b, strict=True)]
    n = len(differences)
    centre, std = over_seeds(differences)
    if std is None:
        return Paired(centre, None, None, n)
    from scipy.special import stdtrit  # here, because scipy is slow to import

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * std / math.sqrt(n)
    return Paired(centre, centre - half, centre + half, n)


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and std (ddof 1: seeds are a sample); one seed has no std.

    No values at all are a ValueError.
    """
    centre = float(mean(values))
    if len(values) < 2:
        return centre, None
    return centre, float(stdev(values))
