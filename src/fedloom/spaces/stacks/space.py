"""Two stacks of cells: Hoang, Kingsford, "Personalized Neural Architecture Search for Federated
Learning" (FedPNAS), §3.2.

All clients share a base stack; the personal stack after it may be fitted by each client to its own
task. Every edge of every cell is chosen separately; nothing is shared between cells. A base cell
takes the outputs of the two cells before it, a personal cell only that of the cell before it. A
node is connected with all inputs and nodes before it in its cell. Personal cells have no large
operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field

from fedloom.errors import FedloomError, unknown
from fedloom.options import Options
from fedloom.spaces.cells.chosen import AVG, DIL3, DIL5, MAX, SEP3, SEP5, SHORT_NAMES, SKIP
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Size, Slot, Space
from fedloom.types import Arch

SEP7 = "sep_conv_7x7"
HOURGLASS = "conv_7x1_1x7"
BASE_OPS = (AVG, MAX, SEP3, SEP5, SEP7, DIL3, DIL5, HOURGLASS, SKIP)
PERSONAL_OPS = (AVG, MAX, SEP3, DIL3, SKIP)
MORE_SHORT_NAMES = {SEP7: "sep7", HOURGLASS: "conv7"}
BASE_INPUTS = 2  # of a base cell: the outputs of the two cells before it
PERSONAL_INPUTS = 1
MOST_CELLS = 100  # per stack
MOST_NODES = 16  # per cell: the number of edges grows with their square
MOST_EDGES = 999  # the names of α have three digits
Node = Literal["mean", "sum"]

Edge = tuple[int, int]  # source and target: first a cell's inputs, then its nodes


class StackParameters(Options):
    base_cells: int = Field(3, description=f"cells that all clients share, 1 to {MOST_CELLS}")
    personal_cells: int = Field(1, description=f"personal cells after them, 1 to {MOST_CELLS}")
    nodes: int = Field(2, description=f"nodes of a cell, 1 to {MOST_NODES}")
    node: Node = Field("mean", description="how a node combines its edges")


class StackedCell(NamedTuple):
    """One cell of the network."""

    name: str  # `base.0`
    edges: tuple[Edge, ...]
    options: tuple[str, ...]  # the same for every edge
    inputs: int
    reduces: bool
    slots: range


@dataclass(frozen=True)
class StackSpace(Space):
    """A shared base stack and a personal stack, every edge chosen separately: FedPNAS's space."""

    family: ClassVar[str] = "stacks"
    schema: ClassVar[type[Options]] = StackParameters
    optional_in_name: ClassVar[int] = 1  # a node is usually the mean of its edges
    refillable: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    searches_usual_cells: ClassVar[bool] = True
    personal: ClassVar[tuple[str, ...]] = ("personal.", "classifier.")
    light_options: ClassVar[tuple[str, ...]] = (AVG, MAX, SKIP)
    tiny: ClassVar[Mapping[str, Any]] = {"base_cells": 1, "personal_cells": 1, "nodes": 1}

    base_cells: int = 3
    personal_cells: int = 1
    nodes: int = 2
    node: Node = "mean"

    def __post_init__(self) -> None:
        for name, most in (
            ("base_cells", MOST_CELLS),
            ("personal_cells", MOST_CELLS),
            ("nodes", MOST_NODES),
        ):
            count = getattr(self, name)
            if not 1 <= count <= most:
                rule = f"{name} of the space stacks must be 1 to {most}"
                raise FedloomError(rule, f"got {count}", "try stacks:3:1:2")
        if self.node not in get_args(Node):
            raise unknown("the node rule of stacks", self.node, get_args(Node))
        if len(self.slots) > MOST_EDGES:
            rule = f"stacks must have at most {MOST_EDGES} edges"
            raise FedloomError(rule, f"{self.name} has {len(self.slots)}", "use fewer cells")
        usual = Size(cells=self.base_cells + self.personal_cells, channels=16)
        object.__setattr__(self, "usual", usual)

    # Its name

    @property
    def parameters(self) -> str:
        """For example `3:1:2`, or `3:1:2:sum` if a node is the sum of its edges."""
        sizes = f"{self.base_cells}:{self.personal_cells}:{self.nodes}"
        if self.node == "mean":
            return sizes
        return f"{sizes}:{self.node}"

    # Its slots

    @cached_property
    def cells(self) -> tuple[StackedCell, ...]:
        """The cells of the base stack, then those of the personal stack."""
        cells = []
        first_slot = 0
        base_edges = edges_of(BASE_INPUTS, self.nodes)
        for number in range(self.base_cells):
            slots = range(first_slot, first_slot + len(base_edges))
            reduces = number in reductions(self.base_cells)
            name = f"base.{number}"
            cells.append(StackedCell(name, base_edges, BASE_OPS, BASE_INPUTS, reduces, slots))
            first_slot = slots.stop
        personal_edges = edges_of(PERSONAL_INPUTS, self.nodes)
        for number in range(self.personal_cells):
            slots = range(first_slot, first_slot + len(personal_edges))
            name = f"personal.{number}"
            cell = StackedCell(name, personal_edges, PERSONAL_OPS, PERSONAL_INPUTS, False, slots)
            cells.append(cell)
            first_slot = slots.stop
        return tuple(cells)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self._slots

    @cached_property
    def _slots(self) -> tuple[Slot, ...]:
        slots = []
        for cell in self.cells:
            for source, target in cell.edges:
                slots.append(Slot(f"{cell.name}.{source}-{target}", cell.options))
        return tuple(slots)

    def slots_by_cell(self) -> list[range]:
        return [cell.slots for cell in self.cells]

    def short_name(self, option: str) -> str:
        return {**SHORT_NAMES, **MORE_SHORT_NAMES}.get(option, option)

    def check_cells(self, cells: int) -> None:
        if cells != self.usual.cells:
            rule = f"a network of {self.name} must have its {self.usual.cells} cells"
            raise FedloomError(rule, f"got {cells}", "leave cells out, or name other stacks")

    # Its architectures

    def bare(self) -> Arch:
        return Arch(self.name, ((),) * len(self.slots))

    def sample(self, rng: np.random.Generator) -> Arch:
        choice = []
        for slot in self.slots:
            choice.append((int(rng.integers(len(slot.options))),))
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        slot = int(rng.integers(len(self.slots)))
        options = range(len(self.slots[slot].options))
        others = [op for op in options if (op,) != arch.choice[slot]]
        choice = list(arch.choice)
        choice[slot] = (int(rng.choice(others)),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """Returns the strongest operation of every edge."""
        return Arch(self.name, tuple((int(np.argmax(row)),) for row in strength))


def edges_of(inputs: int, nodes: int) -> tuple[Edge, ...]:
    """Returns the edges of a cell: every node is connected with all inputs and nodes before it."""
    edges = []
    for target in range(inputs, inputs + nodes):
        for source in range(target):
            edges.append((source, target))
    return tuple(edges)
