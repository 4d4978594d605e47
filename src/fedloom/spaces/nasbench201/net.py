"""NAS-Bench-201's network: Dong, Yang, ICLR 2020. Three stages of cells, with a residual block before the later two."""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.spaces.edges import Edges, Live, Run, Scales, Value, pooled
from fedloom.spaces.nasbench201.space import EDGES, NasBench201
from fedloom.spaces.ops import PlainAvgPool, ReluConv
from fedloom.spaces.supernet import Choice, Supernet, check_counts, check_weights
from fedloom.types import Arch

NODES = 3  # after the cell's input


class BenchCell(nn.Module):
    def __init__(self, arch: Arch, channels: int, size: tuple[int, int], affine: bool) -> None:
        super().__init__()
        overrides = {"avg_pool_3x3": PlainAvgPool}
        self.edges = Edges(EDGES, NasBench201.slots, arch.choice, channels, [1] * len(EDGES), size, affine, overrides)

    def flow(self, run: Run, x: Value, scales: Scales, live: Live) -> Value:
        return self.edges.flow(run, [x], NODES, scales, live)[-1]


class Residual(nn.Module):
    """Twice the channels at half the size, beside an average-pooled shortcut."""

    def __init__(self, inputs: int, outputs: int, affine: bool) -> None:
        super().__init__()
        self.first = ReluConv(inputs, outputs, 3, 2, affine)
        self.second = ReluConv(outputs, outputs, 3, 1, affine)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.first(torch.relu(x))))
        both: torch.Tensor = y + self.shortcut(x)
        return both


class BenchNetwork(Supernet):
    def __init__(
        self, shape: tuple[int, ...], classes: int, *, cells: int = 5, channels: int = 16, arch: Arch | None = None,
        affine: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if min(shape[1:]) < 4 or any(side % 4 for side in shape[1:]):
            found = f"these are {shape[1]}×{shape[2]}"
            raise FedloomError("images for NAS-Bench-201 must have sides divisible by 4", found, "crop or pad them")
        check_counts(cells, channels)
        self.shape, self.classes, self.space = shape, classes, NasBench201()
        self.arch = self.space.full() if arch is None else arch
        self.space.check(self.arch)
        check_weights(self.arch, 3 * cells, channels)
        self.size, self.affine = {"cells": cells, "channels": channels}, affine
        self.stem = nn.Sequential(nn.Conv2d(shape[0], channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.cells, self.reduce, self.stage = nn.ModuleList(), nn.ModuleList(), cells
        size = (shape[1], shape[2])
        for stage in range(3):
            width = channels * 2**stage
            if stage:
                self.reduce.append(Residual(width // 2, width, affine))
                size = (size[0] // 2, size[1] // 2)
            self.cells.extend(BenchCell(self.arch, width, size, affine) for _ in range(cells))
        self.last = nn.BatchNorm2d(width)
        self.classifier = nn.Linear(width, classes)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        x = run(self.stem, x)
        scales, live = self.parts(choice, 0, len(EDGES))
        for number, cell in enumerate(self.cells):
            if number and number % self.stage == 0:
                x = run(self.reduce[number // self.stage - 1], x)
            assert isinstance(cell, BenchCell)
            x = cell.flow(run, x, scales, live)
        return run(self.classifier, run(pooled, run(torch.relu, run(self.last, x))))

    def first_slot(self, cell: int) -> int:
        return 0

    def smaller(self, arch: Arch) -> BenchNetwork:
        return BenchNetwork(self.shape, self.classes, arch=arch, affine=self.affine, **self.size)
