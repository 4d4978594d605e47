"""Label skew by Dirichlet draws: by class, with clients of any size, or by client, with equal ones."""

from __future__ import annotations

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, owners, rounded, scaled
from fedloom.data.partitions.rule import Ask, Rule, client_count, counted
from fedloom.errors import FedloomError
from fedloom.rng import rng

DRAWS = 1000  # of a whole partition, before giving up
TRIES = 20  # of each setting that an error might suggest
ALPHAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)  # an error suggests one of these
FINENESS = 2.0**32  # drawn shares become whole numbers: a last bit that differs by platform then hardly matters


def within_float64(alpha: float) -> float:
    """Beyond these the shares are the same but float64 gives out."""
    return min(max(alpha, 1e-12), 1e12)


def dirichlet(ask: Ask) -> tuple[np.ndarray, int]:
    """Label skew by class (Hsu et al. 2019, unbalanced as in FedNAS): each class is cut by its own Dir(α)."""
    clients, alpha = client_count(ask), ask.rule.value
    assert alpha is not None  # `concentration` gave one
    sizes, made = draw(ask, clients, alpha, DRAWS)
    if sizes is None:
        raise FedloomError(ask.must, f"none of {made} draws did", f"try {fitting(ask, clients, alpha)}")
    return owners(ask, sizes), clients


def draw(ask: Ask, clients: int, alpha: float, draws: int) -> tuple[np.ndarray | None, int]:
    """The sizes [class, client] of the first draw in which nobody falls short, and how many were made."""
    _, totals = np.unique(ask.y, return_counts=True)
    alpha, fewest = within_float64(alpha), clients
    for made in range(draws):
        shares = rng(ask.seed, "partition", "dirichlet", made).dirichlet(np.full(clients, alpha), len(totals))
        cuts = np.floor(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
        cuts[:, -1] = totals  # against a cumulated share of 1 − 1e-16
        sizes = np.diff(cuts, axis=1, prepend=0)
        short = int((sizes.sum(axis=0) < ask.min_samples).sum())
        if short == 0:
            return sizes, made + 1
        fewest = min(fewest, short)
        if made >= 4 and fewest > 50:  # about Poisson: none short has odds near e^-50, so save minutes
            return None, made + 1
    return None, draws


def fitting(ask: Ask, clients: int, alpha: float) -> str:
    """Settings near this one that do fit: they were drawn here with the same seed."""
    fits, fails = 1, clients  # one client always fits
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if draw(ask, middle, alpha, TRIES)[0] is not None else (fits, middle)
    larger = (a for a in ALPHAS if a > alpha and draw(ask, clients, a, TRIES)[0] is not None)
    found = next(larger, None)
    return counted(fits) if found is None else f"{counted(fits)} or {Rule('dirichlet', found)}"


def dirichlet_equal(ask: Ask) -> tuple[np.ndarray, int]:
    """Equal clients (as FedorAS has them): each draws its own class shares p ~ Dir(α·C·prior), Hsu et al. 2019.

    For C classes of one size this is Dir(α, …, α). Drawn shares do not add up to the classes that are there, so they
    are scaled by class and by client in turns until they do, which changes them least.
    """
    clients, alpha = client_count(ask), ask.rule.value
    assert alpha is not None
    _, totals = np.unique(ask.y, return_counts=True)
    spread = [within_float64(alpha * len(totals) * int(total) / len(ask.indices)) for total in totals]
    shares = rng(ask.seed, "partition", "dirichlet-equal").dirichlet(spread, clients).T
    wish = 1 + np.floor(FINENESS * shares)  # above 0, so that a class nobody drew is shared by all
    sizes = equal_sizes(len(ask.indices), clients)
    goal = scaled(wish, totals, sizes)
    return owners(ask, rounded(goal * (sizes / goal.sum(axis=0)), totals, sizes)), clients
