"""Detects a plateau: validation figures that no longer improve.

Single figures fluctuate from round to round, so the means of two windows are compared. The windows
grow with training, because late progress is slow and shows only in longer means. Training continues
while either the loss falls or the accuracy rises from one window to the next: an overconfident
network can lose likelihood while its accuracy still improves.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple


class Check(NamedTuple):
    """One validation of the shared network, over all clients."""

    nll: float  # mean over samples
    accuracy: float


def has_plateau(checks: Sequence[Check], least: int) -> bool:
    """Whether the last third of the checks is no better than the third before it.

    Each window has at least `least` checks; with fewer checks than two windows there is no plateau.
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
