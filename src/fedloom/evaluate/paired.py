"""Compares two methods on the same seeds: a seed's luck cancels in the difference of each pair."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

# A spread this small beside the figures themselves is rounding: the differences are equal.
ROUNDING = 1e-9


class Paired(NamedTuple):
    difference: float  # the mean of b − a
    # The ends of the interval and p are None if there is no spread to judge by.
    low: float | None
    high: float | None
    n: int
    p: float | None = None  # two-sided, of Student's t


def paired(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Paired:
    """Returns the mean of b − a, paired by seed, with Student's t interval (std with ddof 1).

    One pair has no spread, and so no interval. Equal differences have no interval either: it would
    have no width and call any difference certain.
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
    """Returns the p-values of several comparisons, adjusted by Holm's step-down procedure (1979).

    The smallest is multiplied by the number of comparisons, the next by one less, and so on; none
    falls below the one before it. A comparison without a p-value (None) counts as the last one.
    """
    judged = []
    for place, value in enumerate(values):
        if value is not None:
            judged.append((value, place))
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(sorted(judged)):
        largest = max(largest, min(1.0, value * (len(values) - rank)))
        adjusted[place] = largest
    return adjusted


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns mean and std (ddof 1: seeds are a sample). One seed has no std.

    Raises ValueError if there are no values.
    """
    centre = float(mean(values))
    if len(values) < 2:
        return centre, None
    return centre, float(stdev(values))
