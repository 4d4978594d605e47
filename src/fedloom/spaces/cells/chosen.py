"""Spaces of cells in which the operations on edges are chosen (DARTS; Liu, Simonyan, Yang 2019).

A cell has two inputs (the outputs of the two cells before it) and `nodes` intermediate nodes. Every
node is connected with all inputs and nodes before it: 2 + 3 + 4 + 5 = 14 edges for four nodes. Each
kind of cell is chosen once and repeated in the network. Such spaces differ in which kinds they have
and where each kind stands. A derived cell keeps two inputs per node, with one operation each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedloom.errors import FedloomError
from fedloom.spaces.space import NONE, OpId, Rivals, Slot, Space
from fedloom.types import Arch

INPUTS_KEPT = 2  # per node of a derived cell
MOST_NODES = 32  # per cell: the number of edges grows with their square

SKIP = "skip_connect"
MAX = "max_pool_3x3"
AVG = "avg_pool_3x3"
SEP3 = "sep_conv_3x3"
SEP5 = "sep_conv_5x5"
DIL3 = "dil_conv_3x3"
DIL5 = "dil_conv_5x5"
SHORT_NAMES = {
    SKIP: "skip",
    MAX: "max3",
    AVG: "avg3",
    SEP3: "sep3",
    SEP5: "sep5",
    DIL3: "dil3",
    DIL5: "dil5",
}
EIGHT = (NONE, MAX, AVG, SKIP, SEP3, SEP5, DIL3, DIL5)
# Op sets that are the same on every edge: s2 to s4 of Zela et al. 2020 ("Understanding and
# Robustifying Differentiable Architecture Search"); s5 is the full set without `none` (Wang et al.
# 2021).
UNIFORM = {
    "full": EIGHT,
    "s2": (SKIP, SEP3),
    "s3": (NONE, SKIP, SEP3),
    "s4": ("noise", SEP3),
    "s5": EIGHT[1:],
}


@dataclass(frozen=True)
class ChosenCells(Space):
    """Cells whose edges are chosen, once for each kind of cell."""

    refillable: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True

    ops: str = "full"  # an op set's name
    nodes: int = 4

    # What such spaces differ in

    @property
    @abstractmethod
    def cell_kinds(self) -> tuple[str, ...]:
        """The names of the kinds of cells, in the order of their slots."""

    @abstractmethod
    def kind_at(self, position: int, cells: int) -> str:
        """Returns the kind of the cell at a position, in a network of this many cells."""

    @abstractmethod
    def cell_title(self, kind: str) -> str:
        """Returns the title of a kind of cell in drawings."""

    def options_of(self, kind: str, edge: int) -> tuple[str, ...]:
        return UNIFORM[self.ops]

    def check_cells(self, cells: int) -> None:
        """Refuses a number of cells that this space cannot have. Most spaces accept any."""

    def operations_at_most(self, arch: Arch, cells: int) -> int:
        """Returns a bound: as if each cell had the operations of all kinds together."""
        return cells * sum(len(live) for live in arch.choice)

    # Its slots

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            rule = f"a cell must have 1 to {MOST_NODES} nodes"
            raise FedloomError(rule, f"got {self.nodes}", "try 4")

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(source, target): 0 and 1 are the cell's inputs, 2 and up its nodes."""
        edges = []
        for target in range(2, self.nodes + 2):
            for source in range(target):
                edges.append((source, target))
        return tuple(edges)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The edges of the first kind of cell, then those of the next."""
        return self._slots

    @cached_property
    def _slots(self) -> tuple[Slot, ...]:
        slots = []
        for kind in self.cell_kinds:
            for edge, (source, target) in enumerate(self.edges):
                slots.append(Slot(f"{kind}.{source}-{target}", self.options_of(kind, edge)))
        return tuple(slots)

    def short_name(self, option: str) -> str:
        return SHORT_NAMES.get(option, option)

    def bare(self) -> Arch:
        return Arch(self.name, ((),) * len(self.slots))

    def slots_of(self, kind: str) -> range:
        """The slots of one kind of cell."""
        first = self.cell_kinds.index(kind) * len(self.edges)
        return range(first, first + len(self.edges))

    def slots_into(self, kind: str, node: int) -> list[int]:
        """The slots that lead into one intermediate node of one kind of cell."""
        first = self.slots_of(kind).start
        slots = []
        for edge, (_, target) in enumerate(self.edges):
            if target == node + 2:
                slots.append(first + edge)
        return slots

    def node_slots(self) -> list[list[int]]:
        """The slots that lead into each node, for one kind of cell after the other."""
        nodes = []
        for kind in self.cell_kinds:
            for node in range(self.nodes):
                nodes.append(self.slots_into(kind, node))
        return nodes

    # Its architectures

    def sample(self, rng: np.random.Generator) -> Arch:
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for slots in self.node_slots():
            inputs = rng.choice(slots, size=INPUTS_KEPT, replace=False).tolist()
            for slot in sorted(inputs):
                choice[slot] = (int(rng.choice(self._useful(slot))),)
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """Redraws one input of one node: its source and its operation."""
        kind = self.cell_kinds[int(rng.integers(len(self.cell_kinds)))]
        slots = self.slots_into(kind, int(rng.integers(self.nodes)))
        used = [slot for slot in slots if arch.choice[slot]]
        dropped = int(rng.choice(used))
        moves = []
        for slot in slots:
            if slot in used and slot != dropped:
                continue
            for op in self._useful(slot):
                if (op,) != arch.choice[slot]:
                    moves.append(OpId(slot, op))
        move = moves[int(rng.integers(len(moves)))]
        choice = list(arch.choice)
        choice[dropped] = ()
        choice[move.slot] = (move.op,)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """Keeps, per node, the two inputs with the strongest best operation other than none."""
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for slots in self.node_slots():
            best = [self._strongest(slot, strength[slot]) for slot in slots]
            best.sort(key=lambda op: (-float(strength[op.slot][op.op]), op.slot))
            for slot, op in best[:INPUTS_KEPT]:
                choice[slot] = (op,)
        return Arch(self.name, tuple(choice))

    def _strongest(self, slot: int, strength: np.ndarray) -> OpId:
        """Returns the strongest operation of a slot other than none; of equals, the first."""
        op = min(self._useful(slot), key=lambda op: (-float(strength[op]), op))
        return OpId(slot, op)

    def _useful(self, slot: int) -> list[int]:
        return [op for op, name in enumerate(self.slots[slot].options) if name != NONE]

    def together(self) -> list[tuple[int, ...]]:
        """Groups the same edge of all kinds of cells."""
        slots_of_cells = [self.slots_of(kind) for kind in self.cell_kinds]
        return list(zip(*slots_of_cells, strict=True))

    def rivals(self) -> list[Rivals]:
        """The inputs of every node, of which two are kept."""
        return [Rivals(tuple(slots), INPUTS_KEPT) for slots in self.node_slots()]
