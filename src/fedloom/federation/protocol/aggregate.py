"""The one aggregation: a weighted mean per key, folded over replies in client order.

Σ n·w is accumulated in float64 and divided at the end, so identical float32 clients average to themselves, and
memory does not depend on the number of clients. Float tensors live in one flat buffer; a reply that brings
all of them is added in one sweep, any other one key by key, with the same bits.

Integers (BN's batch counters) take the maximum. A key that nobody weighs, or fewer than `min_clients`
touched, keeps its old value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedloom.federation.protocol.wire import Entry, Layout, Packed, arranged
from fedloom.types import Order, Region, Reply, Tensors

SWEEP = 1 << 16  # elements a step: the total's slice stays in the cache while the reply's is converted


def aggregate(old: Tensors, replies: Iterable[Reply], orders: Iterable[Order] = (), min_clients: int = 1) -> Tensors:
    """`old` with every key replaced by the weighted mean of what the replies bring for it."""
    return folded(old, replies, orders).result(min_clients)


def folded(old: Tensors, replies: Iterable[Reply], orders: Iterable[Order] = ()) -> Fold:
    """All replies, each in the region of its order."""
    fold = Fold(old)
    regions = {order.client: order.region for order in orders if order.region}
    for reply in replies:
        fold.add(reply, regions.get(reply.client))
    return fold


@dataclass
class Tally:
    """What one key has received so far. `weight` is a tensor where regions make it differ by element."""

    total: torch.Tensor  # Σ n·w, a slice of the flat buffer
    weight: float | torch.Tensor = 0.0
    clients: int = 0


class Fold:
    """Aggregation in progress. As long as every reply is whole, one tally serves all keys."""

    def __init__(self, old: Tensors) -> None:
        self.old, self.entries = old, arranged(old)
        self.floats = [entry for entry in self.entries if entry.dtype.is_floating_point]
        self.integers = [entry for entry in self.entries if entry.dtype == torch.int64]
        self.sweeps = {entry.dtype for entry in self.entries} <= {torch.float32, torch.int64}
        self.common = Tally(torch.zeros(sum(math.prod(entry.shape) for entry in self.floats), dtype=torch.float64))
        self.layout: Layout | None = None  # of replies that were found to be whole
        self.tallies: dict[str, Tally] = {}  # from the first reply on that is not whole
        self.counters: torch.Tensor | None = None  # maxima of the integers of whole replies, side by side
        self.maxima: dict[str, torch.Tensor] = {}  # and of other replies, by key

    def add(self, reply: Reply, region: Mapping[str, Region] | None = None) -> None:
        if not region and self._whole(reply):
            return
        tallies = self._by_key()
        for key, tensor in reply.tensors.items():
            weight, count = weight_of(reply, key), count_of(reply, key)
            if weight == 0.0 or key not in self.old:
                continue
            if tensor.is_floating_point():
                self._add_key(tallies[key], tensor, weight, count, None if region is None else region.get(key))
            else:
                self.maxima[key] = torch.maximum(tensor, self.maxima.get(key, tensor))

    def _whole(self, reply: Reply) -> bool:
        """The fast way, for a client's reply that has exactly our tensors and one weight."""
        tensors, weight = reply.tensors, reply.weight
        if not isinstance(tensors, Packed) or isinstance(weight, Mapping) or reply.count is not None:
            return False
        if not self._fits(tensors.layout):
            return False
        if weight:
            add_in_steps(self.common.total, tensors.flat(torch.float32), weight)
            for tally in self.tallies.values() or (self.common,):
                tally.weight = tally.weight + weight
                tally.clients += 1
            if self.integers:
                self._raise_counters(tensors.flat(torch.int64))
        return True

    def _raise_counters(self, counters: torch.Tensor) -> None:
        if self.counters is None:
            self.counters = counters.clone()
        else:
            torch.maximum(self.counters, counters, out=self.counters)

    def _fits(self, layout: Layout) -> bool:
        """Compared once for all replies that share it."""
        if self.sweeps and layout is not self.layout and layout.entries == self.entries:
            self.layout = layout
        return layout is self.layout

    def _by_key(self) -> dict[str, Tally]:
        """A tally for every key, from where the common one stands."""
        if not self.tallies:
            weight, clients = self.common.weight, self.common.clients
            self.tallies = {key: Tally(total, weight, clients) for key, total in cut(self.common.total, self.floats)}
        return self.tallies

    @staticmethod
    def _add_key(tally: Tally, tensor: torch.Tensor, weight: float, count: int, region: Region | None) -> None:
        tally.clients += count
        if region is None:
            tally.total.add_(tensor, alpha=weight)
            tally.weight = tally.weight + weight
            return
        if not isinstance(tally.weight, torch.Tensor):
            tally.weight = torch.full_like(tally.total, tally.weight)
        where = place(region, tally.total.shape)
        tally.total[where] = tally.total[where] + weight * tensor.double()
        tally.weight[where] += weight

    def result(self, min_clients: int = 1) -> Tensors:
        if self.tallies:
            means = {key: mean(tally, self.old[key], min_clients) for key, tally in self.tallies.items()}
        else:
            means = self._common_means(min_clients)
        return {**self.old, **means, **self._integers()}

    def merged(self, min_clients: int = 1) -> dict[str, torch.Tensor | None]:
        """The float keys that have a mean; with it which elements have one, where regions make them differ."""
        if not self.tallies:
            everything = self.common.clients >= min_clients and self.common.weight
            return dict.fromkeys((entry.name for entry in self.floats), None) if everything else {}
        touched: dict[str, torch.Tensor | None] = {}
        for key, tally in self.tallies.items():
            if tally.clients < min_clients:
                continue
            if isinstance(tally.weight, torch.Tensor):
                touched[key] = tally.weight > 0
            elif tally.weight > 0:
                touched[key] = None
        return touched

    def _common_means(self, min_clients: int) -> dict[str, torch.Tensor]:
        """In one sweep too, if every reply was whole."""
        total, weight = self.common.total, self.common.weight
        if self.common.clients < min_clients or not weight:
            return {}
        flat = torch.empty(len(total), dtype=torch.float32)
        for part, summed in zip(flat.split(SWEEP), total.split(SWEEP), strict=True):
            part.copy_(summed / weight)
        parts: Any = torch.split_with_sizes_copy(flat, sizes(self.floats))  # type: ignore[func-returns-value]
        # Each in memory of its own, aligned, as clones would be, but made in one call (torch's stub says None).
        return {entry.name: part.view(entry.shape) for entry, part in zip(self.floats, parts, strict=True)}

    def _integers(self) -> dict[str, torch.Tensor]:
        if self.counters is None:
            return self.maxima
        found = cut(self.counters, self.integers)
        return self.maxima | {key: torch.maximum(part, self.maxima.get(key, part)) for key, part in found}

    def reply(self, client: int) -> Reply:
        """What a cluster's aggregator sends up: the mean, Σn and the number of clients behind every key.

        One cluster works in one region, so here every weight is a plain number.
        """
        integers, touched = self._integers(), {key: tally for key, tally in self._by_key().items() if tally.clients}
        tensors = {key: mean(tally, self.old[key], 1) for key, tally in touched.items()} | integers
        weight = {key: float(tally.weight) for key, tally in touched.items()} | dict.fromkeys(integers, 1.0)
        count = {key: tally.clients for key, tally in touched.items()} | dict.fromkeys(integers, 1)
        return Reply(client, tensors, weight, count=count)


