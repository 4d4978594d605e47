"""Spaces of cells with their networks, costs and drawings.

Networks and costs need torch and are imported only when they are used, so that a report, which only
draws, does not wait for torch.
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
    """Cells from which networks can be built."""

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
