"""How far a reply moves the model, and the rule that refuses replies that move it absurdly far.

A reply can ruin a run even if it is finite: if one client sends 1e30, all clients diverge in the
next round. So the size of every update (what came back minus what was sent) is measured on arrival,
as its root mean square, and written into the journal. When all replies of a hop have arrived, one
rule compares all sizes, in client order: it refuses a client that exceeds a generous multiple of
the usual size, in this hop or in earlier rounds of the stage. The rule uses only the journal and
the checkpoint, so its verdict does not depend on the number of workers, the order of arrival, or
whether the run was resumed.

Parameters, running statistics and α move at different rates, and so do replies to different kinds
of orders. Each of these groups is judged separately.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median_low
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from fedloom.federation.protocol.packing import Entry, Layout, Packed, arranged
from fedloom.records.rows import UpdateNorms
from fedloom.types import ALPHA, Order, Tensors

Norms: TypeAlias = Mapping[str, float]  # by group, the root mean square of an update's elements
# By group, the usual size in each earlier round of a stage.
History: TypeAlias = Mapping[str, Sequence[float]]

PARAMETERS = "parameters"
STATISTICS = "statistics"
ARCHITECTURE = "alpha"
GROUPS = (PARAMETERS, STATISTICS, ARCHITECTURE)
ENOUGH = 3  # replies whose median counts as usual; of two, one may be absurd
REMEMBERED = 100  # rounds in a history
LARGEST = sys.float_info.max  # stands for infinity, which JSON does not have
SWEEP = 1 << 16  # elements that are processed in one step, so that they stay in the cache


def group_of(name: str) -> str:
    """The group in which the update of this tensor is measured."""
    if name.startswith(ALPHA):
        return ARCHITECTURE
    if name.rpartition(".")[2] in ("running_mean", "running_var"):
        return STATISTICS
    return PARAMETERS


class Ruler:
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


@dataclass(frozen=True)
class Scale:
    """How large the updates of one group were in one hop, and which size is usual."""

    sizes: Mapping[int, float]  # by client
    usual: float

    @property
    def largest(self) -> float:
        """The largest update, in multiples of the usual size."""
        return min(max(self.sizes.values()) / self.usual, LARGEST)


def scales(
    norms: Mapping[int, Norms],
    history: History,
    size_of_sent: Callable[[str], float],
) -> dict[str, Scale]:
    """The scales of those groups of a hop that can be judged. `norms` are by client.

    The usual size is the larger of the hop's median and the median of earlier rounds. Where updates
    are usually zero (frozen statistics), the size of the tensors that were sent takes its place. A
    group with too few replies and no history cannot be judged.
    """
    judged: dict[str, Scale] = {}
    groups = sorted(set().union(*norms.values()))
    for group in groups:
        sizes = sizes_in(norms, group)
        references = []
        if history.get(group):
            references.append(median_low(history[group]))
        if len(sizes) >= ENOUGH:
            references.append(median_low(sizes.values()))
        if references:
            judged[group] = Scale(sizes, max(references) or size_of_sent(group) or 1.0)
    return judged


def sizes_in(norms: Mapping[int, Norms], group: str) -> dict[int, float]:
    """How large the updates of one group were, by client, in client order."""
    sizes = {}
    for client in sorted(norms):
        if group in norms[client]:
            sizes[client] = norms[client][group]
    return sizes


def excessive(judged: Mapping[str, Scale], factor: float) -> dict[int, str]:
    """The clients whose updates are absurdly large, each with the reason for its refusal."""
    reasons: dict[int, str] = {}
    for group, scale in judged.items():
        for client, size in scale.sizes.items():
            if size > factor * scale.usual:
                reasons.setdefault(client, reason(group, size, scale.usual, factor))
    return reasons


def reason(group: str, size: float, usual: float, factor: float) -> str:
    measured = f"its update of {group} is {size:.3g} per element"
    return f"{measured}, usual is {usual:.3g} (--norm-bound {factor:g})"


def medians(norms: Sequence[Norms]) -> dict[str, float]:
    """By group, the median size of these updates."""
    by_group: dict[str, list[float]] = {}
    for sizes in norms:
        for group, size in sizes.items():
            by_group.setdefault(group, []).append(size)
    return {group: median_low(by_group[group]) for group in sorted(by_group)}


def extended(history: History, usual: Norms) -> dict[str, list[float]]:
    """The history after one more round, in which these sizes were usual."""
    longer = {group: list(values) for group, values in history.items()}
    for group, value in usual.items():
        longer[group] = [*longer.get(group, []), value][-REMEMBERED:]
    return longer


class UpdateBound:
    """The rule for one round, by the history of earlier rounds and the round's own hops."""

    def __init__(self, history: History, factor: float | None) -> None:
        self.history = history
        self.factor = factor  # None: no client is refused
        self.hops: list[Norms] = []  # the usual sizes in each hop
        self.updates: dict[str, UpdateNorms] = {}  # by group, for the hop with the largest update

    def refuse(self, orders: Sequence[Order], norms: Mapping[int, Norms]) -> dict[int, str]:
        """The clients of a complete hop whose updates are absurdly large, with the reasons."""
        judged = scales(norms, self.history, lambda group: size_of_sent(orders, group))
        self._note(judged)
        reasons = {}
        if self.factor is not None:
            reasons = excessive(judged, self.factor)
        accepted = [sizes for client, sizes in norms.items() if client not in reasons]
        self.hops.append(medians(accepted))
        return reasons

    def _note(self, judged: Mapping[str, Scale]) -> None:
        for group, scale in judged.items():
            before = self.updates.get(group)
            if before is None or scale.largest > before.largest:
                self.updates[group] = UpdateNorms(scale.usual, scale.largest)

    def history_after(self) -> History:
        """The history including this round."""
        return extended(self.history, medians(self.hops))


def size_of_sent(orders: Sequence[Order], group: str) -> float:
    """The size of a group's tensors in the first order of its kind.

    `group` is the kind of order and the group's own name, separated by a space.
    """
    kind, _, name = group.rpartition(" ")
    for order in orders:
        if order.kind == kind:
            return magnitude(order.tensors, name)
    return 0.0
