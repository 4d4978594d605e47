"""Where a learning curve leads.

With few steps behind it, a small network is ahead of a large one nearly always; later it often is
not. What counts is the loss at the end of the budget. Losses fall about as a power of the work that
went into a network (Hestness et al. 2017), so that their logarithms lie on a straight line.

Two or three noisy points say little about the far end of that line, so nothing is expected to fall
below half of its last loss. Of curves that would all fall further, the lowest is ahead as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import linear_regression
from typing import NamedTuple

FLOOR = 0.5  # of the last loss: what is expected is not below that


class Point(NamedTuple):
    work: float  # above 0
    loss: float


def expected(curve: Sequence[Point], work: float) -> float:
    """The loss after so much work, on the power law that fits all points best.

    It is the last loss if there is nothing to extrapolate from: a single point, or losses that are
    not above 0. A curve that rises is not expected to rise any further.
    """
    last = curve[-1].loss
    if len(curve) < 2 or min(point.loss for point in curve) <= 0:
        return last
    line = linear_regression(
        [log(point.work) for point in curve],
        [log(point.loss) for point in curve],
    )
    if line.slope >= 0:
        return last
    continued = exp(line.intercept + line.slope * log(work))
    return max(continued, FLOOR * last)
