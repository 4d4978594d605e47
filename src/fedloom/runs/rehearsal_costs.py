"""What a rehearsed run costs: its exchanges, its phases and its stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from fedloom.records.totals import Totals


@dataclass(frozen=True)
class Cost:
    """What exchanges cost. If a search decides about costs, `most_…` are upper bounds."""

    seconds: float = 0.0  # with all workers at work
    macs: float = 0.0
    down: float = 0.0  # bytes between server and clients, or aggregators
    up: float = 0.0
    lan_down: float = 0.0  # bytes between aggregators and clients
    lan_up: float = 0.0
    server_macs: float = 0.0  # of the server itself, in rounds that involve no client
    most_macs: float = 0.0
    most_bytes: float = 0.0  # down and up, including those inside clusters
    describing: float = 0.0  # bytes of descriptions, which are part of the above but not charged
    simulated: float = 0.0  # seconds by the simulated clock

    def plus(self, other: Cost) -> Cost:
        sums = {}
        for part in fields(self):
            sums[part.name] = getattr(self, part.name) + getattr(other, part.name)
        return Cost(**sums)

    @property
    def bytes(self) -> float:
        return self.down + self.up + self.lan_down + self.lan_up

    def in_unit(self, unit: str) -> float:
        """The cost of one round in the unit of a budget."""
        costs = {
            "rounds": 1.0,
            "macs": self.macs + self.server_macs,
            "bytes": self.bytes,
            "wan": self.down + self.up,
            "seconds": self.simulated,
        }
        return costs[unit]

    @property
    def totals(self) -> Totals:
        """The totals that limits are compared with."""
        return Totals(
            down=round(self.down + self.up - self.describing),
            lan_down=round(self.lan_down + self.lan_up),
            macs=round(self.macs),
            server_macs=round(self.server_macs),
            simulated=self.simulated,
        )


@dataclass(frozen=True)
class PhaseCost:
    """What the rounds of one phase of a method's schedule cost."""

    name: str
    rounds: int
    cost: Cost

    def with_round(self, cost: Cost) -> PhaseCost:
        return PhaseCost(self.name, self.rounds + 1, self.cost.plus(cost))


@dataclass(frozen=True)
class StageCost:
    """What the rounds of one stage cost."""

    name: str
    rounds: int  # charged rounds, and rehearsed rounds that involve no client
    clients_a_round: int  # at most
    cost: Cost
    generations: int | None = None  # of a search that its method foresaw; None: it was rehearsed
    phases: tuple[PhaseCost, ...] = ()  # in order, if the method has a schedule


def sum_of(costs: Iterable[Cost]) -> Cost:
    total = Cost()
    for cost in costs:
        total = total.plus(cost)
    return total
