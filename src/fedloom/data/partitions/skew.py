"""Label skew by rule: so many classes a client, a share of the classes missing, or one class that dominates.

Clients are of equal size and every sample is dealt out. That fixes the sums of clients and of classes alike, so not
every request can be met; one that cannot is refused with a setting that can.
"""

from __future__ import annotations

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, fitted, owners, seats
from fedloom.data.partitions.rule import Ask, client_count, counted, plain
from fedloom.errors import FedloomError
from fedloom.rng import rng

DRAWS = 20  # of who holds which classes; the most even one is taken
UNEVEN = 0.25  # how far from the equal share a client may be, where classes cannot be divided evenly
SHARES = tuple(percent / 100 for percent in range(95, 0, -5))  # an error suggests one of these


def label_skew(ask: Ask) -> tuple[np.ndarray, int]:
    """Every client has samples of exactly n classes."""
    return few_classes(ask, int(ask.rule.value or 0))


def missing(ask: Ask) -> tuple[np.ndarray, int]:
    """Every client lacks a share ζ of the classes, rounded to whole classes (FINCH's second setting)."""
    classes = len(np.unique(ask.y))
    return few_classes(ask, max(1, classes - round((ask.rule.value or 0.0) * classes)))


def few_classes(ask: Ask, each: int) -> tuple[np.ndarray, int]:
    clients = client_count(ask)
    _, totals = np.unique(ask.y, return_counts=True)
    found = shared_out(ask, totals, clients, each, DRAWS)
    if isinstance(found, np.ndarray):
        return owners(ask, found), clients
    near = sorted(range(1, len(totals) + 1), key=lambda other: (abs(other - each), other))
    fits = next((n for n in near if isinstance(shared_out(ask, totals, clients, n, 1), np.ndarray)), None)
    must = (
        f"`--partition {ask.rule}` must give each of {counted(clients)} {each} of {len(totals)} classes, equally many"
    )
    raise FedloomError(must, found, f"try {'iid' if fits is None else spelled(ask, fits, len(totals))}")


def spelled(ask: Ask, each: int, classes: int) -> str:
    return f"label-skew:{each}" if ask.rule.name == "label-skew" else f"missing:{(classes - each) / classes:.4g}"


def shared_out(ask: Ask, totals: np.ndarray, clients: int, each: int, draws: int) -> np.ndarray | str:
    """The table [class, client] in which everybody has `each` classes and sizes differ least, or why there is none."""
    most = np.minimum(totals, clients)
    if each > len(totals):
        return f"there are {len(totals)}"
    if clients * each < len(totals):
        return f"then only {clients * each} of {len(totals)} classes could be held"
    if most.sum() < clients * each:
        return f"the smallest class has {totals.min()} samples, too few for so many clients"
    sizes = equal_sizes(len(ask.indices), clients)
    best, gap = np.zeros(0, np.int64), np.inf
    for made in range(draws):
        table = fitted(totals, sizes, holders(ask, totals, most, clients, each, made), 1)
        uneven = np.abs(table.sum(axis=0) - sizes).max()
        if uneven < gap:
            best, gap = table, uneven
        if gap == 0 or each == 1:  # of one class each, every draw has the same sizes
            break
    if gap > UNEVEN * sizes.mean():
        return f"the nearest has one {int(gap)} samples from the equal share of {sizes.min()}"
    return best


def holders(ask: Ask, totals: np.ndarray, most: np.ndarray, clients: int, each: int, made: int) -> np.ndarray:
    """Who may hold which class [class, client]: `each` a client, and of a class the more the larger it is.

    A class goes to the clients that have most places left, which by the theorem of Gale and Ryser never gets stuck.
    """
    draws = rng(ask.seed, "partition", "holders", made)
    ties = draws.permutation(len(totals))
    count = seats(totals, clients * each, ties, 1, most)
    held, places = np.zeros((len(totals), clients), bool), np.full(clients, each)
    for label in np.lexsort((ties, -count)):
        by_need = np.lexsort((draws.permutation(clients), -places))[: count[label]]
        held[label, by_need] = True
        places[by_need] -= 1
    return held


def dominant(ask: Ask) -> tuple[np.ndarray, int]:
    """A share ζ of each client's samples has one class, the rest has the others (FINCH's first setting)."""
    clients, share = client_count(ask), ask.rule.value
    assert share is not None
    _, totals = np.unique(ask.y, return_counts=True)
    table = dominated(ask, totals, clients, share)
    if table is not None:
        return owners(ask, table), clients
    fits = next((less for less in SHARES if less < share and dominated(ask, totals, clients, less) is not None), None)
    must = f"`--partition {ask.rule}` must give each of {counted(clients)} {plain(share)} of its samples from one class"
    found = f"the sizes of the {len(totals)} classes do not allow it"
    other = f"dominant:{fits:g} or other --clients" if fits else "other --clients, or dirichlet-equal:0.5"
    raise FedloomError(must, found, f"try {other}")


def dominated(ask: Ask, totals: np.ndarray, clients: int, share: float) -> np.ndarray | None:
    """The table [class, client], or None. Of a class as many clients are dominated as it is large."""
    draws = rng(ask.seed, "partition", "dominant")
    full = np.full(len(totals), clients)
    count = seats(totals, clients, draws.permutation(len(totals)), 0, full)
    which = draws.permutation(np.repeat(np.arange(len(totals)), count))
    sizes = equal_sizes(len(ask.indices), clients)
    main = np.rint(share * sizes).astype(np.int64)
    left = totals - np.bincount(which, weights=main, minlength=len(totals)).astype(np.int64)
    allowed = which[None] != np.arange(len(totals))[:, None]
    if left.min() < 0 or (left[~allowed.any(axis=1)] > 0).any():
        return None
    table = fitted(left, sizes - main, allowed, 0)
    table[which, np.arange(clients)] = main
    return table if (table.sum(axis=0) == sizes).all() else None
