"""The complete NAS-Bench-201 space, with its network, cost and drawing.

Network and cost need torch and are imported only when they are used, so that a report, which only
draws, does not wait for torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.spaces.layout import Graph
from fedloom.spaces.nasbench201.draw import cell_graph
from fedloom.spaces.nasbench201.space import NasBench201
from fedloom.spaces.space import Cost, Size
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.nasbench201.net import BenchNetwork


@dataclass(frozen=True)
class NasBench201Cells(NasBench201):
    __doc__ = NasBench201.__doc__

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> BenchNetwork:
        from fedloom.spaces.nasbench201.net import BenchNetwork

        return BenchNetwork(shape, classes, self, size, arch=arch, affine=affine)

    def cost(
        self,
        shape: tuple[int, ...],
        classes: int,
        arch: Arch,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        from fedloom.spaces.nasbench201.cost import network_cost

        return network_cost(self, shape, classes, arch, size, affine)

    def graphs(self, arch: Arch) -> list[Graph]:
        return cell_graph(self, arch)
