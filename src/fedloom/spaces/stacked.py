"""Networks that repeat cells: the owner of each weight, and the slots of each cell."""

from __future__ import annotations

from fedloom.errors import FedloomError
from fedloom.nets.model import MOST_WEIGHTS
from fedloom.spaces.choice import Place
from fedloom.spaces.options import MOST_CELLS, MOST_CHANNELS
from fedloom.spaces.space import OpId
from fedloom.spaces.supernet import Supernet

MOST_OPERATIONS = 50_000  # in all cells together; each takes about a millisecond to build


class StackedCells(Supernet):
    """A supernet whose operations are named `cells.NUMBER.edges.EDGE.NAME`.

    Several cells may share their slots.
    """

    def first_slot(self, cell: int) -> int:
        """Returns the first slot of this cell's kind."""
        raise NotImplementedError

    def owner(self, key: str) -> OpId | None:
        parts = key.split(".")
        if parts[0] != "cells" or "edges" not in parts:
            return None
        cell = int(parts[1])
        begin = parts.index("edges") + 1
        edge = parts[begin]
        name = parts[begin + 1]
        slot = self.first_slot(cell) + int(edge)
        return OpId(slot, self.space.slots[slot].options.index(name))

    def place(self, cell: int, edges: int) -> Place:
        """Returns the place of a cell with this many edges, for which a choice is asked."""
        first = self.first_slot(cell)
        return Place(cell, range(first, first + edges))


def check_counts(cells: int, channels: int) -> None:
    if not 1 <= cells <= MOST_CELLS or not 1 <= channels <= MOST_CHANNELS:
        rule = f"a network must have 1 to {MOST_CELLS} cells and 1 to {MOST_CHANNELS} channels"
        raise FedloomError(rule, f"got {cells} and {channels}", "try 8 and 16")


def check_weights(operations: int, cells: int, channels: int) -> None:
    """Refuses a network that is too large for memory or too slow, before anything is allocated.

    `operations` is the number of operations in all cells. The number of weights is an estimate: two
    1×1 convolutions per operation, with the channels of the last cells.
    """
    weights = 2 * operations * (4 * channels) ** 2
    if operations > MOST_OPERATIONS or weights > MOST_WEIGHTS:
        most = f"{MOST_OPERATIONS:,} operations and about {MOST_WEIGHTS:,} weights"
        rule = f"a network must have at most {most}"
        problem = f"{cells} cells of {channels} channels have about {operations:,} and {weights:,}"
        raise FedloomError(rule, problem, "use fewer cells or channels")
