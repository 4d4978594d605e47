"""DARTS cells, whole: what can be chosen, its network, what that costs and how it looks.

Its network and its cost need torch and are imported when they are asked for: a report, which only
draws, does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.spaces.cells.draw import cell_graphs
from fedloom.spaces.cells.space import CellSpace
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Cost, Size
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.cells.net import CellNetwork


@dataclass(frozen=True)
class DartsCells(CellSpace):
    __doc__ = CellSpace.__doc__
    networks = {
        "darts-v2": "fedloom.spaces.cells.networks:darts_v2",
        "supernet": "fedloom.spaces.cells.networks:supernet",
    }
    sized_networks = {"supernet": "fedloom.spaces.cells.networks:sized_supernet"}

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
