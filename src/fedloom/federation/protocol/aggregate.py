"""The one aggregation: a weighted mean per key, folded over replies in client order.

Σ n·w is accumulated in float64 and divided at the end, so identical float32 clients average to
themselves, and memory does not depend on the number of clients. Float tensors live in one flat
buffer. A reply that brings all of them is added in one sweep. One that brings only some of them is
added in one sweep per run of adjacent tensors with the same weight. Any other reply is added key by
key. All three ways give the same bits.

A reply may bring only some of the keys, and weigh each separately (`Reply.weight` by key). Then
every key is the mean over the replies that bring it, with their weights for this key. So the
operations of a supernet are averaged by the samples that went through them.

Integers (BN's batch counters) take the maximum. A key that no reply weighs, or that fewer than
`min_clients` clients touched, keeps its old value, whatever its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from fedloom.federation.protocol.packing import Entry, Layout, Packed, arranged
from fedloom.types import Order, Region, Reply, Tensors

# Elements per step, so that the total's slice stays in the cache while the reply's is converted.
SWEEP = 1 << 16


def aggregate(
    old: Tensors,
    replies: Iterable[Reply],
    orders: Iterable[Order] = (),
    min_clients: int = 1,
) -> Tensors:
    """`old` with every key replaced by the weighted mean of what the replies bring for it."""
    return folded(old, replies, orders).result(min_clients)


def folded(old: Tensors, replies: Iterable[Reply], orders: Iterable[Order] = ()) -> Fold:
    """The fold of all replies, each in the region of its order."""
    fold = Fold(old)
    regions = {order.client: order.region for order in orders if order.region}
    for reply in replies:
        fold.add(reply, regions.get(reply.client))
    return fold


@dataclass
class Tally:
    """What one key has received so far."""

    total: torch.Tensor  # Σ n·w, a slice of the flat buffer
    weight: float | torch.Tensor = 0.0  # a tensor if regions make it differ between elements
    clients: int = 0


@dataclass
class Maximum:
    """The largest integers that one key, or all of them side by side, have received so far."""

    value: torch.Tensor
    clients: int

    def raise_to(self, value: torch.Tensor, clients: int) -> None:
        torch.maximum(self.value, value, out=self.value)
        self.clients += clients


class Place(NamedTuple):
    """Where a tensor lies in the flat buffer."""

    begin: int
    shape: tuple[int, ...]


@dataclass
class AdjacentTensors:
    """Tensors with one weight that are adjacent both in a reply and in the flat buffer."""

    names: list[str]
    begin: int  # in bytes of the reply's body
    end: int
    place: int  # where the first tensor begins in the flat buffer
    weight: float

    def take(self, entry: Entry, place: int, weight: float) -> bool:
        """Append this tensor if it continues the run. Returns whether it does."""
        elements = (self.end - self.begin) // entry.dtype.itemsize
        follows = entry.begin == self.end and place == self.place + elements
        if not follows or weight != self.weight:
            return False
        self.names.append(entry.name)
        self.end = entry.end
        return True


class Fold:
    """An aggregation in progress.

    As long as every reply is whole, that is, brings all tensors with one weight, one tally serves
    all keys.
    """

    def __init__(self, old: Tensors) -> None:
        self.old = old
        self.entries = arranged(old)
        self.floats = [entry for entry in self.entries if entry.dtype.is_floating_point]
        self.integers = [entry for entry in self.entries if entry.dtype == torch.int64]
        self.sweeps = {entry.dtype for entry in self.entries} <= {torch.float32, torch.int64}
        self.common = Tally(torch.zeros(sum(sizes(self.floats)), dtype=torch.float64))
        # The layout of replies that are known to be whole.
        self.layout: Layout | None = None
        # One tally per key, from the first reply on that is not whole.
        self.tallies: dict[str, Tally] = {}
        # The maxima of integers: for whole replies side by side, for other replies by key.
        self.counters: Maximum | None = None
        self.maxima: dict[str, Maximum] = {}

    def add(self, reply: Reply, region: Mapping[str, Region] | None = None) -> None:
        if not region and self._add_whole(reply):
            return
        regions = region or {}
        tallies = self._by_key()
        added = self._add_runs(reply, regions)
        for key in reply.tensors:
            weight = weight_of(reply, key)
            if weight == 0.0 or key not in self.old or key in added:
                continue
            tensor = reply.tensors[key]
            count = count_of(reply, key)
            if tensor.is_floating_point():
                self._add_key(tallies[key], tensor, weight, count, regions.get(key))
            elif key in self.maxima:
                self.maxima[key].raise_to(tensor, count)
            else:
                self.maxima[key] = Maximum(tensor.clone(), count)

    def _add_whole(self, reply: Reply) -> bool:
        """Add a client's reply that has exactly our tensors and one weight, which is fast.

        False: the reply is of another kind, and nothing was added.
        """
        tensors = reply.tensors
        weight = reply.weight
        if not isinstance(tensors, Packed) or isinstance(weight, Mapping):
            return False
        if reply.count is not None or not self._fits(tensors.layout):
            return False
        if not weight:
            return True
        add_in_steps(self.common.total, tensors.flat(torch.float32), weight)
        for tally in self.tallies.values() or (self.common,):
            tally.weight = tally.weight + weight
            tally.clients += 1
        if self.integers:
            self._raise_counters(tensors.flat(torch.int64))
        return True

    def _add_runs(self, reply: Reply, regions: Mapping[str, Region]) -> set[str]:
        """Add float tensors of a client's reply, several at once where they are adjacent.

        Tensors are adjacent in both buffers if no key of ours is missing between them. Returns the
        names of the tensors that were added. The others are added key by key.
        """
        tensors = reply.tensors
        if not isinstance(tensors, Packed) or regions or not self.sweeps:
            return set()
        runs: list[AdjacentTensors] = []
        for entry in tensors.layout.entries:
            place = self._places.get(entry.name)
            weight = weight_of(reply, entry.name)
            if place is None or entry.dtype != torch.float32 or weight == 0.0:
                continue
            if entry.shape != place.shape:
                return set()  # adding the tensor by itself will raise a helpful error
            if not runs or not runs[-1].take(entry, place.begin, weight):
                runs.append(
                    AdjacentTensors([entry.name], entry.begin, entry.end, place.begin, weight)
                )
        added: set[str] = set()
        for run in runs:
            values = tensors.between(torch.float32, run.begin, run.end)
            total = self.common.total[run.place : run.place + len(values)]
            add_in_steps(total, values, run.weight)
            for name in run.names:
                tally = self.tallies[name]
                tally.weight = tally.weight + run.weight
                tally.clients += count_of(reply, name)
            added.update(run.names)
        return added

    @cached_property
    def _places(self) -> dict[str, Place]:
        """Where the float tensors lie in the flat buffer, by name."""
        places = {}
        begin = 0
        for entry, size in zip(self.floats, sizes(self.floats), strict=True):
            places[entry.name] = Place(begin, entry.shape)
            begin += size
        return places

    def _raise_counters(self, counters: torch.Tensor) -> None:
        if self.counters is None:
            self.counters = Maximum(counters.clone(), 1)
        else:
            self.counters.raise_to(counters, 1)

    def _fits(self, layout: Layout) -> bool:
        """Whether replies of this layout have exactly our tensors.

        Layouts are compared once for all replies that share one.
        """
        if self.sweeps and layout is not self.layout and layout.entries == self.entries:
            self.layout = layout
        return layout is self.layout

    def _by_key(self) -> dict[str, Tally]:
        """One tally per key, which begins with the state of the common tally."""
        if not self.tallies:
            for key, total in cut(self.common.total, self.floats):
                self.tallies[key] = Tally(total, self.common.weight, self.common.clients)
        return self.tallies

    @staticmethod
    def _add_key(
        tally: Tally,
        tensor: torch.Tensor,
        weight: float,
        count: int,
        region: Region | None,
    ) -> None:
        tally.clients += count
        if region is None:
            tally.total.add_(tensor, alpha=weight)
            tally.weight = tally.weight + weight
            return
        if not isinstance(tally.weight, torch.Tensor):
            tally.weight = torch.full_like(tally.total, tally.weight)
        where = region_index(region, tally.total.shape)
        tally.total[where] = tally.total[where] + weight * tensor.double()
        tally.weight[where] += weight

    def result(self, min_clients: int = 1) -> Tensors:
        return {**self.old, **self._means(min_clients), **self._integers(min_clients)}

    def _means(self, min_clients: int) -> dict[str, torch.Tensor]:
        if not self.tallies:
            return self._common_means(min_clients)
        means = {}
        for key, tally in self.tallies.items():
            means[key] = mean(tally, self.old[key], min_clients)
        return means

    def _common_means(self, min_clients: int) -> dict[str, torch.Tensor]:
        """The means of all float tensors, in one sweep, if every reply was whole."""
        if not self._has_common_mean(min_clients):
            return {}
        flat = divided_in_steps(self.common.total, self.common.weight)
        # Each copy has its own aligned memory, like a clone, but one call makes all of them.
        split_copy: Any = torch.split_with_sizes_copy  # torch's stub says that it returns None
        copies = split_copy(flat, sizes(self.floats))
        means = {}
        for entry, copy in zip(self.floats, copies, strict=True):
            means[entry.name] = copy.view(entry.shape)
        return means

    def _has_common_mean(self, min_clients: int) -> bool:
        return self.common.clients >= min_clients and bool(self.common.weight)

    def merged(self, min_clients: int = 1) -> dict[str, torch.Tensor | None]:
        """The float keys that have a mean.

        The value is a mask of the elements that have one, or None if all of them do.
        """
        if not self.tallies:
            if not self._has_common_mean(min_clients):
                return {}
            return dict.fromkeys(entry.name for entry in self.floats)
        touched: dict[str, torch.Tensor | None] = {}
        for key, tally in self.tallies.items():
            if tally.clients < min_clients:
                continue
            if isinstance(tally.weight, torch.Tensor):
                touched[key] = tally.weight > 0
            elif tally.weight > 0:
                touched[key] = None
        return touched

    def _integers(self, min_clients: int) -> dict[str, torch.Tensor]:
        integers = {}
        for key, maximum in self._maxima().items():
            if maximum.clients >= min_clients:
                integers[key] = maximum.value
        return integers

    def _maxima(self) -> dict[str, Maximum]:
        """The maxima of integers over all replies, by key."""
        maxima = dict(self.maxima)
        if self.counters is None:
            return maxima
        for key, counter in cut(self.counters.value, self.integers):
            value = counter
            clients = self.counters.clients
            if key in self.maxima:
                value = torch.maximum(counter, self.maxima[key].value)
                clients += self.maxima[key].clients
            maxima[key] = Maximum(value, clients)
        return maxima

    def reply(self, client: int) -> Reply:
        """What a cluster's aggregator sends up: mean, Σn and number of clients for every key.

        All clients of a cluster work in one region, so every weight is a plain number here.
        """
        tensors: dict[str, torch.Tensor] = {}
        weight: dict[str, float] = {}
        count: dict[str, int] = {}
        for key, tally in self._by_key().items():
            if tally.clients:
                tensors[key] = mean(tally, self.old[key], 1)
                weight[key] = float(tally.weight)
                count[key] = tally.clients
        for key, maximum in self._maxima().items():
            tensors[key] = maximum.value
            weight[key] = 1.0
            count[key] = maximum.clients
        return Reply(client, tensors, weight, count=count)


def add_in_steps(total: torch.Tensor, flat: torch.Tensor, weight: float) -> None:
    """Add `weight` times `flat` to `total`, in place."""
    if len(total) <= SWEEP:
        total.add_(flat, alpha=weight)
        return
    for part, added in zip(total.split(SWEEP), flat.split(SWEEP), strict=True):
        part.add_(added, alpha=weight)


def divided_in_steps(total: torch.Tensor, weight: float | torch.Tensor) -> torch.Tensor:
    """`total` divided by `weight`, in float32."""
    if len(total) <= SWEEP:
        return (total / weight).float()
    flat = torch.empty(len(total), dtype=torch.float32)
    for part, summed in zip(flat.split(SWEEP), total.split(SWEEP), strict=True):
        part.copy_(summed / weight)
    return flat


def cut(flat: torch.Tensor, entries: Sequence[Entry]) -> Iterator[tuple[str, torch.Tensor]]:
    """The names of tensors that lie side by side in a flat one, each with its view."""
    for entry, part in zip(entries, flat.split(sizes(entries)), strict=True):
        yield entry.name, part.view(entry.shape)


def sizes(entries: Sequence[Entry]) -> list[int]:
    return [math.prod(entry.shape) for entry in entries]


def mean(tally: Tally, old: torch.Tensor, min_clients: int) -> torch.Tensor:
    """The mean of a key. Elements that no client has weighed keep their old values."""
    if tally.clients < min_clients:
        return old
    if isinstance(tally.weight, torch.Tensor):
        means = tally.total / tally.weight.clamp_min(1e-300)
        return torch.where(tally.weight > 0, means, old).to(old.dtype)
    if tally.weight > 0:
        return (tally.total / tally.weight).to(old.dtype)
    return old


def weight_of(reply: Reply, key: str) -> float:
    if isinstance(reply.weight, Mapping):
        return reply.weight.get(key, 0.0)
    return reply.weight


def count_of(reply: Reply, key: str) -> int:
    if reply.count is None:
        return 1
    return reply.count.get(key, 0)


def region_index(region: Region, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """A region as an index: an open grid of the chosen indices in each dimension."""
    grid = []
    for axis, (indices, size) in enumerate(zip(region, shape, strict=True)):
        chosen = torch.arange(size) if indices is None else torch.tensor(indices)
        along_axis = [1] * len(shape)
        along_axis[axis] = -1
        grid.append(chosen.view(along_axis))
    return tuple(grid)
