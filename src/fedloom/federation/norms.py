"""How far a reply moves the model, and the rule that refuses one that moves it absurdly far.

A reply that is finite can still end a run: one client that sends 1e30 makes everybody diverge in the next round. So
the size of every update (what came back minus what was sent) is measured on arrival, the root of its mean square, and
written into the journal. When all replies of a hop are there, one rule looks at all sizes in client order: refused is
who exceeds a generous multiple of what is usual, in this hop or in earlier rounds of the stage. The rule sees nothing
but the journal and the checkpoint, so its verdict is the same for any number of workers, order of arrival and resume.

Parameters, running statistics and α move at different rates, and so do replies to different kinds of orders: each of
these groups is judged by itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import TypeAlias

import numpy as np
import torch

from fedloom.federation.wire import Entry, Layout, Packed, arranged
from fedloom.nets.mixed import ALPHA
from fedloom.types import Tensors

Norms: TypeAlias = Mapping[str, float]  # by group, root mean square of an update's elements
History: TypeAlias = Mapping[str, Sequence[float]]  # by group, what was usual in each earlier round of a stage

PARAMETERS, STATISTICS, ARCHITECTURE = "parameters", "statistics", "alpha"
GROUPS = (PARAMETERS, STATISTICS, ARCHITECTURE)
ENOUGH = 3  # replies whose median says what is usual: of two, one may be absurd
REMEMBERED = 100  # rounds
LARGEST = sys.float_info.max  # JSON has no infinity
SWEEP = 1 << 16  # elements that are looked at in one step, so that they stay in the cache


def group_of(name: str) -> str:
    """Which updates are measured together with that of this tensor."""
    if name.startswith(ALPHA):
        return ARCHITECTURE
    if name.rpartition(".")[2] in ("running_mean", "running_var"):
        return STATISTICS
    return PARAMETERS


class Ruler:
    """Measures replies against the tensors that one or many orders carried."""

    def __init__(self, sent: Tensors) -> None:
        self.sent = sent
        self.entries = arranged(sent)
        floats = [entry for entry in self.entries if entry.dtype.is_floating_point]
        sweeps = bool(floats) and all(entry.dtype == torch.float32 for entry in floats)
        self.table = SweepTable(sent, floats) if sweeps else None
        self.layout: Layout | None = None  # of replies that were found to bring exactly what was sent

    def measure(self, reply: Tensors) -> dict[str, float]:
        """By group, the root mean square of what came back minus what was sent. Tensors beyond those do not count."""
        if self.table is not None and isinstance(reply, Packed) and self._fits(reply.layout):
            return self.table.measure(reply.flat(torch.float32).numpy())
        totals = dict.fromkeys(GROUPS, 0.0)
        counts = dict.fromkeys(GROUPS, 0)
        for name, tensor in reply.items():
            if name in self.sent and tensor.is_floating_point():
                group = group_of(name)
                totals[group] += squares(tensor.double() - self.sent[name].cpu().double())
                counts[group] += tensor.numel()
        return {group: root_mean(totals[group], counts[group]) for group in GROUPS if counts[group]}

    def _fits(self, layout: Layout) -> bool:
        """Compared once for all replies that share it."""
        if layout is not self.layout and layout.entries == self.entries:
            self.layout = layout
        return layout is self.layout

    def magnitude(self, group: str) -> float:
        """The root mean square of what was sent."""
        names = [entry.name for entry in self.entries if entry.dtype.is_floating_point]
        chosen = [self.sent[name] for name in names if group_of(name) == group]
        total = sum(squares(tensor.cpu().double()) for tensor in chosen)
        return root_mean(total, sum(tensor.numel() for tensor in chosen))


class SweepTable:
    """float32 tensors side by side, as they lie in a message: all groups are measured in one sweep."""

    def __init__(self, sent: Tensors, entries: Sequence[Entry]) -> None:
        self.flat = torch.cat([sent[entry.name].cpu().reshape(-1) for entry in entries]).numpy()
        lengths = np.array([math.prod(entry.shape) for entry in entries])
        groups = np.array([GROUPS.index(group_of(entry.name)) for entry in entries])
        ends = np.cumsum(lengths)
        begins = (ends - lengths)[lengths > 0]
        # a piece ends where its tensor or its step of the sweep ends
        self.begins = np.union1d(begins, np.arange(0, len(self.flat), SWEEP))
        self.groups = groups[np.searchsorted(ends, self.begins, side="right")]
        self.counts = np.bincount(groups, weights=lengths, minlength=len(GROUPS))

    def measure(self, reply: np.ndarray) -> dict[str, float]:
        totals = np.zeros(len(GROUPS))
        for begin in range(0, len(self.flat), SWEEP):
            end = min(begin + SWEEP, len(self.flat))
            update = np.subtract(reply[begin:end], self.flat[begin:end], dtype=np.float64)
            first, last = np.searchsorted(self.begins, (begin, end))
            sums = np.add.reduceat(np.square(update, out=update), self.begins[first:last] - begin)
            totals += np.bincount(self.groups[first:last], weights=sums, minlength=len(GROUPS))
        found = zip(GROUPS, totals, self.counts, strict=True)
        return {group: root_mean(float(total), int(count)) for group, total, count in found if count}


def squares(values: torch.Tensor) -> float:
    return float(values.square().sum())


def root_mean(total: float, count: int) -> float:
    if count == 0:
        return 0.0
    return min(math.sqrt(total / count), LARGEST)


def excessive(
    norms: Mapping[int, Norms], history: History, factor: float, magnitude: Callable[[str], float]
) -> dict[int, str]:
    """Which clients' updates are absurdly large, each with the reason. `norms` are those of one hop, by client.

    Usual is the larger of the hop's median and that of earlier rounds. Where nobody usually moves at all (frozen
    statistics), the `magnitude` of what was sent stands in. With too few replies and no history nobody is refused.
    """
    reasons: dict[int, str] = {}
    for group in sorted({group for sizes in norms.values() for group in sizes}):
        sizes = {client: norms[client][group] for client in sorted(norms) if group in norms[client]}
        references = [median_low(history[group])] if history.get(group) else []
        if len(sizes) >= ENOUGH:
            references.append(median_low(sizes.values()))
        if not references:
            continue
        usual = max(references) or magnitude(group) or 1.0
        for client, size in sizes.items():
            if size > factor * usual:
                reasons.setdefault(client, reason(group, size, usual, factor))
    return reasons


def reason(group: str, size: float, usual: float, factor: float) -> str:
    return f"its update of {group} is {size:.3g} an element, usual is {usual:.3g} (--norm-bound {factor:g})"


def medians(norms: Sequence[Norms]) -> dict[str, float]:
    """By group, what is usual among these."""
    groups = sorted({group for sizes in norms for group in sizes})
    return {group: median_low(sizes[group] for sizes in norms if group in sizes) for group in groups}


def extended(history: History, usual: Norms) -> dict[str, list[float]]:
    """The history after one more round."""
    longer = {group: list(values) for group, values in history.items()}
    for group, value in usual.items():
        longer[group] = [*longer.get(group, []), value][-REMEMBERED:]
    return longer
