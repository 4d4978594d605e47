"""Two methods on the same seeds: the seed's own luck cancels in the difference of each pair."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

# A spread this small beside the figures themselves is rounding: the differences are equal.
ROUNDING = 1e-9


class Paired(NamedTuple):
    difference: float  # the mean of b − a
    low: float | None  # None: there is no spread to judge by
    high: float | None
    n: int
    p: float | None = None  # two-sided, of Student's t; None: there is no spread to judge by


def paired(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Paired:
    """The mean of b − a, paired by seed, with Student's t interval (std with ddof 1).

    One pair has no spread. Differences that are equal have none either: their interval would have
    the width zero and call any difference certain, so there is no interval.
    """
    differences = [after - before for before, after in zip(a, b, strict=True)]
    n = len(differences)
    centre, std = over_seeds(differences)
    if std is None or std <= ROUNDING * max(map(abs, (*a, *b))):
        return Paired(centre, None, None, n)
    from scipy.special import stdtr, stdtrit  # here, because scipy is slow to import

    error = std / math.sqrt(n)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(centre) / error))
    return Paired(centre, centre - half, centre + half, n, p)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p-values of several comparisons, adjusted by Holm's step-down (1979).

    The smallest is multiplied by the number of comparisons, the next by one less, and so on; none
    falls below the one before it. A comparison that could not be judged (None) counts, as the last.
    """
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(sorted(known)):
        largest = max(largest, min(1.0, value * (len(values) - rank)))
        adjusted[place] = largest
    return adjusted


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and std (ddof 1: seeds are a sample); one seed has no std.

    No values at all are a ValueError.
    """
    centre = float(mean(values))
    if len(values) < 2:
        return centre, None
    return centre, float(stdev(values))
