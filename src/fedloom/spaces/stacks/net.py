"""FedPNAS's network: a stem, the base stack, the personal stack, a classifier.

The number of channels is the same throughout. A base cell takes the output of the cell before it as
it is, and the output before that through ReLU, a 1×1 convolution and BN; for the first cell, both
are the stem's output. A node is the mean of its edges, and a cell's output is the mean of its
nodes. All BNs have weights.
"""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import settled, vector_length
from fedloom.nets.pooling import as_vector
from fedloom.spaces.choice import Choice, Part, Place, part_of
from fedloom.spaces.edge_costs import MapSize
from fedloom.spaces.edges import Edges, Run, Value, add
from fedloom.spaces.ops import FactorizedReduce, Op, ReluConv, Step
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import OpId, Size
from fedloom.spaces.stacked import check_counts, check_weights
from fedloom.spaces.stacks.space import BASE_INPUTS, StackedCell, StackSpace
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

STEM_KERNEL = 5


class StackNetwork(Supernet):
    space: StackSpace

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        space: StackSpace,
        size: Size,
        *,
        arch: Arch | None = None,
    ) -> None:
        check_size(shape, space)
        check_counts(size.cells, size.channels)
        space.check_cells(size.cells)
        super().__init__(space, shape, classes, size, arch, affine=True)
        operations = sum(len(live) for live in self.arch.choice)
        check_weights(operations, size.cells, size.channels)
        channels = size.channels
        self.stem = StackStem(shape[0], channels)
        self.base = nn.ModuleList()
        self.personal = nn.ModuleList()
        side = (shape[1], shape[2])
        sizes = (side, side)
        for cell in space.cells:
            stack = self.base if cell.inputs == BASE_INPUTS else self.personal
            stack.append(Cell(cell, space, self.arch, channels, sizes))
            if cell.reduces:
                side = (-(-side[0] // 2), -(-side[1] // 2))
            sizes = (sizes[1], side)
        self.head = settled(size.head, *side)
        self.size = size._replace(head=self.head)
        self.classifier = nn.Linear(vector_length(self.head, channels), classes)

    @property
    def cells(self) -> list[nn.Module]:
        return [*self.base, *self.personal]

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        previous = run(self.stem, x)
        older = previous
        for cell in self.cells:
            assert isinstance(cell, Cell)
            part = part_of(choice, cell.place, (previous, x))
            output = cell.flow(run, older, previous, part)
            older = previous
            previous = output
        return run(self.classifier, run(as_vector, previous, self.head))

    def owner(self, key: str) -> OpId | None:
        parts = key.split(".")  # base.NUMBER.edges.EDGE.OPERATION.…
        if parts[0] not in ("base", "personal") or parts[2] != "edges":
            return None
        number = int(parts[1])
        if parts[0] == "personal":
            number += self.space.base_cells
        slot = self.space.cells[number].slots[int(parts[3])]
        return OpId(slot, self.space.slots[slot].options.index(parts[4]))


class Cell(nn.Module):
    """A cell: edges between inputs and nodes. Its output is the mean of the nodes."""

    def __init__(
        self,
        cell: StackedCell,
        space: StackSpace,
        arch: Arch,
        channels: int,
        sizes: tuple[MapSize, MapSize],
    ) -> None:
        """`sizes` are the map sizes of the two outputs before the cell, the older one first."""
        super().__init__()
        self.place = Place(space.cells.index(cell), cell.slots)
        self.nodes = space.nodes
        if cell.inputs == BASE_INPUTS:
            self.skip = skip_input(channels, sizes)
        self.edges = Edges(
            cell.edges,
            space.slots[cell.slots.start : cell.slots.stop],
            arch.choice[cell.slots.start : cell.slots.stop],
            channels,
            strides_of(cell),
            sizes[1],
            affine=True,
            nodes_are_means=space.node == "mean",
        )

    def flow(self, run: Run, older: Value, previous: Value, part: Part) -> Value:
        states = [previous]
        if hasattr(self, "skip"):
            states = [run(self.skip, run(torch.relu, older)), previous]
        return run(mean_of, *self.edges.flow(run, states, self.nodes, *part))


class StackStem(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        padding = STEM_KERNEL // 2
        conv = nn.Conv2d(inputs, outputs, STEM_KERNEL, padding=padding, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs))
        self.outputs = outputs

    def step(self, channels: int) -> Step:
        return Step("stem_5x5", 1, self.outputs)


def mean_of(*states: torch.Tensor) -> torch.Tensor:
    if len(states) == 1:
        return states[0]
    return add(*states) / len(states)


def skip_input(channels: int, sizes: tuple[MapSize, MapSize]) -> Op:
    if sizes[0] != sizes[1]:
        return FactorizedReduce(channels, channels, sizes[0], affine=True)
    return ReluConv(channels, channels, 1, 1, affine=True)


def strides_of(cell: StackedCell) -> list[int]:
    """Returns the stride of every edge: in a reduction cell, edges from inputs halve the map."""
    strides = []
    for source, _ in cell.edges:
        halves = cell.reduces and source < cell.inputs
        strides.append(2 if halves else 1)
    return strides


def check_size(shape: tuple[int, ...], space: StackSpace) -> None:
    least = 2 ** len(reductions(space.base_cells))
    if min(shape[1:]) < least:
        rule = f"images for {space.name} must be at least {least}×{least}"
        problem = f"these are {shape[1]}×{shape[2]}"
        raise FedloomError(rule, problem, "use larger images or fewer base cells")
