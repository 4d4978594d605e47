"""How far a reply moves the model: the root mean square of what came back minus what was sent.

Parameters, running statistics and α move at different rates, so each of these groups is measured
separately.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from fedloom.federation.protocol.packing import Entry, Layout, Packed, arranged
from fedloom.types import ALPHA, Tensors

PARAMETERS = "parameters"
STATISTICS = "statistics"
ARCHITECTURE = "alpha"
GROUPS = (PARAMETERS, STATISTICS, ARCHITECTURE)
LARGEST = sys.float_info.max  # stands for infinity, which JSON does not have
SWEEP = 1 << 16  # elements that are processed in one step, so that they stay in the cache


class UpdateMeasure:
    """Measures how far replies are from the tensors that were sent.

    Its tensors are those that may come back, of one order or of many orders that share them.
    """

    def __init__(self, sent: Tensors) -> None:
        self.sent = sent
        self.entries = arranged(sent)
        floats = [entry for entry in self.entries if entry.dtype.is_floating_point]
        self.table: SweepTable | None = None
        if floats and all(entry.dtype == torch.float32 for entry in floats):
            self.table = SweepTable(sent, floats)
        # The layout of replies that contain exactly the tensors that were sent.
        self.layout: Layout | None = None

    def measure(self, reply: Tensors) -> dict[str, float]:
        """By group, the root mean square of what came back minus what was sent.

        Tensors that were not sent do not count.
        """
        if self.table is not None and isinstance(reply, Packed) and self._fits(reply.layout):
            return self.table.measure(reply.float_array())
        totals = dict.fromkeys(GROUPS, 0.0)
        counts = dict.fromkeys(GROUPS, 0)
        for entry in self.entries:  # in a fixed order, on which the last bits of a sum depend
            name = entry.name
            old = self.sent[name]
            if name in reply and old.is_floating_point():
                group = group_of(name)
                totals[group] += squared_difference(flat_array(reply[name]), flat_array(old))
                counts[group] += old.numel()
        sizes = {}
        for group in GROUPS:
            if counts[group]:
                sizes[group] = root_mean(totals[group], counts[group])
        return sizes

    def _fits(self, layout: Layout) -> bool:
        """Whether replies of this layout contain exactly the tensors that were sent.

        Layouts are compared once for all replies that share one.
        """
        if layout is not self.layout and layout.entries == self.entries:
            self.layout = layout
        return layout is self.layout


def group_of(name: str) -> str:
    """The group in which the update of this tensor is measured."""
    if name.startswith(ALPHA):
        return ARCHITECTURE
    if name.rpartition(".")[2] in ("running_mean", "running_var"):
        return STATISTICS
    return PARAMETERS


class SweepTable:
    """float32 tensors side by side, as they lie in a message.

    So all groups can be measured in one sweep.
    """

    def __init__(self, sent: Tensors, entries: Sequence[Entry]) -> None:
        self.flat = np.concatenate([flat_array(sent[entry.name]) for entry in entries])
        self.plan = sweep_plan(tuple(entries))

    def measure(self, reply: np.ndarray) -> dict[str, float]:
        totals = np.zeros(len(GROUPS))
        for step in self.plan.steps:
            squares = squared(reply[step.begin : step.end], self.flat[step.begin : step.end])
            sums = np.add.reduceat(squares, step.begins)
            totals += np.bincount(step.groups, weights=sums, minlength=len(GROUPS))
        sizes = {}
        for group, total, count in zip(GROUPS, totals.tolist(), self.plan.counts, strict=True):
            if count:
                sizes[group] = root_mean(total, count)
        return sizes


class SweepStep(NamedTuple):
    """A step of the sweep: its range of elements, and the pieces of tensors within it."""

    begin: int
    end: int
    begins: np.ndarray  # where each piece begins, relative to the step
    groups: np.ndarray  # the group of each piece


class SweepPlan(NamedTuple):
    """How adjacent tensors are measured, step by step."""

    steps: list[SweepStep]
    counts: list[int]  # elements of each group


@lru_cache(maxsize=8)  # the rounds of a run have few different tables
def sweep_plan(entries: tuple[Entry, ...]) -> SweepPlan:
    """The plan for tensors that lie side by side in this order."""
    lengths = np.array([math.prod(entry.shape) for entry in entries])
    groups = np.array([GROUPS.index(group_of(entry.name)) for entry in entries])
    ends = np.cumsum(lengths)
    size = int(ends[-1])
    # A piece ends where its tensor or its step of the sweep ends.
    begins = np.union1d((ends - lengths)[lengths > 0], np.arange(0, size, SWEEP))
    groups_of_pieces = groups[np.searchsorted(ends, begins, side="right")]
    steps = []
    for begin in range(0, size, SWEEP):
        end = min(begin + SWEEP, size)
        first, last = np.searchsorted(begins, (begin, end))
        steps.append(
            SweepStep(begin, end, begins[first:last] - begin, groups_of_pieces[first:last])
        )
    counts = np.bincount(groups, weights=lengths, minlength=len(GROUPS))
    return SweepPlan(steps, [int(count) for count in counts])


def flat_array(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor on any device, with or without gradients, as a flat array."""
    array: np.ndarray = tensor.numpy(force=True).reshape(-1)
    return array


def squared(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The squared differences, in float64. For absurd numbers they may be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference: np.ndarray = np.subtract(new, old, dtype=np.float64)
        np.square(difference, out=difference)
    return difference


def squared_difference(new: np.ndarray, old: np.ndarray) -> float:
    """The sum of the squared differences, step by step so that a large tensor is never copied."""
    total = 0.0
    for begin in range(0, len(old), SWEEP):
        end = begin + SWEEP
        total += squared(new[begin:end], old[begin:end]).sum()
    return float(total)


def magnitude(sent: Tensors, group: str) -> float:
    """The root mean square of the tensors of a group that were sent."""
    total = 0.0
    count = 0
    for name, tensor in sent.items():
        if tensor.is_floating_point() and group_of(name) == group:
            total += squared_difference(flat_array(tensor), np.zeros(tensor.numel(), np.float32))
            count += tensor.numel()
    return root_mean(total, count)


def root_mean(total: float, count: int) -> float:
    """The square root of total / count, at most `LARGEST` so that JSON can hold it."""
    if count == 0:
        return 0.0
    root = math.sqrt(total / count)
    if math.isfinite(root):
        return root
    return LARGEST
