"""DARTS's network: a stem, cells, pooling, a classifier.

The cells at one third and two thirds of the depth are reduction cells, which halve the map.
"""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import settled, vector_length
from fedloom.nets.pooling import as_vector
from fedloom.nets.two_part_batches import update_running_statistics
from fedloom.spaces import merged
from fedloom.spaces.cells.chosen import ChosenCells
from fedloom.spaces.choice import Choice, Live, Mixture, Scales, part_of
from fedloom.spaces.edge_costs import MapSize
from fedloom.spaces.edges import Edges, Run, Value, join
from fedloom.spaces.merged import SideBySide, State
from fedloom.spaces.ops import FactorizedReduce, Op, ReluConv, Stem
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Size
from fedloom.spaces.stacked import StackedCells, check_counts, check_weights
from fedloom.spaces.supernet import BothScores
from fedloom.types import Arch

STEM_FACTOR = 3  # the stem has three times the first cell's channels


class CellNetwork(StackedCells):
    space: ChosenCells

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        space: ChosenCells,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> None:
        check_size(shape, size)
        space.check_cells(size.cells)
        super().__init__(space, shape, classes, size, arch, affine)
        operations = space.operations_at_most(self.arch, size.cells)
        check_weights(operations, size.cells, size.channels)
        channels = size.channels
        stem = STEM_FACTOR * channels
        self.stem = Stem(shape[0], stem)
        self.cell_kinds = [space.kind_at(cell, size.cells) for cell in range(size.cells)]
        self.cells = nn.ModuleList()
        before = (stem, stem)
        side = (shape[1], shape[2])
        sizes = (side, side)
        for number, kind in enumerate(self.cell_kinds):
            reduces = number in reductions(size.cells)
            if reduces:
                channels *= 2
            cell = Cell(space, self.arch, kind, reduces, before, channels, sizes, affine)
            self.cells.append(cell)
            if reduces:
                side = (-(-side[0] // 2), -(-side[1] // 2))
            before = (before[1], space.nodes * channels)
            sizes = (sizes[1], side)
        self.ops = [part for part in self.cells.modules() if isinstance(part, Op)]
        self.head = settled(size.head, *side)
        self.size = size._replace(head=self.head)
        self.classifier = nn.Linear(vector_length(self.head, before[1]), classes)

    def forward(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        if isinstance(choice, Mixture) and self._merges(x):
            return self._flow_merged(x, len(x), choice)
        return super().forward(x, choice)

    def forward_both(
        self, train: torch.Tensor, validation: torch.Tensor, mixture: Mixture
    ) -> BothScores | None:
        if not merged.pays(train, self.size.channels) or not self._merges(validation):
            return None
        scores = self._flow_merged(torch.cat([train, validation]), len(train), mixture)
        return BothScores(scores[: len(train)], scores[len(train) :])

    def _flow_merged(self, x: torch.Tensor, trained: int, mixture: Mixture) -> torch.Tensor:
        """Returns the scores of all samples; the first `trained` are training samples."""
        run = SideBySide(trained)
        scores: torch.Tensor = self.flow(run, State(x, trained), mixture).map
        update_running_statistics(run.training_statistics)
        return scores

    def _merges(self, x: torch.Tensor) -> bool:
        return merged.pays(x, self.size.channels) and merged.can_merge(self.ops)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        s0 = run(self.stem, x)
        s1 = s0
        for number, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            scales, live = part_of(choice, self.place(number, len(self.space.edges)), (s0, s1))
            s2 = cell.flow(run, s0, s1, scales, live)
            s0 = s1
            s1 = s2
        return run(self.classifier, run(as_vector, s1, self.head))

    def first_slot(self, cell: int) -> int:
        return self.space.slots_of(self.cell_kinds[cell]).start


class Cell(nn.Module):
    """A cell: two preprocessed inputs, the nodes, and the nodes' concatenation."""

    def __init__(
        self,
        space: ChosenCells,
        arch: Arch,
        kind: str,
        reduces: bool,
        before: tuple[int, int],
        channels: int,
        sizes: tuple[MapSize, MapSize],
        affine: bool,
    ) -> None:
        """`kind` is the kind of cell that this cell is a copy of.

        `before` and `sizes` are the channels and the map sizes of the two inputs.
        """
        super().__init__()
        if sizes[0] != sizes[1]:
            self.pre0: Op = FactorizedReduce(before[0], channels, sizes[0], affine=affine)
        else:
            self.pre0 = ReluConv(before[0], channels, 1, 1, affine=affine)
        self.pre1 = ReluConv(before[1], channels, 1, 1, affine=affine)
        slots = space.slots_of(kind)
        self.edges = Edges(
            space.edges,
            space.slots[slots.start : slots.stop],
            arch.choice[slots.start : slots.stop],
            channels,
            strides_of(space, reduces),
            sizes[1],
            affine=affine,
        )
        self.nodes = space.nodes

    def flow(self, run: Run, s0: Value, s1: Value, scales: Scales, live: Live) -> Value:
        states = [run(self.pre0, run(torch.relu, s0)), run(self.pre1, run(torch.relu, s1))]
        return run(join, *self.edges.flow(run, states, self.nodes, scales, live))


def strides_of(space: ChosenCells, reduces: bool) -> list[int]:
    """Returns the stride of every edge: in a reduction cell, edges from inputs halve the map."""
    strides = []
    for source, _ in space.edges:
        halves = reduces and source < 2
        strides.append(2 if halves else 1)
    return strides


def check_size(shape: tuple[int, ...], size: Size) -> None:
    check_counts(size.cells, size.channels)
    least = 2 ** len(reductions(size.cells))
    if min(shape[1:]) < least:
        rule = f"images for {size.cells} cells must be at least {least}×{least}"
        raise FedloomError(
            rule,
            f"these are {shape[1]}×{shape[2]}",
            "use larger images or fewer cells",
        )
