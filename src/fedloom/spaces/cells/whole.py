"""Spaces of chosen cells with their networks, what these cost and how they look.

A network needs torch, and so does its cost: both are imported when they are asked for, and a
report, which only draws, does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.spaces.cells.chosen import ChosenCells
from fedloom.spaces.cells.draw import cell_graphs
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Cost, Size
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.cells.net import CellNetwork


@dataclass(frozen=True)
class WholeCells(ChosenCells):
    """Cells of which networks can be built."""

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> CellNetwork:
        from fedloom.spaces.cells.net import CellNetwork

        return CellNetwork(shape, classes, self, size, arch=arch, affine=affine)

    def cost(
        self,
        shape: tuple[int, ...],
        classes: int,
        arch: Arch,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        from fedloom.spaces.cells.cost import network_cost

        return network_cost(self, shape, classes, arch, size, affine)

    def graphs(self, arch: Arch) -> list[Graph]:
        return cell_graphs(self, arch)
