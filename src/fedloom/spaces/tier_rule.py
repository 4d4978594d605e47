"""The rule that places the limits of device tiers by the costs of a space's paths.

FedorAS prints its limits without a rule. Read from its tables, they are points between two
quantiles of the costs of uniform paths, and the cost of the most expensive path. The quantile q(s)
is by cost, not by count: it is the first cost at which the paths up to it, from the cheapest on,
have more than the share s of the sum of all costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedloom.rng import rng
from fedloom.spaces.cost_table import CostTable, LimitUnit, Unit
from fedloom.types import UnitCosts

PATHS = 100_000  # the number of uniform paths that the rule samples


@dataclass(frozen=True)
class TierRule:
    """The rule for the limits of a space's tiers.

    The limits are `points` evenly spaced costs from q(low) to q(high), and the cost of the most
    expensive path. If `low` is None, they begin at the fixed cost of every path, which is not a
    limit itself. They strictly increase: if a space is so small that two limits coincide, it has
    one tier less.
    """

    low: float | None
    high: float
    points: int
    unit: Unit = "macs"  # the default unit of the limits
    # Whether the rule ignores operations without parameters.
    parametric_only: bool = False
    # The share of the clients in each tier, if the paper's shares are not equal.
    shares: tuple[float, ...] | None = None

    @classmethod
    def usual(cls, tiers: int, unit: Unit = "macs") -> TierRule:
        """The rule for spaces without limits in a paper; the last tier has no bound."""
        return cls(low=None, high=0.95, points=tiers, unit=unit)

    def for_tiers(self, tiers: int) -> TierRule:
        """Returns this rule if it has this many tiers, and otherwise the usual rule."""
        if tiers == self.tiers:
            return self
        return TierRule.usual(tiers, self.unit)

    @property
    def tiers(self) -> int:
        """The number of limits."""
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
        """Returns the limits for a space with this cost table; milliseconds are from `latency`."""
        unit_costs = table.in_unit(unit, latency)
        path_costs = np.full(PATHS, float(unit_costs.fixed))
        draws = rng(seed, "tier rule")
        for row, costs in zip(table.rows, unit_costs.rows, strict=True):
            counted = []
            for op, cost in zip(row, costs, strict=True):
                if op.params > 0 or not self.parametric_only:
                    counted.append(cost)
            path_costs += np.array(counted, np.float64)[draws.integers(0, len(counted), PATHS)]
        return self.limits(float(unit_costs.fixed), path_costs, float(unit_costs.dearest()))

    def limits(self, fixed: float, path_costs: np.ndarray, dearest: float) -> list[float]:
        highest = cost_quantile(path_costs, self.high)
        if self.low is None and highest >= dearest:
            # In a space this small many paths cost as much as the most expensive one: the limits
            # are evenly spaced up to its cost.
            spaced = np.linspace(fixed, dearest, self.points + 1)[1:]
        elif self.low is None:
            spaced = np.linspace(fixed, highest, self.points)[1:]
        else:
            spaced = np.linspace(cost_quantile(path_costs, self.low), highest, self.points)
        limits = [limit for limit in spaced.tolist() if limit < dearest]
        return [*sorted(set(limits)), dearest]


def cost_quantile(path_costs: np.ndarray, share: float) -> float:
    """Returns q(s), the first cost at which the running share of the sum of costs exceeds s."""
    ascending = np.sort(path_costs.astype(np.float64))
    running = np.cumsum(ascending) / ascending.sum()
    first = int(np.searchsorted(running, share, side="right"))
    return float(ascending[min(first, len(ascending) - 1)])
