"""The cost of DARTS's network, by formula."""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.spaces.cells.chosen import ChosenCells
from fedloom.spaces.cells.net import STEM_FACTOR, strides_of
from fedloom.spaces.edge_costs import EdgeCosts, MapSize, classifier
from fedloom.spaces.ops import area, conv_cost, reduce_cost
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Cost, Size, total
from fedloom.types import Arch


def network_cost(
    space: ChosenCells,
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
    affine: bool,
) -> Cost:
    """Returns the cost of the `CellNetwork` with the same arguments.

    It takes a millisecond or two, because nothing is built.
    """
    space.check(arch)
    space.check_cells(size.cells)
    return total(parts(space, shape, classes, arch, size, affine))


def parts(
    space: ChosenCells,
    shape: tuple[int, ...],
    classes: int,
    arch: Arch,
    size: Size,
    affine: bool,
) -> Iterable[Cost]:
    """Yields the costs of the stem, the cells and the classifier."""
    channels = size.channels
    stem = STEM_FACTOR * channels
    side = (shape[1], shape[2])
    yield conv_cost(shape[0], stem, 3, 1, side, affine=True)
    before = (stem, stem)  # the channels of a cell's two inputs
    sizes = (side, side)  # the map sizes of a cell's two inputs
    for cell in range(size.cells):
        reduces = cell in reductions(size.cells)
        if reduces:
            channels *= 2
        yield preprocessing(before, channels, sizes, affine)
        slots = space.slots_of(space.kind_at(cell, size.cells))
        edges = EdgeCosts(
            space.edges,
            space.slots[slots.start : slots.stop],
            arch.choice[slots.start : slots.stop],
            strides_of(space, reduces),
            channels,
            sizes[1],
            affine=affine,
        )
        yield edges.cost()
        before = (before[1], space.nodes * channels)
        sizes = (sizes[1], edges.out)
        yield Cost(activations=before[1] * area(edges.out, 1))  # the concatenation
    yield classifier(before[1], classes, sizes[1], size.head)


def preprocessing(
    before: tuple[int, int],
    channels: int,
    sizes: tuple[MapSize, MapSize],
    affine: bool,
) -> Cost:
    """The cost of bringing a cell's two inputs to its channels and size."""
    relus = Cost(activations=before[0] * area(sizes[0], 1) + before[1] * area(sizes[1], 1))
    if sizes[0] == sizes[1]:
        first = conv_cost(before[0], channels, 1, 1, sizes[0], affine=affine)
    else:
        first = reduce_cost(before[0], channels, sizes[0], affine=affine)
    return total([relus, first, conv_cost(before[1], channels, 1, 1, sizes[1], affine=affine)])
