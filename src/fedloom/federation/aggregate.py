"""The one aggregation: a weighted mean per key, folded over replies in client order.

Σ n·w is accumulated in float64 and divided at the end, so identical clients average to themselves, and
memory does not depend on the number of clients. Float tensors live in one flat buffer; a reply that brings
all of them is added in one sweep, any other one key by key, with the same bits.

Integers (BN's batch counters) take the maximum. A key that nobody weighs, or fewer than `min_clients`
touched, keeps its old value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from fedloom.federation.wire import Packed
from fedloom.types import Order, Region, Reply, Tensors

SWEEP = 1 << 15  # elements a step: the accumulator's slice stays in the cache while its conversion is made


def aggregate(old: Tensors, replies: Iterable[Reply], orders: Iterable[Order] = (), min_clients: int = 1) -> Tensors:
    """`old` with every key replaced by the weighted mean of what the replies bring for it."""
    fold = Fold(old)
    regions = {order.client: order.region for order in orders if order.region}
    for reply in replies:
        fold.add(reply, regions.get(reply.client))
    return fold.result(min_clients)


@dataclass
class Tally:
    """What one key has received so far. `weight` is a tensor where regions make it differ by element."""

    view: torch.Tensor  # Σ n·w, a slice of the flat buffer
    weight: float | torch.Tensor = 0.0
    clients: int = 0


@dataclass
class Fold:
    """Aggregation in progress."""

    old: Tensors
    flat: torch.Tensor = field(init=False)
    tallies: dict[str, Tally] = field(init=False)
    layout: tuple[tuple[str, tuple[int, ...]], ...] = field(init=False)
    integers: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        floats = {key: tensor for key, tensor in sorted(self.old.items()) if tensor.is_floating_point()}
        self.flat = torch.zeros(sum(tensor.numel() for tensor in floats.values()), dtype=torch.float64)
        self.layout = tuple((key, tuple(tensor.shape)) for key, tensor in floats.items())
        self.tallies, begin = {}, 0
        for key, tensor in floats.items():
            end = begin + tensor.numel()
            self.tallies[key] = Tally(self.flat[begin:end].view(tensor.shape))
            begin = end

    def add(self, reply: Reply, region: Mapping[str, Region] | None = None) -> None:
        if self._whole(reply, region):
            return
        for key, tensor in reply.tensors.items():
            weight, count = weight_of(reply, key), count_of(reply, key)
            if weight == 0.0 or key not in self.old:
                continue
            if tensor.is_floating_point():
                self._add_key(self.tallies[key], tensor, weight, count, None if region is None else region.get(key))
            else:
                self._maximum(key, tensor)

    def _whole(self, reply: Reply, region: Mapping[str, Region] | None) -> bool:
        """The fast way: one sweep over a reply that has exactly our float32 tensors and one weight."""
        if region or not isinstance(reply.tensors, Packed) or isinstance(reply.weight, Mapping):
            return False
        layout, flat = reply.tensors.float32()
        if layout != self.layout:
            return False
        if reply.weight:
            for total, part in zip(self.flat.split(SWEEP), flat.split(SWEEP), strict=True):
                total.add_(part, alpha=reply.weight)
            for key, tally in self.tallies.items():
                tally.weight, tally.clients = (
                    tally.weight + reply.weight,
                    tally.clients + count_of(reply, key),
                )
            for entry in reply.tensors.entries():
                if not entry.dtype.is_floating_point and entry.name in self.old:
                    self._maximum(entry.name, reply.tensors[entry.name])
        return True

    @staticmethod
    def _add_key(tally: Tally, tensor: torch.Tensor, weight: float, count: int, region: Region | None) -> None:
        tally.clients += count
        if region is None:
            tally.view.add_(tensor, alpha=weight)
            tally.weight = tally.weight + weight
            return
        if not isinstance(tally.weight, torch.Tensor):
            tally.weight = torch.full_like(tally.view, tally.weight)
        where = place(region, tally.view.shape)
        tally.view[where] = tally.view[where] + weight * tensor.double()
        tally.weight[where] += weight

    def _maximum(self, key: str, tensor: torch.Tensor) -> None:
        known = self.integers.get(key)
        self.integers[key] = tensor.clone() if known is None else torch.maximum(known, tensor)

    def result(self, min_clients: int = 1) -> Tensors:
        return {key: self._finished(key, tensor, min_clients) for key, tensor in self.old.items()}

    def _finished(self, key: str, old: torch.Tensor, min_clients: int) -> torch.Tensor:
        if not old.is_floating_point():
            return self.integers.get(key, old)
        tally = self.tallies[key]
        if tally.clients < min_clients:
            return old
        if isinstance(tally.weight, torch.Tensor):
            return torch.where(tally.weight > 0, tally.view / tally.weight.clamp_min(1e-300), old).to(old.dtype)
        return (tally.view / tally.weight).to(old.dtype) if tally.weight > 0 else old

    def reply(self, client: int) -> Reply:
        """What a cluster's aggregator sends up: the mean, Σn and the number of clients behind every key.

        One cluster works in one region, so here every weight is a plain number.
        """
        touched = {key: tally for key, tally in self.tallies.items() if tally.clients}
        tensors = {key: self._finished(key, self.old[key], 1) for key in [*touched, *self.integers]}
        weight = {key: float(tally.weight) for key, tally in touched.items()} | dict.fromkeys(self.integers, 1.0)
        count = {key: tally.clients for key, tally in touched.items()} | dict.fromkeys(self.integers, 1)
        return Reply(client, tensors, weight, count=count)


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
