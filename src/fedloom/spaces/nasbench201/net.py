"""NAS-Bench-201's network: Dong, Yang, ICLR 2020.

It has three stages of cells, with a residual block before the second and the third.
"""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import settled, vector_length
from fedloom.nets.pooling import as_vector
from fedloom.spaces.choice import Choice, Live, Scales, is_asked, part_of
from fedloom.spaces.edges import Edges, Run, Value
from fedloom.spaces.nasbench201.space import EDGES, SLOTS, NasBench201
from fedloom.spaces.ops import PlainAvgPool, ReluConv, Stem, Step
from fedloom.spaces.space import Size
from fedloom.spaces.stacked import StackedCells, check_counts, check_weights
from fedloom.types import Arch

NODES = 3  # after the cell's input
STAGES = 3
DIVISOR = 4  # of the sides of images: the map is halved before the second and the third stage


class BenchCell(nn.Module):
    def __init__(self, arch: Arch, channels: int, size: tuple[int, int], *, affine: bool) -> None:
        super().__init__()
        overrides = {"avg_pool_3x3": PlainAvgPool}
        strides = [1] * len(EDGES)
        self.edges = Edges(
            EDGES, SLOTS, arch.choice, channels, strides, size, affine=affine, overrides=overrides
        )

    def flow(self, run: Run, x: Value, scales: Scales, live: Live) -> Value:
        return self.edges.flow(run, [x], NODES, scales, live)[-1]


class Residual(nn.Module):
    """A residual block that doubles the channels and halves the map, with a pooled shortcut."""

    def __init__(self, inputs: int, outputs: int, *, affine: bool) -> None:
        super().__init__()
        self.first = ReluConv(inputs, outputs, 3, 2, affine=affine)
        self.second = ReluConv(outputs, outputs, 3, 1, affine=affine)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def step(self, channels: int) -> Step:
        return Step("residual", 2, self.second.conv.out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.first(torch.relu(x))))
        both: torch.Tensor = y + self.shortcut(x)
        return both


class BenchNetwork(StackedCells):
    """NAS-Bench-201's network. `size.cells` is the number of cells in each of its three stages."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        space: NasBench201,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = True,
    ) -> None:
        if any(side < DIVISOR or side % DIVISOR for side in shape[1:]):
            rule = f"images for NAS-Bench-201 must have sides divisible by {DIVISOR}"
            raise FedloomError(rule, f"these are {shape[1]}×{shape[2]}", "crop or pad them")
        check_counts(size.cells, size.channels)
        super().__init__(space, shape, classes, size, arch, affine)
        cells = STAGES * size.cells
        operations = cells * sum(len(live) for live in self.arch.choice)
        check_weights(operations, cells, size.channels)
        channels = size.channels
        self.stem = Stem(shape[0], channels)
        self.cells = nn.ModuleList()
        self.reduce = nn.ModuleList()
        side = (shape[1], shape[2])
        for stage in range(STAGES):
            width = channels * 2**stage
            if stage:
                self.reduce.append(Residual(width // 2, width, affine=affine))
                side = (side[0] // 2, side[1] // 2)
            for _ in range(size.cells):
                self.cells.append(BenchCell(self.arch, width, side, affine=affine))
        self.last = nn.BatchNorm2d(width)
        self.head = settled(size.head, *side)
        self.size = size._replace(head=self.head)
        self.classifier = nn.Linear(vector_length(self.head, width), classes)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        x = run(self.stem, x)
        if not is_asked(choice):  # the same part for every cell
            scales, live = part_of(choice, self.place(0, len(EDGES)), (x,))
        for number, cell in enumerate(self.cells):
            if number and number % self.size.cells == 0:
                x = run(self.reduce[number // self.size.cells - 1], x)
            if is_asked(choice):
                scales, live = part_of(choice, self.place(number, len(EDGES)), (x,))
            assert isinstance(cell, BenchCell)
            x = cell.flow(run, x, scales, live)
        return run(self.classifier, run(as_vector, run(torch.relu, run(self.last, x)), self.head))

    def first_slot(self, cell: int) -> int:
        return 0
