"""Limits of what a run may spend: simulated seconds, bytes of the WAN or of all links, MACs.

What is spent never exceeds one. A stage has its share of what is left of each when it begins. It
begins no round that would not fit if it cost as much as the dearest of that stage so far. A round
that went over a limit of the run all the same is dropped: what it trained is not taken, and what it
cost is told apart. Describing clients and evaluating them are not charged.
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
    """What counts, limit by limit."""
    describing = totals.describe_down + totals.describe_up
    return {
        "seconds": totals.simulated,
        "wan": totals.down + totals.up - describing,
        "bytes": totals.traffic - describing,
        "macs": totals.macs + totals.server_macs,
    }


def exceeded(limits: Amounts, totals: Totals) -> Limit | None:
    """The limit that these totals exceed, if they do."""
    spent = charged(totals)
    for name in LIMITS:
        if name in limits and spent[name] > limits[name]:
            return name
    return None


@dataclass(frozen=True)
class Reserve:
    """Rounds that must find room after a stage: later stages that end when they want to.

    Such a round asks everybody, where one of this stage may ask a part of all clients.
    """

    rounds: int = 0
    clients: float = 1.0  # how many times as many clients they ask

    def of(self, limit: Limit) -> float:
        """In rounds of the stage. Clients work side by side: more of them take no longer."""
        if limit == "seconds":
            return self.rounds
        return self.rounds * self.clients


@dataclass(frozen=True)
class Allowance:
    """A stage's part of the limits, and the dearest of its rounds."""

    began: Amounts = field(default_factory=dict)  # spent when the stage began
    parts: Amounts = field(default_factory=dict)
    dearest: Amounts = field(default_factory=dict)  # of the rounds so far

    @classmethod
    def of_stage(cls, limits: Amounts, totals: Totals, share: float | None) -> Allowance:
        """`share`: of what is left; None: the stage may take all of it."""
        spent = charged(totals)
        began = {name: spent[name] for name in limits}
        parts = {}
        for name, limit in limits.items():
            left = max(0.0, limit - spent[name])
            parts[name] = left
            if share is not None:
                parts[name] = share * left
        return cls(began, parts)

    def after(self, cost: Totals) -> Allowance:
        """When one more round has cost so much."""
        costs = charged(cost)
        dearest = {}
        for name in self.parts:
            dearest[name] = max(self.dearest.get(name, 0.0), costs[name])
        return Allowance(self.began, self.parts, dearest)

    def stopped_by(self, totals: Totals, reserved: Reserve) -> Limit | None:
        """The limit that the next round would not keep, if there is one."""
        spent = charged(totals)
        for name in LIMITS:
            if name not in self.parts:
                continue
            left = self.parts[name] - (spent[name] - self.began[name])
            needed = (1 + reserved.of(name)) * self.dearest.get(name, 0.0)
            if left <= 0 or needed > left:
                return name
        return None

    def share_spent(self, totals: Totals) -> float:
        """The largest of any limit, from 0 to 1."""
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
        if raw is None:  # a checkpoint of an earlier version
            return cls()
        return cls(raw["began"], raw["parts"], raw["dearest"])


@dataclass(frozen=True)
class OverBudget:
    """A round that went over a limit, and was dropped."""

    round: int
    limit: Limit
    cost: Amounts

    def to_json(self) -> dict[str, Json]:
        return {"round": self.round, "limit": self.limit, "cost": dict(self.cost)}
