"""Where the limits of device tiers lie, from what the paths of a space cost.

FedorAS prints its limits without a rule. Read from its tables, they are points between two
quantiles of what uniform paths cost, and the dearest path's cost. The quantile q(s) is by cost, not
by count: the first cost at which the paths up to it, from the cheapest on, have more than the share
s of the sum of all costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedloom.rng import rng
from fedloom.spaces.cost_table import CostTable, LimitUnit, Unit
from fedloom.types import UnitCosts

PATHS = 100_000  # so many uniform paths the rule looks at


@dataclass(frozen=True)
class TierRule:
    """Where the limits of a space's tiers lie, from what its paths cost.

    They rise: where a space is so small that two of them are one, there is a tier less. They are
    `points` evenly spaced costs from q(low) to q(high), and the dearest path's. With `low`
    None they begin at the fixed part of every path, which is no limit itself.
    """

    low: float | None
    high: float
    points: int
    unit: Unit = "macs"  # that the limits are in, if nobody says
    # Whether the rule leaves out operations without parameters.
    parametric_only: bool = False
    # Of the clients, by tier, where the paper's are not equal.
    shares: tuple[float, ...] | None = None

    @classmethod
    def usual(cls, tiers: int, unit: Unit = "macs") -> TierRule:
        """For spaces that no paper has limits for: so many tiers, the last without a bound."""
        return cls(low=None, high=0.95, points=tiers, unit=unit)

    def for_tiers(self, tiers: int) -> TierRule:
        """This rule where it is for so many; the usual one for any other number."""
        if tiers == self.tiers:
            return self
        return TierRule.usual(tiers, self.unit)

    @property
    def tiers(self) -> int:
        """How many limits it gives."""
        if self.low is None:
            return self.points
        return self.points + 1

    def limits_of(
        self,
        table: CostTable,
        unit: LimitUnit,
        seed: int,
        latency: UnitCosts | None = None,
    ) -> list[float]:
        """Of a space whose operations cost what this table says; in milliseconds, as `latency`."""
        in_unit = table.in_unit(unit, latency)
        costs = np.full(PATHS, float(in_unit.fixed))
        draws = rng(seed, "tier rule")
        for row, amounts in zip(table.rows, in_unit.rows, strict=True):
            counted = []
            for op, amount in zip(row, amounts, strict=True):
                if op.params > 0 or not self.parametric_only:
                    counted.append(amount)
            costs += np.array(counted, np.float64)[draws.integers(0, len(counted), PATHS)]
        return self.limits(float(in_unit.fixed), costs, float(in_unit.dearest()))

    def limits(self, fixed: float, path_costs: np.ndarray, dearest: float) -> list[float]:
        highest = cost_quantile(path_costs, self.high)
        if self.low is None and highest >= dearest:
            # A space so small that many paths cost as much as the dearest: evenly up to it.
            spaced = np.linspace(fixed, dearest, self.points + 1)[1:]
        elif self.low is None:
            spaced = np.linspace(fixed, highest, self.points)[1:]
        else:
            spaced = np.linspace(cost_quantile(path_costs, self.low), highest, self.points)
        limits = [limit for limit in spaced.tolist() if limit < dearest]
        return [*sorted(set(limits)), dearest]


def cost_quantile(path_costs: np.ndarray, share: float) -> float:
    """q(s): the first cost at which the running share of the sum of costs exceeds s."""
    ascending = np.sort(path_costs.astype(np.float64))
    running = np.cumsum(ascending) / ascending.sum()
    first = int(np.searchsorted(running, share, side="right"))
    return float(ascending[min(first, len(ascending) - 1)])
