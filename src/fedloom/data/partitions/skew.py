"""Label skew by rule.

A client has so many classes, lacks a share of the classes, or has one class that dominates. Clients
are of equal size and every sample is dealt out. That fixes the sums of clients and of classes
alike, so not every request can be met; one that cannot is refused with a setting that can.
"""

from __future__ import annotations

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, fitted, owners, seats
from fedloom.data.partitions.rule import Ask, client_count, counted, plain
from fedloom.errors import FedloomError
from fedloom.rng import rng

DRAWS = 20  # of who holds which classes; the most even one is taken
# How far from the equal share a client may be, where classes cannot be divided evenly.
UNEVEN = 0.25
SHARES = tuple(percent / 100 for percent in range(95, 0, -5))  # an error suggests one of these


def label_skew(ask: Ask) -> tuple[np.ndarray, int]:
    """Every client has samples of exactly n classes."""
    return few_classes(ask, int(ask.rule.value or 0))


def missing(ask: Ask) -> tuple[np.ndarray, int]:
    """Every client lacks a share ζ of the classes, in whole classes (FINCH's second setting)."""
    classes = len(np.unique(ask.y))
    lacked = round((ask.rule.value or 0.0) * classes)
    return few_classes(ask, max(1, classes - lacked))


def few_classes(ask: Ask, each: int) -> tuple[np.ndarray, int]:
    clients = client_count(ask)
    _, totals = np.unique(ask.y, return_counts=True)
    table = shared_out(ask, totals, clients, each, DRAWS)
    if isinstance(table, np.ndarray):
        return owners(ask, table), clients
    reason = table
    share = f"{each} of {len(totals)} classes, equally many"
    rule = f"`--partition {ask.rule}` must give each of {counted(clients)} {share}"
    raise FedloomError(rule, reason, f"try {nearest(ask, totals, clients, each)}")


def nearest(ask: Ask, totals: np.ndarray, clients: int, each: int) -> str:
    """The partition that can be met with the number of classes next to this one."""
    classes = len(totals)
    numbers = sorted(range(1, classes + 1), key=lambda other: (abs(other - each), other))
    for number in numbers:
        if not isinstance(shared_out(ask, totals, clients, number, 1), np.ndarray):
            continue
        if ask.rule.name == "label-skew":
            return f"label-skew:{number}"
        return f"missing:{(classes - number) / classes:.4g}"
    return "iid"


def shared_out(
    ask: Ask,
    totals: np.ndarray,
    clients: int,
    each: int,
    draws: int,
) -> np.ndarray | str:
    """The table [class, client] in which everybody has `each` classes and sizes differ least.

    If there is none, the reason why.
    """
    most = np.minimum(totals, clients)
    if each > len(totals):
        return f"there are {len(totals)}"
    if clients * each < len(totals):
        return f"then only {clients * each} of {len(totals)} classes could be held"
    if most.sum() < clients * each:
        return f"the smallest class has {totals.min()} samples, too few for so many clients"
    sizes = equal_sizes(len(ask.indices), clients)
    best = np.zeros(0, np.int64)
    gap = np.inf  # of the best: how far a client is from its equal share
    for attempt in range(draws):
        allowed = holders(ask, totals, most, clients, each, attempt)
        table = fitted(totals, sizes, allowed, 1)
        uneven = np.abs(table.sum(axis=0) - sizes).max()
        if uneven < gap:
            best = table
            gap = uneven
        if gap == 0 or each == 1:  # of one class each, every draw has the same sizes
            break
    if gap > UNEVEN * sizes.mean():
        return f"the nearest has one {int(gap)} samples from the equal share of {sizes.min()}"
    return best


def holders(
    ask: Ask,
    totals: np.ndarray,
    most: np.ndarray,
    clients: int,
    each: int,
    attempt: int,
) -> np.ndarray:
    """Who may hold which class [class, client].

    That is `each` a client, and of a class the more the larger it is. A class goes to the clients
    that have most places left, which by the theorem of Gale and Ryser never gets stuck.
    """
    draws = rng(ask.seed, "partition", "holders", attempt)
    ties = draws.permutation(len(totals))
    count = seats(totals, clients * each, ties, 1, most)
    held = np.zeros((len(totals), clients), bool)
    places = np.full(clients, each)
    for label in np.lexsort((ties, -count)):
        by_need = np.lexsort((draws.permutation(clients), -places))[: count[label]]
        held[label, by_need] = True
        places[by_need] -= 1
    return held


def dominant(ask: Ask) -> tuple[np.ndarray, int]:
    """A share ζ of each client's samples has one class, the rest others (FINCH's first setting)."""
    clients = client_count(ask)
    share = ask.rule.value
    assert share is not None
    _, totals = np.unique(ask.y, return_counts=True)
    table = dominated(ask, totals, clients, share)
    if table is not None:
        return owners(ask, table), clients
    amount = f"{plain(share)} of its samples from one class"
    rule = f"`--partition {ask.rule}` must give each of {counted(clients)} {amount}"
    found = f"the sizes of the {len(totals)} classes do not allow it"
    for less in SHARES:
        if less < share and dominated(ask, totals, clients, less) is not None:
            raise FedloomError(rule, found, f"try dominant:{less:g} or other --clients")
    raise FedloomError(rule, found, "try other --clients, or dirichlet-equal:0.5")


def dominated(ask: Ask, totals: np.ndarray, clients: int, share: float) -> np.ndarray | None:
    """The table [class, client], or None. The larger a class, the more clients it dominates."""
    draws = rng(ask.seed, "partition", "dominant")
    full = np.full(len(totals), clients)
    count = seats(totals, clients, draws.permutation(len(totals)), 0, full)
    which = draws.permutation(np.repeat(np.arange(len(totals)), count))
    sizes = equal_sizes(len(ask.indices), clients)
    main = np.rint(share * sizes).astype(np.int64)
    used = np.bincount(which, weights=main, minlength=len(totals)).astype(np.int64)
    rest = totals - used
    allowed = which[None] != np.arange(len(totals))[:, None]
    if rest.min() < 0 or (rest[~allowed.any(axis=1)] > 0).any():
        return None
    table = fitted(rest, sizes - main, allowed, 0)
    table[which, np.arange(clients)] = main
    if (table.sum(axis=0) != sizes).any():
        return None
    return table
