"""What every operation of every slot costs, where a path's cost is a sum: one table, asked often.

A sampler under a limit draws hundreds of thousands of paths: it takes a table's plain numbers once
(`numbers("macs")`) and adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fedloom.types import Arch, UnitCosts

Unit = Literal["params", "macs", "macs_paper"]
# What a limit can be in. Milliseconds are not a space's to say: they are of a device's profile.
LimitUnit = Literal["params", "macs", "macs_paper", "latency_ms"]


@dataclass(frozen=True)
class OpCost:
    """Of one sample's forward pass.

    `macs` are products, as the meter counts. `macs_paper` also counts what FedorAS's tool does:
    biases, 2 for an element of BN, 1 for an element of ReLU and for an input element of a pool.
    """

    params: int = 0
    macs: int = 0
    macs_paper: int = 0
    activations: int = 0  # elements of every tensor that is made

    def of(self, unit: Unit) -> int:
        if unit == "params":
            return self.params
        if unit == "macs":
            return self.macs
        return self.macs_paper


def together(costs: Iterable[OpCost]) -> OpCost:
    """The sum of the costs of parts."""
    params = 0
    macs = 0
    macs_paper = 0
    activations = 0
    for cost in costs:
        params += cost.params
        macs += cost.macs
        macs_paper += cost.macs_paper
        activations += cost.activations
    return OpCost(params, macs, macs_paper, activations)


@dataclass(frozen=True)
class CostTable:
    """A path costs the fixed part, and one entry of every row."""

    fixed: OpCost
    rows: tuple[tuple[OpCost, ...], ...]  # by slot and option

    def numbers(self, unit: Unit) -> tuple[tuple[int, ...], ...]:
        """The rows as plain numbers."""
        return tuple(tuple(cost.of(unit) for cost in row) for row in self.rows)

    def in_unit(self, unit: LimitUnit, latency: UnitCosts | None = None) -> UnitCosts:
        """What a limit in this unit is about; `latency` is what a profile says."""
        if unit == "latency_ms":
            assert latency is not None  # a limit in milliseconds comes with them
            return latency
        return UnitCosts(self.fixed.of(unit), self.numbers(unit))

    def of(self, arch: Arch, unit: Unit) -> int:
        """Of a path, or of everything that a part of the network has."""
        cost = self.fixed.of(unit)
        for row, live in zip(self.rows, arch.choice, strict=True):
            cost += sum(row[op].of(unit) for op in live)
        return cost

    def cheapest(self, unit: Unit) -> int:
        """Of the path that costs least."""
        return self.fixed.of(unit) + sum(min(row) for row in self.numbers(unit))

    def dearest(self, unit: Unit) -> int:
        """Of the path that costs most."""
        return self.fixed.of(unit) + sum(max(row) for row in self.numbers(unit))

    def everything(self, unit: Unit) -> int:
        """Of all operations of all slots: the supernet."""
        return self.fixed.of(unit) + sum(sum(row) for row in self.numbers(unit))
