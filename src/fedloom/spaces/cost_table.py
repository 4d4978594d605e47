"""The cost of every operation of every slot, for spaces in which the cost of a path is a sum.

A sampler under a limit draws hundreds of thousands of paths: it takes a table's plain numbers once
(`numbers("macs")`) and adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fedloom.types import Arch, UnitCosts

Unit = Literal["params", "macs", "macs_paper"]
# The units of a limit. Milliseconds come from a device's profile, not from a space.
LimitUnit = Literal["params", "macs", "macs_paper", "latency_ms"]


@dataclass(frozen=True)
class OpCost:
    """The cost of one operation in one sample's forward pass.

    `macs` are products, as the meter counts them. `macs_paper` also counts what FedorAS's tool
    counts: biases, 2 per element of BN, 1 per element of ReLU and per input element of a pool.
    """

    params: int = 0
    macs: int = 0
    macs_paper: int = 0
    activations: int = 0  # elements of all tensors that are created

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
    """The costs of a space's operations: a path costs the fixed part and one entry of every row."""

    fixed: OpCost
    rows: tuple[tuple[OpCost, ...], ...]  # by slot and option

    def numbers(self, unit: Unit) -> tuple[tuple[int, ...], ...]:
        """The rows as plain numbers."""
        rows = []
        for row in self.rows:
            rows.append(tuple(cost.of(unit) for cost in row))
        return tuple(rows)

    def in_unit(self, unit: LimitUnit, latency: UnitCosts | None = None) -> UnitCosts:
        """Returns the costs in the unit of a limit; `latency` comes from a device's profile."""
        if unit == "latency_ms":
            assert latency is not None  # callers with a limit in milliseconds pass it
            return latency
        return UnitCosts(self.fixed.of(unit), self.numbers(unit))

    def of(self, arch: Arch, unit: Unit) -> int:
        """Returns the cost of a path, or of all operations in a part of the network."""
        cost = self.fixed.of(unit)
        for row, live in zip(self.rows, arch.choice, strict=True):
            cost += sum(row[op].of(unit) for op in live)
        return cost

    def cheapest(self, unit: Unit) -> int:
        """Returns the cost of the cheapest path."""
        return self.fixed.of(unit) + sum(min(row) for row in self.numbers(unit))

    def dearest(self, unit: Unit) -> int:
        """Returns the cost of the most expensive path."""
        return self.fixed.of(unit) + sum(max(row) for row in self.numbers(unit))

    def everything(self, unit: Unit) -> int:
        """Returns the cost of all operations of all slots: the supernet."""
        return self.fixed.of(unit) + sum(sum(row) for row in self.numbers(unit))
