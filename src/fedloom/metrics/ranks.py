"""Measures how well two lists of figures agree on an order."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Kendall's tau-b, from -1 (the reverse order) to 1 (the same order).

    It is None if there is nothing to order: fewer than two figures, or figures that are all equal.
    """
    from scipy.stats import kendalltau  # here, because scipy is slow to import

    if len(first) < 2:
        return None
    tau = float(kendalltau(first, second).statistic)
    if not isfinite(tau):
        return None
    return tau
