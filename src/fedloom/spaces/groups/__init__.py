"""A group of cells, each with its own edges, that is repeated in the network.

FINCH (its §4) searches four cells in a row, of which the second and the third reduce, and stacks
the resulting group five times. A cell of the network is a copy of the group's cell at its position.
Only the depth decides where the map is halved (spaces/reductions.py), so all other copies of a cell
that reduced in the search have stride 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from fedloom.errors import FedloomError, unknown
from fedloom.options import Options
from fedloom.spaces.cells.chosen import MOST_NODES
from fedloom.spaces.cells.whole import WholeCells
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Size
from fedloom.types import Arch

OpSet = Literal["full", "s2", "s3", "s4", "s5"]  # the op sets that are the same on every edge
OP_SETS = get_args(OpSet)
MOST_CELLS = 32  # per group
MOST_EDGES = 999  # in all cells of a group: the names of α have three digits


class GroupParameters(Options):
    ops: OpSet = Field("full", description="op set of a cell's edges")
    nodes: int = Field(4, description=f"intermediate nodes of a cell, 1 to {MOST_NODES}")
    group: int = Field(4, description=f"cells of the group, 1 to {MOST_CELLS}")


@dataclass(frozen=True)
class CellGroup(WholeCells):
    """A group of cells, each with its own edges, that is repeated: FINCH's space."""

    family: ClassVar[str] = "group"
    schema: ClassVar[type[Options]] = GroupParameters
    searches_usual_cells: ClassVar[bool] = True
    tiny: ClassVar[Mapping[str, Any]] = {"ops": "s2", "nodes": 2, "group": 3}

    group: int = 4

    def __post_init__(self) -> None:
        if self.ops not in OP_SETS:
            raise unknown("an op set of a group of cells", self.ops, OP_SETS)
        super().__post_init__()
        if not 1 <= self.group <= MOST_CELLS:
            rule = f"a group must have 1 to {MOST_CELLS} cells"
            raise FedloomError(rule, f"got {self.group}", "try 4")
        edges = self.group * len(self.edges)
        if edges > MOST_EDGES:
            rule = f"a group must have at most {MOST_EDGES} edges"
            problem = f"{self.group} cells of {self.nodes} nodes have {edges}"
            raise FedloomError(rule, problem, "use fewer cells or nodes")
        object.__setattr__(self, "usual", Size(cells=self.group, channels=16))

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        return tuple(f"cell{position}" for position in range(self.group))

    def kind_at(self, position: int, cells: int) -> str:
        return self.cell_kinds[position % self.group]

    def cell_title(self, kind: str) -> str:
        position = self.cell_kinds.index(kind)
        if position in reductions(self.group):
            return f"cell {position} (reduces in the search)"
        return f"cell {position}"

    def check_cells(self, cells: int) -> None:
        if cells % self.group:
            rule = f"a network of a group of {self.group} cells must repeat it as a whole"
            advice = f"set cells={self.group}, or a multiple of it"
            raise FedloomError(rule, f"got {cells} cells", advice)

    def operations_at_most(self, arch: Arch, cells: int) -> int:
        """Returns the exact number: every copy of the group has the operations of all slots."""
        return cells // self.group * sum(len(live) for live in arch.choice)
