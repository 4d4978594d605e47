"""What DARTS's network costs, by formula."""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.spaces.cells.net import STEM_FACTOR, kind_of
from fedloom.spaces.cells.space import KINDS, CellSpace
from fedloom.spaces.edge_costs import EdgeCosts, MapSize, classifier
from fedloom.spaces.ops import area, conv_cost, reduce_cost
from fedloom.spaces.space import Cost, Size, total
from fedloom.types import Arch


def network_cost(space: CellSpace, shape: tuple[int, ...], classes: int, arch: Arch, size: Size, affine: bool) -> Cost:
    """Of what `CellNetwork` would build with the same arguments, in a millisecond or two and without building it."""
    space.check(arch)
    return total(parts(space, shape, classes, arch, size, affine))


def parts(
    space: CellSpace, shape: tuple[int, ...], classes: int, arch: Arch, size: Size, affine: bool
) -> Iterable[Cost]:
    channels = size.channels
    stem, sizes = STEM_FACTOR * channels, ((shape[1], shape[2]),) * 2
    yield conv_cost(shape[0], stem, 3, 1, sizes[0], True)
    before = (stem, stem)
    for cell in range(size.cells):
        kind = kind_of(cell, size.cells)
        channels = channels * 2 if kind == "reduce" else channels
        yield preprocessing(before, channels, sizes, affine)
        begin, count = KINDS.index(kind) * len(space.edges), len(space.edges)
        strides = [2 if kind == "reduce" and source < 2 else 1 for source, _ in space.edges]
        slots, live = space.slots[begin : begin + count], arch.choice[begin : begin + count]
        edges = EdgeCosts(space.edges, slots, live, strides, channels, sizes[1], affine)
        yield edges.cost()
        before, sizes = (before[1], space.nodes * channels), (sizes[1], edges.out)
        yield Cost(activations=before[1] * area(edges.out, 1))
    yield classifier(before[1], classes, sizes[1], size.head)


def preprocessing(before: tuple[int, int], channels: int, sizes: tuple[MapSize, MapSize], affine: bool) -> Cost:
    """A cell's two inputs, brought to its channels and size."""
    relus = Cost(activations=before[0] * area(sizes[0], 1) + before[1] * area(sizes[1], 1))
    if sizes[0] == sizes[1]:
        first = conv_cost(before[0], channels, 1, 1, sizes[0], affine)
    else:
        first = reduce_cost(before[0], channels, sizes[0], affine)
    return total([relus, first, conv_cost(before[1], channels, 1, 1, sizes[1], affine)])
