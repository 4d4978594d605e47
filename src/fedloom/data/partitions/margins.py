"""Whole numbers with given sums: how many samples of each class every client gets.

A table is made in two steps: real numbers with these sums, by scaling rows and columns in turns,
and whole numbers near them. Real numbers are rounded to millionths of a sample before anything is
decided by them, so that the last bits of a sum, in which platforms differ, do not matter.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from fedloom.data.partitions.rule import Ask
from fedloom.rng import rng

TURNS = 500  # of scaling, at most; a few do unless the wish is far from the sums
MILLION = 1_000_000
FEW_TURNS = 20
TINY = 1e-300  # instead of a sum of nothing, which nothing can scale
PUSHES = 10_000  # of a table that is being levelled; a few dozen do in practice


def equal_sizes(samples: int, clients: int) -> np.ndarray:
    """Sizes that differ by one sample at most."""
    sizes: np.ndarray = samples // clients + (np.arange(clients) < samples % clients)
    return sizes


def owners(ask: Ask, table: np.ndarray) -> np.ndarray:
    """The client of each sample, by a table [class, client] of the classes that occur.

    Who gets which sample is random.
    """
    order = rng(ask.seed, "partition", "order").permutation(len(ask.indices))
    # Class after class, shuffled within each.
    by_class = order[np.argsort(ask.y[order], kind="stable")]
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
    """The table [class, client] nearest to a wish (in relative entropy) with these sums.

    It is as near as `turns` bring it. The sums of classes hold in any case; those of clients hold
    if a wish above 0 stands in enough cells.
    """
    table: np.ndarray = wish * (totals / np.maximum(wish.sum(axis=1), TINY))[:, None]
    for _ in range(turns):
        sums = table.sum(axis=0)
        if np.abs(sums - sizes).max() < 0.01:  # of a sample
            break
        table *= sizes / np.maximum(sums, TINY)
        table *= (totals / np.maximum(table.sum(axis=1), TINY))[:, None]
    return table


def millionths(table: np.ndarray) -> np.ndarray:
    parts: np.ndarray = np.rint(table * MILLION).astype(np.int64)
    return parts


def floor(parts: np.ndarray) -> np.ndarray:
    """Whole samples of millionths; one that lacks a single millionth counts as whole."""
    whole: np.ndarray = (parts + 1) // MILLION
    return whole


def rounded(wish: np.ndarray, totals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whole numbers near a wish, whose client sums are right, with exactly the sums of classes too.

    Each client is rounded by largest remainders; then clients exchange single samples, those first
    whom it brings nearest.
    """
    goal = millionths(wish)
    table = floor(goal)
    by_remainder = np.argsort(table * MILLION - goal, axis=0, kind="stable")
    rank = np.argsort(by_remainder, axis=0, kind="stable")
    table += rank < sizes - table.sum(axis=0)
    while True:
        surplus = table.sum(axis=1) - totals
        much = int(surplus.argmax())
        little = int(surplus.argmin())
        if surplus[much] == 0:
            return table
        gain = MILLION * (table[much] - table[little]) - goal[much] + goal[little]
        gain[table[much] == 0] = -4 * MILLION * int(sizes.max())  # has none to give
        count = min(surplus[much], -surplus[little], (table[much] > 0).sum())
        chosen = np.argsort(-gain, kind="stable")[:count]
        table[much, chosen] -= 1
        table[little, chosen] += 1


def seats(
    weights: np.ndarray,
    count: int,
    ties: np.ndarray,
    least: int,
    most: np.ndarray,
) -> np.ndarray:
    """`count` seats by highest averages.

    So the smallest weights[i] / seats[i] is as large as it can be. Nobody has fewer than `least` or
    more than most[i]; of equal claims that of the lower tie comes first.
    """
    taken = [least] * len(weights)
    heap: list[tuple[float, int, int]] = []  # the highest claim first: its negative, tie and owner
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
    """A table [class, client] with class sums `totals`.

    Its cells are at least `least` where allowed, 0 elsewhere. Client sums are `sizes` if that can
    be: samples go from clients that have too many to those that have too few, along shortest paths.
    That is a maximum flow, so what is still wrong at the end cannot be mended with these cells.
    """
    spare = totals - least * allowed.sum(axis=1)
    room = np.maximum(sizes - least * allowed.sum(axis=0), 0.01)
    start = scaled(allowed * 1.0, spare, room, FEW_TURNS)  # a good begin is enough
    table = floor(millionths(start))
    table[allowed] += least
    last = len(sizes) + sizes.sum()  # larger than any surplus: who may not hold a class comes last
    for row, total, may_hold in zip(table, totals, allowed, strict=True):
        surplus = np.where(may_hold, table.sum(axis=0) - sizes, last)
        neediest_first = np.argsort(surplus, kind="stable")
        row[neediest_first[: total - row.sum()]] += 1
    for _ in range(PUSHES):
        surplus = table.sum(axis=0) - sizes
        path = shortest(table, surplus, allowed, least)
        if not path:
            break
        push(table, surplus, allowed, least, path)
    return table


def shortest(
    table: np.ndarray,
    surplus: np.ndarray,
    allowed: np.ndarray,
    least: int,
) -> list[int]:
    """Classes through which samples can go from a client with a surplus to one that lacks some.

    It is empty if there are none.
    """
    spare = allowed & (table > least)
    short = np.any(allowed & (surplus < 0), axis=1)
    begins = np.flatnonzero((spare & (surplus > 0)).any(axis=1))
    before = {int(label): -1 for label in begins}  # from which class each was reached; −1: a begin
    queue = list(before)
    for here in queue:
        if short[here]:
            path = [here]
            while before[path[0]] >= 0:
                path.insert(0, before[path[0]])
            return path
        for further in np.flatnonzero((spare & allowed[here]).any(axis=1)):
            if int(further) not in before:
                before[int(further)] = here
                queue.append(int(further))
    return []


def push(
    table: np.ndarray,
    surplus: np.ndarray,
    allowed: np.ndarray,
    least: int,
    path: list[int],
) -> None:
    """As much as goes along the path.

    It goes out of its first class, over clients that hold two classes, into its last.
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
    """`amount` laid into the rooms, one after the other."""
    begin = np.cumsum(room) - room
    laid: np.ndarray = np.clip(amount - begin, 0, room)
    return laid
