"""Tables with given sums: how many samples of each class every client gets.

A table is made in two steps: first real numbers with these sums, by scaling rows and columns in
turns, then whole numbers near them. Real numbers are rounded to millionths of a sample before any
decision depends on them, so that the last bits of a sum, in which platforms differ, do not matter.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from fedloom.data.partitions.rule import PartitionRequest
from fedloom.rng import rng

TURNS = 500  # of scaling, at most; a few are enough unless the wish is far from the sums
MILLION = 1_000_000
FEW_TURNS = 20
TINY = 1e-300  # replaces a sum of 0, by which nothing can be divided
PUSHES = 10_000  # at most, until all clients have their sizes; a few dozen are enough in practice


def equal_sizes(samples: int, clients: int) -> np.ndarray:
    """Returns the sizes of clients that differ by one sample at most."""
    sizes: np.ndarray = samples // clients + (np.arange(clients) < samples % clients)
    return sizes


def owners(request: PartitionRequest, table: np.ndarray) -> np.ndarray:
    """Returns the client of each sample, by a table [class, client] of the classes that occur.

    Which sample of a class goes to which client is random.
    """
    order = rng(request.seed, "partition", "order").permutation(len(request.indices))
    # Class after class, shuffled within each.
    by_class = order[np.argsort(request.y[order], kind="stable")]
    clients = np.tile(np.arange(table.shape[1]), len(table))
    owner = np.empty(len(order), np.int64)
    owner[by_class] = np.repeat(clients, table.ravel())
    return owner


def scaled(
    wish: np.ndarray,
    totals: np.ndarray,
    sizes: np.ndarray,
    turns: int = TURNS,
) -> np.ndarray:
    """Returns the table [class, client] with these sums that is nearest to `wish`.

    Distance is relative entropy, and at most `turns` steps are made. The sums of classes always
    hold; those of clients hold if `wish` is above 0 in enough cells.
    """
    table: np.ndarray = wish * (totals / np.maximum(wish.sum(axis=1), TINY))[:, None]
    for _ in range(turns):
        sums = table.sum(axis=0)
        if np.abs(sums - sizes).max() < 0.01:  # samples
            break
        table *= sizes / np.maximum(sums, TINY)
        table *= (totals / np.maximum(table.sum(axis=1), TINY))[:, None]
    return table


def millionths(table: np.ndarray) -> np.ndarray:
    """Returns numbers of samples as whole numbers of millionths."""
    parts: np.ndarray = np.rint(table * MILLION).astype(np.int64)
    return parts


def floor(parts: np.ndarray) -> np.ndarray:
    """Returns whole samples; one that lacks a single millionth counts as whole."""
    whole: np.ndarray = (parts + 1) // MILLION
    return whole


def rounded(wish: np.ndarray, totals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Rounds `wish`, whose client sums are right, to whole numbers with exact class sums too.

    Each client's numbers are rounded by largest remainders. Then clients exchange single samples,
    and those that come nearest to `wish` by it do so first.
    """
    goal = millionths(wish)
    table = floor(goal)
    by_remainder = np.argsort(table * MILLION - goal, axis=0, kind="stable")
    rank = np.argsort(by_remainder, axis=0, kind="stable")
    table += rank < sizes - table.sum(axis=0)
    while True:
        surplus = table.sum(axis=1) - totals
        fullest = int(surplus.argmax())  # the class with the most samples too many
        scarcest = int(surplus.argmin())
        if surplus[fullest] == 0:
            return table
        gain = MILLION * (table[fullest] - table[scarcest]) - goal[fullest] + goal[scarcest]
        has_none = table[fullest] == 0  # such clients have nothing to give
        gain[has_none] = -4 * MILLION * int(sizes.max())
        count = min(surplus[fullest], -surplus[scarcest], (table[fullest] > 0).sum())
        chosen = np.argsort(-gain, kind="stable")[:count]
        table[fullest, chosen] -= 1
        table[scarcest, chosen] += 1


