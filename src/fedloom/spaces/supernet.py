"""The network of cells, whole or cut: one class, one forward, three ways to choose.

`forward(x, choice)` with a `Mixture` weighs every operation (softmax of α), with an `Arch` runs only the ones it
names (a mask or a path), and without a choice runs all that exist. `cut` leaves only what an architecture names, as
plain torch: a traced module of torch's own layers that runs and exports without fedloom.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import fx, nn

from fedloom.errors import FedloomError
from fedloom.spaces import Space
from fedloom.spaces.cells.space import KINDS, CellSpace
from fedloom.spaces.edges import Edges, Live, Run, Scales, Value, join, now, pooled
from fedloom.spaces.ops import FactorizedReduce, Op, ReluConv
from fedloom.types import Arch, Json

STEM_FACTOR = 3  # the stem has three times the first cell's channels
MOST_CELLS, MOST_CHANNELS = 1000, 1 << 16
MOST_OPERATIONS = 50_000  # in all cells together: building them takes a millisecond each
MOST_WEIGHTS = 1 << 32  # by a rough count


class OpId(NamedTuple):
    """One operation of one slot; shared by all cells of its kind."""

    slot: int
    op: int


@dataclass(frozen=True)
class Mixture:
    """A weight for every operation of every slot, usually softmax(α)."""

    weights: tuple[torch.Tensor, ...]  # one vector a slot

    @classmethod
    def softmax(cls, alpha: Sequence[torch.Tensor]) -> Mixture:
        return cls(tuple(torch.softmax(row, dim=0) for row in alpha))

    def scales(self, slots: slice) -> list[list[torch.Tensor]]:
        return [list(row.unbind()) for row in self.weights[slots]]


Choice = Mixture | Arch | None


class Supernet(nn.Module):
    """What every network of cells can do; subclasses say how cells are joined."""

    space: Space
    arch: Arch  # what exists in it
    shape: tuple[int, ...]
    classes: int
    size: dict[str, int]  # cells and channels
    affine: bool

    def forward(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        scores: torch.Tensor = self.flow(now, x, choice)
        return scores

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        """From images to scores, step by step."""
        raise NotImplementedError

    def owner(self, key: str) -> OpId | None:
        """Whose a state_dict key is, parameter or buffer; None: everybody's (stem, preprocessing, classifier)."""
        parts = key.split(".")
        if parts[0] != "cells" or "edges" not in parts:
            return None
        cell, edge, name = int(parts[1]), int(parts[parts.index("edges") + 1]), parts[parts.index("edges") + 2]
        slot = self.first_slot(cell) + edge
        return OpId(slot, self.space.slots[slot].options.index(name))

    def first_slot(self, cell: int) -> int:
        """Where the slots of this cell's kind begin."""
        raise NotImplementedError

    def smaller(self, arch: Arch) -> Supernet:
        """The same network with only the operations of `arch`, weights drawn anew."""
        raise NotImplementedError

    def cut(self, arch: Arch, *, inherit: bool = True) -> nn.Module:
        """Plain torch: only what `arch` names, with this network's weights or fresh ones."""
        self.space.check(arch)
        if any(not set(live) <= set(mine) for live, mine in zip(arch.choice, self.arch.choice, strict=True)):
            found = "it names operations that were cut before"
            raise FedloomError(
                "an architecture must be part of the network it is cut from", found, "cut the larger one"
            )
        with torch.device("meta") if inherit else nullcontext():  # fresh weights are a draw, inherited ones are none
            left = self.smaller(arch)
        if inherit:  # clones keep device and memory format, which decide the last bits
            mine = self.state_dict()
            left.load_state_dict({key: mine[key].clone() for key in left.state_dict()}, assign=True)
        plain = without_choice(fx.symbolic_trace(left, concrete_args={"choice": None}))
        plain.train(self.training)
        setattr(plain, "architecture", left.architecture)  # noqa: B010 - a name for reports; mypy expects a tensor
        return plain

    @property
    def architecture(self) -> Json:
        return self.arch.to_plain()

    def parts(self, choice: Choice, cell: int, edges: int) -> tuple[Scales, Live]:
        """One cell's part of a choice."""
        begin = self.first_slot(cell)
        if isinstance(choice, Mixture):
            return choice.scales(slice(begin, begin + edges)), None
        return None, None if choice is None else choice.choice[begin : begin + edges]


