"""Label skew by Dirichlet draws.

The draws are per class, with clients of different sizes, or per client, with equal sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, owners, rounded, scaled
from fedloom.data.partitions.rule import Assignment, PartitionRequest, Rule, client_count, counted
from fedloom.errors import FedloomError
from fedloom.rng import rng

DRAWS = 1000  # of a whole partition, before giving up
TRIES = 20  # draws of each setting that an error might suggest
HOPELESS = 50  # with more clients than this that fall short, no draw will do
# An error suggests one of these.
ALPHAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
# Drawn shares become whole numbers, so that a last bit that differs by platform hardly matters.
FINENESS = 2.0**32


def within_float64(alpha: float) -> float:
    """Clips alpha to a range that float64 can handle: beyond it, the shares are the same."""
    return min(max(alpha, 1e-12), 1e12)


def dirichlet(request: PartitionRequest) -> Assignment:
    """Label skew by class (Hsu et al. 2019, unbalanced as in FedNAS).

    Each class is cut by its own Dir(α).
    """
    clients = client_count(request)
    alpha = request.rule.value
    assert alpha is not None  # `concentration` gave one
    drawn = draw(request, clients, alpha, DRAWS)
    if drawn.sizes is None:
        advice = f"try {fitting(request, clients, alpha)}"
        raise FedloomError(request.requirement, f"none of {drawn.attempts} draws did", advice)
    return Assignment(owners(request, drawn.sizes), clients)


class Drawn(NamedTuple):
    """The sizes [class, client] of the first draw in which all clients have enough samples.

    `sizes` is None if no attempt succeeded.
    """

    sizes: np.ndarray | None
    attempts: int


def draw(request: PartitionRequest, clients: int, alpha: float, draws: int) -> Drawn:
    _, totals = np.unique(request.y, return_counts=True)
    alpha = within_float64(alpha)
    fewest_short = clients
    for attempt in range(draws):
        generator = rng(request.seed, "partition", "dirichlet", attempt)
        shares = generator.dirichlet(np.full(clients, alpha), len(totals))
        cuts = np.floor(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
        cuts[:, -1] = totals  # the cumulated shares may only reach 1 − 1e-16
        sizes = np.diff(cuts, axis=1, prepend=0)
        short = int((sizes.sum(axis=0) < request.min_samples).sum())
        if short == 0:
            return Drawn(sizes, attempt + 1)
        fewest_short = min(fewest_short, short)
        # The number of short clients is about Poisson distributed, so the odds that none is short
        # are near e^-50. Giving up here saves minutes.
        if attempt >= 4 and fewest_short > HOPELESS:
            return Drawn(None, attempt + 1)
    return Drawn(None, draws)


def fitting(request: PartitionRequest, clients: int, alpha: float) -> str:
    """Suggests settings near this one that work. They are tried here with the same seed."""
    fits = 1  # one client always fits
    fails = clients
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if draw(request, middle, alpha, TRIES).sizes is not None:
            fits = middle
        else:
            fails = middle
    for larger in ALPHAS:
        if larger > alpha and draw(request, clients, larger, TRIES).sizes is not None:
            return f"{counted(fits)} or {Rule('dirichlet', larger)}"
    return counted(fits)


def dirichlet_equal(request: PartitionRequest) -> Assignment:
    """Label skew by client, with clients of equal size (as in FedorAS).

    Each client draws its own class shares p ~ Dir(α·C·prior), Hsu et al. 2019. For C classes of
    equal size this is Dir(α, …, α). The drawn shares do not add up to the existing class sizes, so
    they are scaled by class and by client in turns until they do, which changes them least.
    """
    clients = client_count(request)
    alpha = request.rule.value
    assert alpha is not None
    _, totals = np.unique(request.y, return_counts=True)
    samples = len(request.indices)
    spread = [within_float64(alpha * len(totals) * int(total) / samples) for total in totals]
    shares = rng(request.seed, "partition", "dirichlet-equal").dirichlet(spread, clients).T
    wish = 1 + np.floor(FINENESS * shares)  # above 0: a class that nobody drew is shared by all
    sizes = equal_sizes(samples, clients)
    goal = scaled(wish, totals, sizes)
    goal = goal * (sizes / goal.sum(axis=0))
    return Assignment(owners(request, rounded(goal, totals, sizes)), clients)
