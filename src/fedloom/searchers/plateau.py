"""When training has nothing more to gain: validation figures that no longer get better.

Single figures jump from round to round, so two windows of them are compared, which grow with
training: what is learnt in the end is learnt slowly, and seen in longer means alone. Training goes
on while either the loss falls or the accuracy rises from one window to the next: a network that
gets surer of what it already knows loses likelihood on what it does not, and may still be learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple


class Check(NamedTuple):
    """A validation figure of the whole federation."""

    nll: float  # mean over samples
    accuracy: float


def has_plateau(checks: Sequence[Check], least: int) -> bool:
    """Whether the last third of the checks is no better than the third before it.

    Either has at least `least` checks; with fewer nothing can be said yet.
    """
    window = max(least, len(checks) // 3)
    if len(checks) < 2 * window:
        return False
    before = checks[-2 * window : -window]
    last = checks[-window:]
    loss_falls = mean_nll(last) < mean_nll(before)
    accuracy_rises = mean_accuracy(last) > mean_accuracy(before)
    return not loss_falls and not accuracy_rises


def mean_nll(checks: Sequence[Check]) -> float:
    return mean(check.nll for check in checks)


def mean_accuracy(checks: Sequence[Check]) -> float:
    return mean(check.accuracy for check in checks)
