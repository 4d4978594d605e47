"""The cost of NAS-Bench-201's network, by formula."""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.spaces.edge_costs import EdgeCosts, MapSize, classifier
from fedloom.spaces.nasbench201.net import STAGES
from fedloom.spaces.nasbench201.space import EDGES, SLOTS, NasBench201
from fedloom.spaces.ops import area, conv_cost
from fedloom.spaces.space import Cost, Size, total
from fedloom.types import Arch


def network_cost(
    space: NasBench201,
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
    affine: bool,
) -> Cost:
    """Returns the cost of the `BenchNetwork` with the same arguments.

    It takes a millisecond or two, because nothing is built.
    """
    space.check(arch)
    return total(parts(shape, classes, arch, size, affine))


def parts(
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
    affine: bool,
) -> Iterable[Cost]:
    """Yields the costs of the stem, three stages of cells, residual blocks and classifier."""
    channels = size.channels
    side = (shape[1], shape[2])
    strides = [1] * len(EDGES)
    yield conv_cost(shape[0], channels, 3, 1, side, affine=True)
    for stage in range(STAGES):
        if stage:
            yield residual(channels, side, affine)
            channels *= 2
            side = (side[0] // 2, side[1] // 2)
        edges = EdgeCosts(
            EDGES,
            SLOTS,
            arch.choice,
            strides,
            channels,
            side,
            affine=affine,
            plain_pool=True,
        )
        yield from [edges.cost()] * size.cells
    yield Cost(2 * channels, 0, 2 * channels * area(side, 1))  # the last BN and its ReLU
    yield classifier(channels, classes, side, size.head)


def residual(inputs: int, size: MapSize, affine: bool) -> Cost:
    """The cost of a block between two stages: two convolutions, and a pooled 1×1 shortcut."""
    outputs = 2 * inputs
    out = area(size, 2)
    shortcut = Cost(inputs * outputs, inputs * outputs * out, inputs * out + outputs * out)
    relus_and_sum = Cost(
        activations=inputs * area(size, 1) + 2 * outputs * out
    )  # two ReLUs and the sum
    halved = (size[0] // 2, size[1] // 2)
    first = conv_cost(inputs, outputs, 3, 2, size, affine=affine)
    second = conv_cost(outputs, outputs, 3, 1, halved, affine=affine)
    return total([first, second, shortcut, relus_and_sum])
