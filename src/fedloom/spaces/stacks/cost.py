"""The cost of FedPNAS's network, by formula."""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.spaces.edge_costs import EdgeCosts, MapSize, classifier
from fedloom.spaces.ops import area, conv_cost, reduce_cost
from fedloom.spaces.space import Cost, Size, total
from fedloom.spaces.stacks.net import STEM_KERNEL, strides_of
from fedloom.spaces.stacks.space import BASE_INPUTS, StackSpace
from fedloom.types import Arch


def network_cost(
    space: StackSpace,
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
) -> Cost:
    """Returns the cost of the `StackNetwork` with the same arguments."""
    space.check(arch)
    space.check_cells(size.cells)
    return total(parts(space, shape, classes, arch, size))


def parts(
    space: StackSpace,
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
) -> Iterable[Cost]:
    """Yields the costs of the stem, the cells and the classifier."""
    channels = size.channels
    side = (shape[1], shape[2])
    yield conv_cost(shape[0], channels, STEM_KERNEL, 1, side, affine=True)
    sizes = (side, side)  # the map sizes of the two outputs before a cell
    for cell in space.cells:
        if cell.inputs == BASE_INPUTS:
            yield skip_cost(channels, sizes)
        edges = EdgeCosts(
            cell.edges,
            space.slots[cell.slots.start : cell.slots.stop],
            arch.choice[cell.slots.start : cell.slots.stop],
            strides_of(cell),
            channels,
            sizes[1],
            affine=True,
            nodes_are_means=space.node == "mean",
        )
        yield edges.cost()
        sizes = (sizes[1], edges.out)
        if space.nodes > 1:  # the sum of the nodes, and its division
            yield Cost(activations=space.nodes * channels * area(edges.out, 1))
    yield classifier(channels, classes, sizes[1], size.head)


def skip_cost(channels: int, sizes: tuple[MapSize, MapSize]) -> Cost:
    """The cost of preprocessing a base cell's older input: ReLU, 1×1 convolution, BN."""
    relu = Cost(activations=channels * area(sizes[0], 1))
    if sizes[0] == sizes[1]:
        return total([relu, conv_cost(channels, channels, 1, 1, sizes[0], affine=True)])
    return total([relu, reduce_cost(channels, channels, sizes[0], affine=True)])
