"""NAS-Bench-201's cells, whole: what can be chosen, its network, what that costs and how it looks."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.spaces.layout import Graph
from fedloom.spaces.nasbench201.cost import network_cost
from fedloom.spaces.nasbench201.draw import cell_graph
from fedloom.spaces.nasbench201.net import BenchNetwork
from fedloom.spaces.nasbench201.space import NasBench201
from fedloom.spaces.space import Cost, Size
from fedloom.types import Arch


@dataclass(frozen=True)
class NasBench201Cells(NasBench201):
    __doc__ = NasBench201.__doc__

    def network(
        self, shape: tuple[int, ...], classes: int, size: Size, *, arch: Arch | None = None, affine: bool = False
    ) -> BenchNetwork:
        return BenchNetwork(shape, classes, self, size, arch=arch, affine=affine)

    def cost(self, shape: tuple[int, ...], classes: int, arch: Arch, size: Size, *, affine: bool = False) -> Cost:
        return network_cost(self, shape, classes, arch, size, affine)

    def graphs(self, arch: Arch) -> list[Graph]:
        return cell_graph(self, arch)
