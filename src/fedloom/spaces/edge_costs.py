"""Cost formulas of cells: the edges of one cell, and the classifier that ends every network.

Activations are the elements of all tensors that one sample's forward pass through the cut network
creates: the results of operations, the ReLU and the pools of each state (once, however many
operations use them), the sums of nodes and their concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.nets.heads import HeadChoice, settled, vector_length
from fedloom.spaces.ops import area, op_cost
from fedloom.spaces.space import NONE, Cost, Slot, total

MapSize = tuple[int, int]


def classifier(channels: int, classes: int, size: MapSize, head: HeadChoice) -> Cost:
    """The cost of the head on the last map, and of a linear layer with a bias."""
    length = vector_length(settled(head, *size), channels)
    return Cost((length + 1) * classes, length * classes, length + classes)


@dataclass(frozen=True)
class EdgeCosts:
    """The edges of one cell, with the arguments of `fedloom.spaces.edges.Edges`."""

    pairs: Sequence[tuple[int, int]]
    slots: Sequence[Slot]
    live: Sequence[Sequence[int]]
    strides: Sequence[int]
    channels: int
    size: MapSize
    affine: bool
    plain_pool: bool = False  # its average pooling has no BN
    nodes_are_means: bool = False  # a node is the sum of its edges, divided by their number

    @property
    def out(self) -> MapSize:
        stride = max(self.strides)
        return -(-self.size[0] // stride), -(-self.size[1] // stride)

    def cost(self) -> Cost:
        # The elements of the ReLU and the pools of each source, which are computed once.
        taken: dict[tuple[int, str], int] = {}
        terms = {target: 0 for _, target in self.pairs}  # the number of operations into each node
        costs = []
        for edge, (source, target) in enumerate(self.pairs):
            for number in self.live[edge]:
                name = self.slots[edge].options[number]
                if name != NONE:
                    terms[target] += 1
                    costs.append(self.op(name, edge, source, taken))
        maps = 0
        for node, count in terms.items():
            additions = count - 1
            maps += additions if count else 1  # a node without operations is a map of zeros
            if count and self.nodes_are_means and self._edges_into(node) > 1:
                maps += 1  # the division
        activations = sum(taken.values()) + maps * self.channels * area(self.out, 1)
        return total([*costs, Cost(activations=activations)])

    def _edges_into(self, node: int) -> int:
        return sum(target == node for _, target in self.pairs)

    def op(self, name: str, edge: int, source: int, taken: dict[tuple[int, str], int]) -> Cost:
        """Returns what an operation costs; the ReLU or pool that it uses is added to `taken`."""
        stride = self.strides[edge]
        size = self.out
        if stride > 1 or max(self.strides) == 1:
            size = self.size
        cost = op_cost(name, self.channels, stride, size, affine=self.affine)
        pooled = self.channels * area(size, stride)
        if "pool" in name:
            taken[source, name] = pooled
            if self.plain_pool:
                return Cost()
            return cost._replace(activations=cost.activations - pooled)
        if "conv" in name or (name == "skip_connect" and stride > 1):
            taken[source, "relu"] = self.channels * area(size, 1)
        return cost
