"""A client's parts: which of its samples are for testing, for training and for validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.rng import rng

TEST = 2  # in Source.official
# The place of training, validation and test samples in a client's order: test samples come first.
RANK = np.array([1, 2, 0], np.int8)


def check_shares(test: float, server_share: float, min_samples: int) -> None:
    if not 0 < test < 1:
        raise FedloomError("the test share must lie between 0 and 1", f"got {test}", "try 0.2")
    if not 0 <= server_share < 1:
        rule = "the server's share must be 0 or more and below 1"
        raise FedloomError(rule, f"got {server_share}", "try 0.1")
    if min_samples < 2:
        rule = "min_samples must be at least 2, one to train on and one to test on"
        raise FedloomError(rule, f"got {min_samples}", "try 10")


class OrderedClients(NamedTuple):
    """The samples of each client, its test part first, and the sizes of these parts."""

    orders: list[np.ndarray]
    tests: np.ndarray


def official_first(
    source: Source,
    orders: Sequence[np.ndarray],
) -> OrderedClients:
    """Puts the data set's own test samples first in each client's order, and counts them.

    Validation samples come last, because samples to hold back are taken from the end. Otherwise the
    order stays as it is.
    """
    if source.official is None:
        rule = "`--parts official` must have data with an official test part"
        raise FedloomError(rule, f"{source.name} has none", "leave --parts out")
    official = source.official
    tests = np.array([int((official[order] == TEST).sum()) for order in orders])
    sizes = np.array([len(order) for order in orders])
    if (tests == 0).any():
        raise unfit_parts(source, orders, "no", tests == 0)
    if (tests == sizes).any():
        raise unfit_parts(source, orders, "only", tests == sizes)
    ordered = []
    for order in orders:
        ranks = RANK[official[order]]
        ordered.append(order[np.argsort(ranks, kind="stable")])
    return OrderedClients(ordered, tests)


def unfit_parts(
    source: Source,
    orders: Sequence[np.ndarray],
    how_many: str,
    wrong: np.ndarray,
) -> FedloomError:
    first_client = int(wrong.argmax())
    client = f"client {first_client}"
    name = group_name(source, orders[first_client])
    if name:
        client = f"{client} ({name})"
    clients = f"{int(wrong.sum())} of {len(orders)} clients"
    return FedloomError(
        "`--parts official` must leave every client samples of the official test part, and others",
        f"{client} has {how_many} test samples, and so have {clients}",
        "try fewer --clients, --partition iid, or leave --parts out",
    )


def group_name(source: Source, indices: np.ndarray) -> str:
    """Returns the name of the one group that these samples come from.

    It is empty if there are no groups, or if the samples come from several.
    """
    if source.groups is None:
        return ""
    groups = np.unique(source.groups[indices])
    if len(groups) != 1:
        return ""
    return source.group_names[int(groups[0])]


def own_order(seed: int, client: int, samples: int) -> np.ndarray:
    """Returns a random order of a client's sorted samples. Its test part comes first."""
    return rng(seed, client, "parts").permutation(samples)


def size_of_test(samples: int, share: float) -> int:
    """Returns how many samples are for testing: at least one, and never all."""
    return min(samples - 1, max(1, round(share * samples)))


def size_of_held(rest: int, share: float) -> int:
    """Returns how many of a client's `rest` samples outside its test part are held back.

    They are for validation: none if the share is 0, otherwise at least one, and never all.
    """
    if not share:
        return 0
    return min(rest - 1, max(1, round(share * rest)))
