"""How well two lists of figures agree on an order."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """From -1, the reverse order, to 1, the same one; ties count as tau-b has them.

    None: there is nothing to order, because there are fewer than two figures or all are equal.
    """
    from scipy.stats import kendalltau  # here, because scipy is slow to import

    if len(first) < 2:
        return None
    tau = float(kendalltau(first, second).statistic)
    if not isfinite(tau):
        return None
    return tau
