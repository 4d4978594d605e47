"""Label skew by rule.

Every client has a given number of classes, lacks a given share of them, or has one class that
dominates. Clients are of equal size and every sample is dealt out. That fixes the sums of clients
as well as those of classes, so some requests cannot be met. They are refused, and the error
suggests a setting that works.
"""

from __future__ import annotations

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, fitted, owners, seats
from fedloom.data.partitions.rule import Assignment, PartitionRequest, client_count, counted, plain
from fedloom.errors import FedloomError
from fedloom.rng import rng

DRAWS = 20  # of which clients hold which classes; the one with the most equal sizes is used
# How far from the equal share a client may be, if classes cannot be divided evenly.
UNEVEN = 0.25
SHARES = tuple(percent / 100 for percent in range(95, 0, -5))  # an error suggests one of these


def label_skew(request: PartitionRequest) -> Assignment:
    """Every client has samples of exactly n classes."""
    return few_classes(request, int(request.rule.value or 0))


def missing(request: PartitionRequest) -> Assignment:
    """Every client lacks a share ζ of the classes, in whole classes (FINCH's second setting)."""
    classes = len(np.unique(request.y))
    lacked = round((request.rule.value or 0.0) * classes)
    return few_classes(request, max(1, classes - lacked))


def few_classes(request: PartitionRequest, per_client: int) -> Assignment:
    """Every client has samples of `per_client` classes."""
    clients = client_count(request)
    _, totals = np.unique(request.y, return_counts=True)
    try:
        table = shared_out(request, totals, clients, per_client, DRAWS)
    except Impossible as reason:
        share = f"{per_client} of {len(totals)} classes, equally many"
        rule = f"`--partition {request.rule}` must give each of {counted(clients)} {share}"
        advice = f"try {nearest(request, totals, clients, per_client)}"
        raise FedloomError(rule, str(reason), advice) from None
    return Assignment(owners(request, table), clients)


class Impossible(Exception):
    """The reason why no table has the sums that are asked for."""


def nearest(request: PartitionRequest, totals: np.ndarray, clients: int, per_client: int) -> str:
    """Suggests the partition that works and whose number of classes is nearest to this one."""
    classes = len(totals)
    numbers = sorted(range(1, classes + 1), key=lambda other: (abs(other - per_client), other))
    for number in numbers:
        try:
            shared_out(request, totals, clients, number, 1)
        except Impossible:
            continue
        if request.rule.name == "label-skew":
            return f"label-skew:{number}"
        return f"missing:{(classes - number) / classes:.4g}"
    return "iid"


def shared_out(
    request: PartitionRequest,
    totals: np.ndarray,
    clients: int,
    per_client: int,
    draws: int,
) -> np.ndarray:
    """Returns a table [class, client] in which every client has `per_client` classes.

    Of all draws it is the one in which sizes differ least. Raises Impossible if there is none.
    """
    most = np.minimum(totals, clients)
    if per_client > len(totals):
        raise Impossible(f"there are {len(totals)}")
    if clients * per_client < len(totals):
        held = clients * per_client
        raise Impossible(f"then only {held} of {len(totals)} classes could be held")
    if most.sum() < clients * per_client:
        smallest = f"the smallest class has {totals.min()} samples"
        raise Impossible(f"{smallest}, too few for so many clients")
    sizes = equal_sizes(len(request.indices), clients)
    best = np.zeros(0, np.int64)
    gap = np.inf  # in the best table: how far a client is from its equal share, at most
    for attempt in range(draws):
        allowed = holders(request, totals, most, clients, per_client, attempt)
        table = fitted(totals, sizes, allowed, 1)
        uneven = np.abs(table.sum(axis=0) - sizes).max()
        if uneven < gap:
            best = table
            gap = uneven
        if gap == 0 or per_client == 1:  # with one class per client, every draw has the same sizes
            break
    if gap > UNEVEN * sizes.mean():
        equal_share = f"the equal share of {sizes.min()}"
        raise Impossible(f"a client would be {int(gap)} samples from {equal_share}")
    return best


def holders(
    request: PartitionRequest,
    totals: np.ndarray,
    most: np.ndarray,
    clients: int,
    per_client: int,
    attempt: int,
) -> np.ndarray:
    """Draws which client may hold which class, as a table of booleans [class, client].

    Every client holds `per_client` classes, and the larger a class, the more clients hold it. A
    class goes to the clients that have the most places left, which by the Gale-Ryser theorem never
    gets stuck.
    """
    draws = rng(request.seed, "partition", "holders", attempt)
    ties = draws.permutation(len(totals))
    count = seats(totals, clients * per_client, ties, 1, most)
    held = np.zeros((len(totals), clients), bool)
    places = np.full(clients, per_client)
    for label in np.lexsort((ties, -count)):
        by_need = np.lexsort((draws.permutation(clients), -places))[: count[label]]
        held[label, by_need] = True
        places[by_need] -= 1
    return held


def dominant(request: PartitionRequest) -> Assignment:
    """A share ζ of each client's samples has one class, the rest has others.

    This is FINCH's first setting.
    """
    clients = client_count(request)
    share = request.rule.value
    assert share is not None
    _, totals = np.unique(request.y, return_counts=True)
    table = dominated(request, totals, clients, share)
    if table is not None:
        return Assignment(owners(request, table), clients)
    amount = f"{plain(share)} of its samples from one class"
    rule = f"`--partition {request.rule}` must give each of {counted(clients)} {amount}"
    problem = f"the sizes of the {len(totals)} classes do not allow it"
    for less in SHARES:
        if less < share and dominated(request, totals, clients, less) is not None:
            raise FedloomError(rule, problem, f"try dominant:{less:g} or other --clients")
    raise FedloomError(rule, problem, "try other --clients, or dirichlet-equal:0.5")


def dominated(
    request: PartitionRequest, totals: np.ndarray, clients: int, share: float
) -> np.ndarray | None:
    """Returns a table [class, client], or None if there is none.

    The larger a class, the more clients it dominates.
    """
    draws = rng(request.seed, "partition", "dominant")
    full = np.full(len(totals), clients)
    count = seats(totals, clients, draws.permutation(len(totals)), 0, full)
    main_class = draws.permutation(np.repeat(np.arange(len(totals)), count))
    sizes = equal_sizes(len(request.indices), clients)
    main_sizes = np.rint(share * sizes).astype(np.int64)
    used = np.bincount(main_class, weights=main_sizes, minlength=len(totals)).astype(np.int64)
    others = totals - used
    allowed = main_class[None] != np.arange(len(totals))[:, None]
    if others.min() < 0 or (others[~allowed.any(axis=1)] > 0).any():
        return None
    table = fitted(others, sizes - main_sizes, allowed, 0)
    table[main_class, np.arange(clients)] = main_sizes
    if (table.sum(axis=0) != sizes).any():
        return None
    return table
