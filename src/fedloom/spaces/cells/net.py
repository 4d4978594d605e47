"""DARTS's network: a stem, cells with a reduction at a third and at two thirds of the depth, pooling, a classifier."""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import settled, vector_length
from fedloom.nets.pooling import pooled
from fedloom.spaces.cells.space import KINDS, CellSpace
from fedloom.spaces.choice import Choice, Live, Scales, part_of
from fedloom.spaces.edges import Edges, Run, Value, join
from fedloom.spaces.ops import FactorizedReduce, Op, ReluConv, Stem
from fedloom.spaces.space import Size
from fedloom.spaces.stacked import StackedCells, check_counts, check_weights
from fedloom.types import Arch

STEM_FACTOR = 3  # the stem has three times the first cell's channels


class Cell(nn.Module):
    def __init__(
        self, space: CellSpace, arch: Arch, kind: str, before: tuple[int, int], channels: int,
        sizes: tuple[tuple[int, int], tuple[int, int]], affine: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        begin, count = KINDS.index(kind) * len(space.edges), len(space.edges)
        size = sizes[1]
        if sizes[0] != size:
            self.pre0: Op = FactorizedReduce(before[0], channels, sizes[0], affine)
        else:
            self.pre0 = ReluConv(before[0], channels, 1, 1, affine)
        self.pre1 = ReluConv(before[1], channels, 1, 1, affine)
        strides = [2 if kind == "reduce" and source < 2 else 1 for source, _ in space.edges]
        slots, live = space.slots[begin : begin + count], arch.choice[begin : begin + count]
        self.edges = Edges(space.edges, slots, live, channels, strides, size, affine, {})
        self.nodes = space.nodes

    def flow(self, run: Run, s0: Value, s1: Value, scales: Scales, live: Live) -> Value:
        states = [run(self.pre0, run(torch.relu, s0)), run(self.pre1, run(torch.relu, s1))]
        return run(join, *self.edges.flow(run, states, self.nodes, scales, live))


class CellNetwork(StackedCells):
    space: CellSpace

    def __init__(
        self, shape: tuple[int, ...], classes: int, space: CellSpace, size: Size, *, arch: Arch | None = None,
        affine: bool = False,
    ) -> None:  # fmt: skip
        check_size(shape, size)
        super().__init__(space, shape, classes, size, arch, affine)
        check_weights(self.arch, size.cells, size.channels)
        channels = size.channels
        stem = STEM_FACTOR * channels
        self.stem = Stem(shape[0], stem)
        self.cell_kinds = [kind_of(cell, size.cells) for cell in range(size.cells)]
        before, sizes = (stem, stem), ((shape[1], shape[2]), (shape[1], shape[2]))
        self.cells = nn.ModuleList()
        for kind in self.cell_kinds:
            channels = channels * 2 if kind == "reduce" else channels
            self.cells.append(Cell(space, self.arch, kind, before, channels, sizes, affine))
            before = (before[1], space.nodes * channels)
            halved = (-(-sizes[1][0] // 2), -(-sizes[1][1] // 2))
            sizes = (sizes[1], halved if kind == "reduce" else sizes[1])
        self.head = settled(size.head, *sizes[1])
        self.classifier = nn.Linear(vector_length(self.head, before[1]), classes)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        s0 = s1 = run(self.stem, x)
        for number, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            scales, live = part_of(choice, self.place(number, len(self.space.edges)), (s0, s1))
            s0, s1 = s1, cell.flow(run, s0, s1, scales, live)
        return run(self.classifier, run(pooled, s1, self.head))

    def first_slot(self, cell: int) -> int:
        return KINDS.index(self.cell_kinds[cell]) * len(self.space.edges)


def reductions(cells: int) -> set[int]:
    """Where the map is halved: at a third and at two thirds of the depth."""
    return {cells // 3, 2 * cells // 3}


def kind_of(cell: int, cells: int) -> str:
    return "reduce" if cell in reductions(cells) else "normal"


def check_size(shape: tuple[int, ...], size: Size) -> None:
    check_counts(size.cells, size.channels)
    least = 2 ** len(reductions(size.cells))
    if min(shape[1:]) < least:
        rule = f"images for {size.cells} cells must be at least {least}×{least}"
        raise FedloomError(rule, f"these are {shape[1]}×{shape[2]}", "use larger images or fewer cells")
