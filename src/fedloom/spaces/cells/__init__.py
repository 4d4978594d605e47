"""DARTS cells, whole: what can be chosen, its network, what that costs and how it looks."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.spaces.cells.cost import network_cost
from fedloom.spaces.cells.draw import cell_graphs
from fedloom.spaces.cells.net import CellNetwork
from fedloom.spaces.cells.space import CellSpace
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Cost, Size
from fedloom.types import Arch


@dataclass(frozen=True)
class DartsCells(CellSpace):
    __doc__ = CellSpace.__doc__

    def network(
        self, shape: tuple[int, ...], classes: int, size: Size, *, arch: Arch | None = None, affine: bool = False
    ) -> CellNetwork:
        return CellNetwork(shape, classes, self, size, arch=arch, affine=affine)

    def cost(self, shape: tuple[int, ...], classes: int, arch: Arch, size: Size, *, affine: bool = False) -> Cost:
        return network_cost(self, shape, classes, arch, size, affine)

    def graphs(self, arch: Arch) -> list[Graph]:
        return cell_graphs(self, arch)