def seats(
    weights: np.ndarray,
    count: int,
    ties: np.ndarray,
    least: int,
    most: np.ndarray,
) -> np.ndarray:
    """Distributes `count` seats by highest averages.

    So the smallest weights[i] / seats[i] is as large as it can be. Everyone gets at least `least`
    seats and at most most[i]. Of equal claims, the one with the lower number in `ties` comes first.
    """
    taken = [least] * len(weights)
    heap: list[tuple[float, int, int]] = []  # (−claim, tie, owner), so the highest claim is first
    for i, weight in enumerate(weights):
        if most[i] > least:
            heap.append((-int(weight) / (least + 1), int(ties[i]), i))
    heapify(heap)
    for _ in range(count - least * len(weights)):
        _, tie, i = heappop(heap)
        taken[i] += 1
        if taken[i] < most[i]:
            heappush(heap, (-int(weights[i]) / (taken[i] + 1), tie, i))
    return np.array(taken, np.int64)


def fitted(totals: np.ndarray, sizes: np.ndarray, allowed: np.ndarray, least: int) -> np.ndarray:
    """Returns a table [class, client] with class sums `totals`.

    Its cells are at least `least` where `allowed`, and 0 elsewhere. Client sums are `sizes` if that
    is possible: samples move from clients that have too many to those that have too few, along
    shortest paths. That is a maximum flow, so no table with these cells comes nearer to `sizes`.
    """
    spare = totals - least * allowed.sum(axis=1)
    room = np.maximum(sizes - least * allowed.sum(axis=0), 0.01)
    start = scaled(allowed * 1.0, spare, room, FEW_TURNS)  # a good start is enough
    table = floor(millionths(start))
    table[allowed] += least
    # Larger than any surplus, so that clients that may not hold a class come last.
    last = len(sizes) + sizes.sum()
    for row, total, may_hold in zip(table, totals, allowed, strict=True):
        surplus = np.where(may_hold, table.sum(axis=0) - sizes, last)
        neediest_first = np.argsort(surplus, kind="stable")
        row[neediest_first[: total - row.sum()]] += 1
    for _ in range(PUSHES):
        surplus = table.sum(axis=0) - sizes
        path = shortest_path(table, surplus, allowed, least)
        if not path:
            break
        push(table, surplus, allowed, least, path)
    return table


def shortest_path(
    table: np.ndarray,
    surplus: np.ndarray,
    allowed: np.ndarray,
    least: int,
) -> list[int]:
    """Returns the shortest path of classes from a client with a surplus to one that lacks samples.

    Samples can be passed along these classes. The path is empty if there is none.
    """
    spare = allowed & (table > least)
    is_lacking = np.any(allowed & (surplus < 0), axis=1)  # by class: some holder lacks samples
    starts = np.flatnonzero((spare & (surplus > 0)).any(axis=1))
    previous = {int(label): -1 for label in starts}  # the class before each on its path; −1: none
    queue = list(previous)
    for label in queue:
        if is_lacking[label]:
            path = [label]
            while previous[path[0]] >= 0:
                path.insert(0, previous[path[0]])
            return path
        for neighbour in np.flatnonzero((spare & allowed[label]).any(axis=1)):
            if int(neighbour) not in previous:
                previous[int(neighbour)] = label
                queue.append(int(neighbour))
    return []


def push(
    table: np.ndarray,
    surplus: np.ndarray,
    allowed: np.ndarray,
    least: int,
    path: list[int],
) -> None:
    """Moves as many samples along the path as possible.

    Clients with a surplus give samples of the path's first class, and clients that lack some take
    samples of its last. In between, a client that holds two neighbouring classes takes samples of
    the one and gives as many of the other.
    """
    spare = np.where(allowed, table - least, 0)
    first = path[0]
    last = path[-1]
    giving = np.minimum(spare[first], np.maximum(surplus, 0))
    taking = np.where(allowed[last], np.maximum(-surplus, 0), 0)
    bridges = [np.where(allowed[here], spare[there], 0) for here, there in pairwise(path)]
    amount = min(int(room.sum()) for room in (giving, taking, *bridges))
    table[first] -= filled(giving, amount)
    table[last] += filled(taking, amount)
    for (here, there), room in zip(pairwise(path), bridges, strict=True):
        crossing = filled(room, amount)
        table[here] += crossing
        table[there] -= crossing


def filled(room: np.ndarray, amount: int) -> np.ndarray:
    """Fills the rooms one after the other until `amount` is used up."""
    before = np.cumsum(room) - room  # the room of all that come before
    shares: np.ndarray = np.clip(amount - before, 0, room)
    return shares