def add_in_steps(total: torch.Tensor, flat: torch.Tensor, weight: float) -> None:
    """`total` plus `weight` times `flat`."""
    if len(total) <= SWEEP:
        total.add_(flat, alpha=weight)
        return
    for part, added in zip(total.split(SWEEP), flat.split(SWEEP), strict=True):
        part.add_(added, alpha=weight)


def cut(flat: torch.Tensor, entries: Sequence[Entry]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that lie side by side in a flat one, as views."""
    parts = flat.split(sizes(entries))
    return ((entry.name, part.view(entry.shape)) for entry, part in zip(entries, parts, strict=True))


def sizes(entries: Sequence[Entry]) -> list[int]:
    return [math.prod(entry.shape) for entry in entries]


def mean(tally: Tally, old: torch.Tensor, min_clients: int) -> torch.Tensor:
    if tally.clients < min_clients:
        return old
    if isinstance(tally.weight, torch.Tensor):
        return torch.where(tally.weight > 0, tally.total / tally.weight.clamp_min(1e-300), old).to(old.dtype)
    return (tally.total / tally.weight).to(old.dtype) if tally.weight > 0 else old


def weight_of(reply: Reply, key: str) -> float:
    return reply.weight.get(key, 0.0) if isinstance(reply.weight, Mapping) else reply.weight


def count_of(reply: Reply, key: str) -> int:
    return 1 if reply.count is None else reply.count.get(key, 0)


def place(region: Region, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """A region as an index: one open grid of the chosen indices of each dimension."""
    chosen = [
        torch.arange(size) if part is None else torch.tensor(part) for part, size in zip(region, shape, strict=True)
    ]
    return tuple(
        part.view([-1 if axis == here else 1 for axis in range(len(chosen))]) for here, part in enumerate(chosen)
    )
