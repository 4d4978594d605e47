"""Limits on what a run may spend: simulated seconds, bytes over the WAN or over all links, MACs.

A run never exceeds a limit. When a stage begins, it gets its share of what remains of each limit.
It starts no round that would exceed this share if it cost as much as the stage's most expensive
round so far. A round that exceeds a limit of the run nevertheless is dropped: its result is
discarded, and its cost is reported separately. Describing and evaluating clients is not charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fedloom.records.totals import Totals
from fedloom.types import Json

Limit = Literal["seconds", "wan", "bytes", "macs"]
LIMITS: tuple[Limit, ...] = get_args(Limit)
Amounts = Mapping[Limit, float]


def charged(totals: Totals) -> dict[Limit, float]:
    """What counts towards each limit."""
    describing = totals.describe_down + totals.describe_up
    return {
        "seconds": totals.simulated,
        "wan": totals.down + totals.up - describing,
        "bytes": totals.traffic - describing,
        "macs": totals.macs + totals.server_macs,
    }


def exceeded(limits: Amounts, totals: Totals) -> Limit | None:
    """The first limit that these totals exceed, or None."""
    spent = charged(totals)
    for name in LIMITS:
        if name in limits and spent[name] > limits[name]:
            return name
    return None


@dataclass(frozen=True)
class Reserve:
    """Rounds that must still fit after a stage, for later stages that decide when they end.

    Such a round asks all clients, whereas a round of this stage may ask only some of them.
    """

    rounds: int = 0
    clients: float = 1.0  # how many times as many clients these rounds ask

    def of(self, limit: Limit) -> float:
        """The reserve, counted in rounds of the stage.

        Clients work in parallel, so asking more of them costs no more seconds.
        """
        if limit == "seconds":
            return self.rounds
        return self.rounds * self.clients


@dataclass(frozen=True)
class Allowance:
    """A stage's part of the limits, and the cost of its most expensive round."""

    began: Amounts = field(default_factory=dict)  # spent when the stage began
    parts: Amounts = field(default_factory=dict)  # what the stage may spend of each limit
    dearest: Amounts = field(default_factory=dict)  # the highest cost of its rounds so far

    @classmethod
    def of_stage(cls, limits: Amounts, totals: Totals, share: float | None) -> Allowance:
        """The allowance of a stage that begins now.

        `share` is its share of what remains of the limits. None: it may spend all of it.
        """
        spent = charged(totals)
        began = {name: spent[name] for name in limits}
        parts = {}
        for name, limit in limits.items():
            remaining = max(0.0, limit - spent[name])
            parts[name] = remaining
            if share is not None:
                parts[name] = share * remaining
        return cls(began, parts)

    def after(self, cost: Totals) -> Allowance:
        """The allowance after one more round, which has cost this much."""
        costs = charged(cost)
        dearest = {}
        for name in self.parts:
            dearest[name] = max(self.dearest.get(name, 0.0), costs[name])
        return Allowance(self.began, self.parts, dearest)

    def stopped_by(self, totals: Totals, reserved: Reserve) -> Limit | None:
        """The limit that the next round would exceed, or None."""
        spent = charged(totals)
        for name in LIMITS:
            if name not in self.parts:
                continue
            remaining = self.parts[name] - (spent[name] - self.began[name])
            needed = (1 + reserved.of(name)) * self.dearest.get(name, 0.0)
            if remaining <= 0 or needed > remaining:
                return name
        return None

    def share_spent(self, totals: Totals) -> float:
        """How much of its part the stage has spent, from 0 to 1: the largest over all limits."""
        spent = charged(totals)
        largest = 0.0
        for name, part in self.parts.items():
            if part <= 0:
                return 1.0
            largest = max(largest, (spent[name] - self.began[name]) / part)
        return min(1.0, largest)

    def to_json(self) -> Json:
        return {
            "began": dict(self.began),
            "parts": dict(self.parts),
            "dearest": dict(self.dearest),
        }

    @classmethod
    def from_json(cls, raw: Json) -> Allowance:
        if raw is None:  # a checkpoint that an earlier version wrote
            return cls()
        return cls(raw["began"], raw["parts"], raw["dearest"])


@dataclass(frozen=True)
class OverBudget:
    """A round that exceeded a limit and was dropped."""

    round: int
    limit: Limit
    cost: Amounts

    def to_json(self) -> dict[str, Json]:
        return {"round": self.round, "limit": self.limit, "cost": dict(self.cost)}
