"""Sub-spaces: a few operations of every slot, drawn at random, that together stay within a limit.

FINCH sends one to each cluster. Its cost is the MACs of a network with all of its operations. MACs
add up, so a table of MACs by slot and operation is computed once and used often.

A sub-space is drawn uniformly, slot by slot. Then one pass over the slots, in random order, makes
it fit: a slot keeps its operations if all slots after it could still be made cheap enough;
otherwise its most expensive operation is replaced by a cheaper one until they could. Hence:

- A sub-space that fits as it was drawn is never changed, and nothing is ever rejected.
- The result always fits if the cheapest sub-space does: no slot comes after the last one.
- Every operation that is in some sub-space within the limit can be drawn. With n operations in its
  slot, m of them kept and s slots, its probability is at least 1 / (s · C(n, m)): the case that its
  slot comes first, and is drawn with the cheapest others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedloom.errors import FedloomError
from fedloom.spaces.space import Size, Space
from fedloom.types import Arch


@dataclass(frozen=True)
class MacsTable:
    """The MACs of one sample's forward pass: a fixed part, and those of every operation."""

    fixed: int
    rows: tuple[tuple[int, ...], ...]  # by slot and operation

    def of(self, arch: Arch) -> int:
        """Returns the MACs of a network with all operations of `arch`."""
        macs = self.fixed
        for row, live in zip(self.rows, arch.choice, strict=True):
            macs += cost_of(live, row)
        return macs

    def everything(self) -> int:
        """Returns the MACs of the whole supernet."""
        return self.fixed + sum(sum(row) for row in self.rows)

    def least(self, ops_per_edge: int) -> int:
        """Returns the MACs of the cheapest sub-space."""
        return self.fixed + sum(self.least_of_slots(ops_per_edge))

    def least_of_slots(self, ops_per_edge: int) -> list[int]:
        """Returns the lowest MACs of each slot, without the fixed part."""
        sums = []
        for row in self.rows:
            cheapest = sorted(row)[:ops_per_edge]
            sums.append(sum(cheapest))
        return sums


@lru_cache(maxsize=8)
def macs_table(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> MacsTable:
    """Returns the MACs that every operation adds to a network without any, by formula."""
    bare = space.bare()
    if bare is None:
        rule = "sub-spaces must be of a space whose network works without any operation"
        raise FedloomError(rule, f"that of {space.title} does not", "choose another space")

    def macs(arch: Arch) -> int:
        return space.cost(shape, classes, arch, size).macs

    fixed = macs(bare)
    rows = []
    for number, slot in enumerate(space.slots):
        row = []
        for op in range(len(slot.options)):
            choice = (*bare.choice[:number], (op,), *bare.choice[number + 1 :])
            row.append(macs(Arch(space.name, choice)) - fixed)
        rows.append(tuple(row))
    table = MacsTable(fixed, tuple(rows))
    if table.everything() != macs(space.full()):
        rule = "sub-spaces must be of a space in which the MACs of operations add up"
        raise FedloomError(rule, f"in {space.title} they do not", "choose another space")
    return table


def check_subspaces(
    space: Space, table: MacsTable, ops_per_edge: int, flops_max: int | None
) -> None:
    """Refuses settings for which no sub-space can be drawn."""
    fewest = min(space.slots, key=lambda slot: len(slot.options))
    if not 1 <= ops_per_edge <= len(fewest.options):
        rule = f"ops_per_edge must be 1 to {len(fewest.options)}, the operations of {fewest.name}"
        raise FedloomError(rule, f"got {ops_per_edge}", f"set it to {min(2, len(fewest.options))}")
    least = table.least(ops_per_edge)
    if flops_max is not None and flops_max < least:
        rule = f"flops_max must be at least {least:,} MACs, those of the cheapest sub-space"
        raise FedloomError(rule, f"got {flops_max:,}", f"set flops_max={least} or more")


def draw_subspace(
    space: Space,
    table: MacsTable,
    ops_per_edge: int,
    flops_max: int | None,
    rng: np.random.Generator,
) -> Arch:
    """Draws a sub-space with `ops_per_edge` operations per slot and at most `flops_max` MACs.

    If `flops_max` is None, there is no limit.
    """
    check_subspaces(space, table, ops_per_edge, flops_max)
    choice = drawn_uniformly([len(slot.options) for slot in space.slots], ops_per_edge, rng)
    if flops_max is not None:
        make_fit(choice, table, flops_max, rng)
    return Arch(space.name, tuple(tuple(ops) for ops in choice))


def drawn_uniformly(
    options: Sequence[int], count: int, rng: np.random.Generator
) -> list[list[int]]:
    """Draws `count` options of every slot without replacement: those with the smallest draws."""
    draws = rng.random((len(options), max(options)))
    for slot, existing in enumerate(options):
        draws[slot, existing:] = np.inf
    smallest = np.argsort(draws, axis=1)[:, :count]
    choice: list[list[int]] = np.sort(smallest, axis=1).tolist()
    return choice


def make_fit(
    choice: list[list[int]], table: MacsTable, flops_max: int, rng: np.random.Generator
) -> None:
    """Makes `choice` fit in one pass over the slots, in place, with as many operations each."""
    least = table.least_of_slots(len(choice[0]))
    spare = flops_max - table.fixed - sum(least)  # if all later slots have their lowest cost
    for slot in rng.permutation(len(choice)).tolist():
        row = table.rows[slot]
        affordable = least[slot] + spare
        cost = cost_of(choice[slot], row)
        if cost > affordable:
            choice[slot] = cheaper(choice[slot], row, affordable, rng)
            cost = cost_of(choice[slot], row)
        spare = affordable - cost


def cheaper(
    live: Sequence[int], row: Sequence[int], affordable: int, rng: np.random.Generator
) -> list[int]:
    """Replaces the most expensive operation by a cheaper one, until the slot is affordable.

    The replacement is drawn from the operations that make the slot affordable. If there is none, it
    is drawn from the cheapest, and the operation that is then the most expensive is replaced next.
    """
    ops = list(live)
    cost = cost_of(ops, row)
    while cost > affordable:
        dearest = max(ops, key=lambda op: row[op])
        unused = sorted(set(range(len(row))) - set(ops))
        affordable_replacement = affordable - (cost - row[dearest])
        candidates = [op for op in unused if row[op] <= affordable_replacement]
        if not candidates:
            lowest = min(row[op] for op in unused)
            candidates = [op for op in unused if row[op] == lowest]
        replacement = candidates[int(rng.integers(len(candidates)))]
        ops.remove(dearest)
        ops.append(replacement)
        cost += row[replacement] - row[dearest]
    return sorted(ops)


def cost_of(ops: Sequence[int], row: Sequence[int]) -> int:
    """Returns the sum of the MACs of these operations of a slot."""
    return sum(row[op] for op in ops)
