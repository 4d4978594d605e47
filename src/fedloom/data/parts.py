"""A client's parts: what of its samples is for testing, for training, and for validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.rng import rng

TEST = 2  # in Source.official
RANK = np.array([1, 2, 0], np.int8)  # train, validation, test: which comes when


def check_shares(test: float, server_share: float, min_samples: int) -> None:
    if not 0 < test < 1:
        raise FedloomError("the test share must lie between 0 and 1", f"got {test}", "try 0.2")
    if not 0 <= server_share < 1:
        rule = "the server's share must be 0 or more and below 1"
        raise FedloomError(rule, f"got {server_share}", "try 0.1")
    if min_samples < 2:
        rule = "min_samples must be at least 2, one to train on and one to test on"
        raise FedloomError(rule, f"got {min_samples}", "try 10")


def official_first(
    source: Source,
    orders: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Each client's samples with the data set's own test part in front, and how many those are.

    Validation samples come last, where what is held back is taken from; else the order stays.
    """
    if source.official is None:
        rule = "`--parts official` must have data with an official test part"
        raise FedloomError(rule, f"{source.name} has none", "leave --parts out")
    official = source.official
    tests = np.array([int((official[order] == TEST).sum()) for order in orders])
    sizes = np.array([len(order) for order in orders])
    if (tests == 0).any():
        raise not_official(source, orders, "no", tests == 0)
    if (tests == sizes).any():
        raise not_official(source, orders, "only", tests == sizes)
    ordered = []
    for order in orders:
        ranks = RANK[official[order]]
        ordered.append(order[np.argsort(ranks, kind="stable")])
    return ordered, tests


def not_official(
    source: Source,
    orders: Sequence[np.ndarray],
    how_many: str,
    wrong: np.ndarray,
) -> FedloomError:
    first = int(wrong.argmax())
    client = f"client {first}"
    name = group_name(source, orders[first])
    if name:
        client = f"{client} ({name})"
    clients = f"{int(wrong.sum())} of {len(orders)} clients"
    return FedloomError(
        "`--parts official` must leave every client samples of the official test part, and others",
        f"{client} has {how_many} test samples, and so have {clients}",
        "try fewer --clients, --partition iid, or leave --parts out",
    )


def group_name(source: Source, own: np.ndarray) -> str:
    """Of the one group that these samples come from; empty: of none, or of several."""
    if source.groups is None:
        return ""
    groups = np.unique(source.groups[own])
    if len(groups) != 1:
        return ""
    return source.group_names[int(groups[0])]


def own_order(seed: int, client: int, samples: int) -> np.ndarray:
    """How a client orders its samples, which come sorted: the test part first, then the rest."""
    return rng(seed, client, "parts").permutation(samples)


def size_of_test(samples: int, share: float) -> int:
    """At least one sample to test on, and at least one left."""
    return min(samples - 1, max(1, round(share * samples)))


def size_of_held(rest: int, share: float) -> int:
    """What of a client's rest is held back for validation.

    That is nothing, or at least one sample, and never all.
    """
    if not share:
        return 0
    return min(rest - 1, max(1, round(share * rest)))
