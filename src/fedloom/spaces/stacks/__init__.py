"""The complete space of FedPNAS's two stacks of cells, with its network, cost and drawing.

Network and cost need torch and are imported only when they are used, so that a report, which only
draws, does not wait for torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Cost, Size
from fedloom.spaces.stacks.draw import stack_graphs
from fedloom.spaces.stacks.space import StackSpace
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.stacks.net import StackNetwork


@dataclass(frozen=True)
class Stacks(StackSpace):
    __doc__ = StackSpace.__doc__

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> StackNetwork:
        """BN always has weights, as in the paper; `affine` is ignored."""
        from fedloom.spaces.stacks.net import StackNetwork

        return StackNetwork(shape, classes, self, size, arch=arch)

    def cost(
        self,
        shape: tuple[int, ...],
        classes: int,
        arch: Arch,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        from fedloom.spaces.stacks.cost import network_cost

        return network_cost(self, shape, classes, arch, size)

    def graphs(self, arch: Arch) -> list[Graph]:
        return stack_graphs(self, arch)