def without_choice(traced: fx.GraphModule) -> fx.GraphModule:
    """A traced network as a function of its images alone, which can be saved as a whole."""
    for node in reversed(traced.graph.nodes):
        node.type = None  # annotations are text here, and the module could not be saved with them
        argument = node.op == "placeholder" and node.name.startswith("choice")
        if argument or any(arg.op == "placeholder" and arg.name.startswith("choice") for arg in node.all_input_nodes):
            traced.graph.erase_node(node)  # the argument, and torch's check that it is None
    traced.recompile()
    return traced


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


class CellNetwork(Supernet):
    """DARTS's network: stem, `cells` cells with a reduction at a third and two thirds, pooling, classifier."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, space: CellSpace, *, cells: int = 8, channels: int = 16,
        arch: Arch | None = None, affine: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        check_size(shape, cells, channels)
        self.shape, self.classes, self.space = shape, classes, space
        self.arch = space.full() if arch is None else arch
        space.check(self.arch)
        check_weights(self.arch, cells, channels)
        self.size = {"cells": cells, "channels": channels}
        self.affine = affine
        stem = STEM_FACTOR * channels
        self.stem = nn.Sequential(nn.Conv2d(shape[0], stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem))
        self.kinds = ["reduce" if cell in reductions(cells) else "normal" for cell in range(cells)]
        before, sizes = (stem, stem), ((shape[1], shape[2]), (shape[1], shape[2]))
        self.cells = nn.ModuleList()
        for kind in self.kinds:
            channels = channels * 2 if kind == "reduce" else channels
            self.cells.append(Cell(space, self.arch, kind, before, channels, sizes, affine))
            before = (before[1], space.nodes * channels)
            halved = (-(-sizes[1][0] // 2), -(-sizes[1][1] // 2))
            sizes = (sizes[1], halved if kind == "reduce" else sizes[1])
        self.classifier = nn.Linear(before[1], classes)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        s0 = s1 = run(self.stem, x)
        for number, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            scales, live = self.parts(choice, number, len(self.space.edges))
            s0, s1 = s1, cell.flow(run, s0, s1, scales, live)
        return run(self.classifier, run(pooled, s1))

    space: CellSpace

    def first_slot(self, cell: int) -> int:
        return KINDS.index(self.kinds[cell]) * len(self.space.edges)

    def smaller(self, arch: Arch) -> CellNetwork:
        return CellNetwork(self.shape, self.classes, self.space, arch=arch, affine=self.affine, **self.size)


def reductions(cells: int) -> set[int]:
    """Where the map is halved: at a third and at two thirds of the depth."""
    return {cells // 3, 2 * cells // 3}


def check_size(shape: tuple[int, ...], cells: int, channels: int) -> None:
    check_counts(cells, channels)
    least = 2 ** len(reductions(cells))
    if min(shape[1:]) < least:
        must = f"images for {cells} cells must be at least {least}×{least}"
        raise FedloomError(must, f"these are {shape[1]}×{shape[2]}", "use larger images or fewer cells")


def check_counts(cells: int, channels: int) -> None:
    if not 1 <= cells <= MOST_CELLS or not 1 <= channels <= MOST_CHANNELS:
        must = f"a network must have 1 to {MOST_CELLS} cells and 1 to {MOST_CHANNELS} channels"
        raise FedloomError(must, f"got {cells} and {channels}", "try 8 and 16")


def check_weights(arch: Arch, cells: int, channels: int) -> None:
    """Refuses what no memory holds and nobody waits for, before anything is allocated. Counted roughly: a cell has at
    most as many operations as both kinds together, of two 1×1 convolutions with the last cells' channels each.
    """
    operations = cells * sum(len(live) for live in arch.choice)
    weights = 2 * operations * (4 * channels) ** 2
    if operations > MOST_OPERATIONS or weights > MOST_WEIGHTS:
        must = f"a network must have at most {MOST_OPERATIONS:,} operations and about {MOST_WEIGHTS:,} weights"
        found = f"{cells} cells of {channels} channels have about {operations:,} and {weights:,}"
        raise FedloomError(must, found, "take fewer cells or channels")
