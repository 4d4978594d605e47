"""Paths through a chain of layers under a budget: FedorAS, Dudziak, Laskaridis, Fernandez-Marques,
2022, Eq. 1 and Eq. 3.

A path takes one operation in every layer. What it costs is a fixed part plus the costs of its
operations, in one unit (MACs) or in several at once (MACs, parameters, milliseconds), all of which
must hold. An operation that a device does not support costs infinitely much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedloom.errors import FedloomError

if TYPE_CHECKING:
    from collections.abc import Collection

    from fedloom.spaces.cost_table import CostTable, OpCost, Unit
    from fedloom.types import UnitCosts

Path = tuple[int, ...]  # the operation of every layer
SubSpace = tuple[tuple[int, ...], ...]  # the operations of every layer that a client is sent
Amounts = tuple[float, ...]  # one a unit
Filling = Literal["stop", "skip", "drop"]

# A greedy draw can only run into a dead end where several units bind several layers without a free
# operation. So often it then begins again.
TRIES = 100


@dataclass(frozen=True)
class PathCosts:
    """What the operations of every layer cost, and the part that every path has."""

    fixed: Amounts
    layers: tuple[tuple[Amounts, ...], ...]  # by layer, by operation

    @classmethod
    def of_one_unit(cls, fixed: float, layers: Sequence[Sequence[float]]) -> PathCosts:
        rows = []
        for layer in layers:
            rows.append(tuple((cost,) for cost in layer))
        return cls((fixed,), tuple(rows))

    @classmethod
    def of_table(cls, table: CostTable, units: Sequence[Unit]) -> PathCosts:
        """A space's own table, in these units."""
        rows = []
        for row in table.rows:
            rows.append(tuple(amounts_of(cost, units) for cost in row))
        return cls(amounts_of(table.fixed, units), tuple(rows))

    @classmethod
    def of_units(cls, units: Sequence[UnitCosts]) -> PathCosts:
        """Several units at once, each by its own costs."""
        layers = []
        for layer in zip(*(unit.rows for unit in units), strict=True):
            layers.append(tuple(zip(*layer, strict=True)))
        return cls(tuple(unit.fixed for unit in units), tuple(layers))

    def within(self, sub_space: SubSpace) -> PathCosts:
        """The same where only these operations exist: all others cost infinitely much."""
        absent = (inf,) * len(self.fixed)
        rows = []
        for costs, present in zip(self.layers, sub_space, strict=True):
            row = []
            for op, cost in enumerate(costs):
                row.append(cost if op in present else absent)
            rows.append(tuple(row))
        return PathCosts(self.fixed, tuple(rows))

    def without(self, unsupported: Collection[tuple[int, int]]) -> PathCosts:
        """The same where these (layer, operation) cannot be used."""
        sub_space = []
        for layer, costs in enumerate(self.layers):
            supported = [op for op in range(len(costs)) if (layer, op) not in unsupported]
            sub_space.append(tuple(supported))
        return self.within(tuple(sub_space))

    def of(self, path: Path) -> Amounts:
        totals = list(self.fixed)
        for costs, op in zip(self.layers, path, strict=True):
            for unit, cost in enumerate(costs[op]):
                totals[unit] += cost
        return tuple(totals)

    def fits(self, path: Path, limits: Amounts) -> bool:
        return within_limits(self.of(path), limits)

    def cheapest(self) -> Amounts:
        """The least that a path can cost, unit by unit."""
        totals = list(self.fixed)
        for costs in self.layers:
            for unit, least in enumerate(least_of(costs)):
                totals[unit] += least
        return tuple(totals)


def amounts_of(cost: OpCost, units: Sequence[Unit]) -> Amounts:
    return tuple(cost.of(unit) for unit in units)


def within_limits(amounts: Amounts, limits: Amounts) -> bool:
    return all(amount <= limit for amount, limit in zip(amounts, limits, strict=True))


def least_of(costs: Sequence[Amounts]) -> Amounts:
    """The smallest amount of each unit, whichever operation has it."""
    return tuple(min(column) for column in zip(*costs, strict=True))


def has_free_operation(costs: Sequence[Amounts]) -> bool:
    return any(not any(cost) for cost in costs)


class PathSampler:
    """Eq. 3: draws paths that fit, in one pass, without drawing again.

    Layers without a free operation come first, the rest in a random order; in each the operation is
    uniform among those that still fit. This is not uniform over paths: a layer that comes late has
    less left to spend, so that small budgets lead to shallow paths.
    """

    def __init__(self, costs: PathCosts) -> None:
        self.costs = costs
        self.forced = []
        self.free = []
        for layer, ops in enumerate(costs.layers):
            if has_free_operation(ops):
                self.free.append(layer)
            else:
                self.forced.append(layer)
        self.least = [least_of(ops) for ops in costs.layers]
        # By layer: the operations that it can use, from the cheapest on in the first unit, and what
        # they cost in it.
        self.ascending: list[list[int]] = []
        self.ascending_costs: list[list[float]] = []
        for ops in costs.layers:
            usable = [(cost[0], op) for op, cost in enumerate(ops) if inf not in cost]
            usable.sort()
            self.ascending.append([op for _, op in usable])
            self.ascending_costs.append([cost for cost, _ in usable])

    def draw(self, limits: Amounts, rng: np.random.Generator) -> Path:
        """One path within all limits; if none can be drawn, an error that names the cheapest."""
        for _ in range(TRIES):
            path = self._try(limits, rng)
            if path is not None:
                return path
        cheapest = amounts_in_words(self.costs.cheapest())
        raise FedloomError(
            "a limit must leave at least one path",
            f"the limit is {amounts_in_words(limits)}, the cheapest path costs {cheapest}",
            "raise the limit, or allow cheaper operations",
        )

    def _try(self, limits: Amounts, rng: np.random.Generator) -> Path | None:
        left = []  # of every unit, once each layer has its cheapest operation
        for limit, least in zip(limits, self.costs.cheapest(), strict=True):
            if least > limit or least == inf:
                return None
            left.append(limit - least)
        path = [0] * len(self.costs.layers)
        draws = rng.random(len(path)).tolist()
        for layer, draw in zip(self._order(rng), draws, strict=True):
            for unit, least in enumerate(self.least[layer]):
                left[unit] += least
            fitting = self._fitting(layer, left)
            if not fitting:
                return None
            op = fitting[int(draw * len(fitting))]
            for unit, cost in enumerate(self.costs.layers[layer][op]):
                left[unit] -= cost
            path[layer] = op
        return tuple(path)

    def _order(self, rng: np.random.Generator) -> Iterator[int]:
        for layers in (self.forced, self.free):
            for index in rng.permutation(len(layers)).tolist():
                yield layers[index]

    def _fitting(self, layer: int, left: Sequence[float]) -> list[int]:
        """The operations of a layer that all units have enough left for."""
        affordable = bisect_right(self.ascending_costs[layer], left[0])
        candidates = self.ascending[layer][:affordable]
        if len(left) == 1:
            return candidates
        costs = self.costs.layers[layer]
        return [op for op in candidates if within_limits(costs[op], tuple(left))]


def amounts_in_words(amounts: Amounts) -> str:
    return ", ".join(f"{amount:,.10g}" for amount in amounts)


def share_in_words(amount: float, whole: float) -> str:
    """In hundredths, rounded up: so much is enough."""
    return f"{ceil(100 * amount / whole) / 100:g}"


# Eq. 1: what a client is sent


@dataclass(frozen=True)
class SubSpaceSampler:
    """Draws the operations that a client is sent, so that their parameters stay within a budget.

    Operations without parameters always go along. Each layer without one first gets one, uniform
    among those that leave a path within the client's limits. Then all others follow in a random
    order: `stop` ends at the first that does not fit, `skip` leaves it out and goes on with smaller
    ones, `drop` begins with everything and removes operations at random until the rest fits.
    """

    params: PathCosts  # in one unit: what is sent
    costs: PathCosts  # what a path may spend on the client

    def least(self) -> float:
        """The fixed part and the smallest operation of every layer without a free one."""
        total = self.params.fixed[0]
        for layer in range(len(self.params.layers)):
            if not self._free(layer):
                total += min(self._size(layer, op) for op in self._usable(layer))
        return total

    def least_for_all(self) -> float:
        """From this budget on there is no operation that a client can never be sent."""
        most_beside = 0.0
        for layer in range(len(self.params.layers)):
            sizes = [self._size(layer, op) for op in self._usable(layer)]
            smallest = min(sizes)  # 0, or a part of `least`
            most_beside = max(most_beside, max(sizes) - smallest)
        return self.least() + most_beside

    def check(self, budget: float) -> None:
        """Refuses a budget that cannot hold any network."""
        least = self.least()
        if budget < least:
            all_operations = []
            for ops in self.params.layers:
                all_operations.append(range(len(ops)))
            supernet = self._total(all_operations)
            raise FedloomError(
                "the communication budget must hold the fixed part and an operation for every "
                "layer without a free one",
                f"it is {budget:,.10g} of the supernet's {supernet:,.10g} parameters, and these "
                f"have {least:,.10g}",
                f"say --comm {share_in_words(least, supernet)} or more; every operation can be "
                f"sent from --comm {share_in_words(self.least_for_all(), supernet)} on",
            )

    def draw(
        self,
        budget: float,
        limits: Amounts,
        rng: np.random.Generator,
        filling: Filling = "stop",
    ) -> SubSpace:
        chosen = self._forced(budget, limits, rng)
        size = self._total(chosen)
        others = []
        for layer in range(len(self.params.layers)):
            for op in self._usable(layer):
                if op not in chosen[layer]:
                    others.append((layer, op))
        order = [others[index] for index in rng.permutation(len(others)).tolist()]
        if filling == "drop":
            kept = self._after_dropping(order, budget - size)
        else:
            kept = self._until_full(order, budget - size, goes_on=filling == "skip")
        for layer, op in kept:
            chosen[layer].append(op)
        return tuple(tuple(sorted(ops)) for ops in chosen)

    def _forced(
        self,
        budget: float,
        limits: Amounts,
        rng: np.random.Generator,
    ) -> list[list[int]]:
        """Every free operation, and one for each layer that has none."""
        self.check(budget)
        chosen = [self._free(layer) for layer in range(len(self.params.layers))]
        left = budget - self.least()
        for layer, free in enumerate(chosen):
            if free:
                continue
            usable = self._usable(layer)
            smallest = min(self._size(layer, op) for op in usable)
            candidates = []
            for op in usable:
                affordable = self._size(layer, op) - smallest <= left
                if affordable and self._leaves_a_path(chosen, layer, op, limits):
                    candidates.append(op)
            if not candidates:
                raise FedloomError(
                    "a sub-space must leave the client a path within its limit",
                    f"no operation of layer {layer + 1} does within {amounts_in_words(limits)}",
                    "raise the limit or --comm",
                )
            op = candidates[int(rng.integers(len(candidates)))]
            left -= self._size(layer, op) - smallest
            chosen[layer] = [op]
        return chosen

    def _leaves_a_path(
        self,
        chosen: list[list[int]],
        layer: int,
        op: int,
        limits: Amounts,
    ) -> bool:
        """Whether the client can still build a network within its limits, if it is sent this."""
        totals = list(self.costs.fixed)
        for other, costs in enumerate(self.costs.layers):
            if other == layer:
                least = costs[op]
            elif chosen[other]:
                least = least_of([costs[sent] for sent in chosen[other]])
            else:
                least = least_of(costs)
            for unit, amount in enumerate(least):
                totals[unit] += amount
        return within_limits(tuple(totals), limits)

    def _until_full(
        self,
        order: Sequence[tuple[int, int]],
        left: float,
        *,
        goes_on: bool,
    ) -> list[tuple[int, int]]:
        kept = []
        for layer, op in order:
            size = self._size(layer, op)
            if size <= left:
                kept.append((layer, op))
                left -= size
            elif not goes_on:
                break
        return kept

    def _after_dropping(
        self,
        order: Sequence[tuple[int, int]],
        left: float,
    ) -> list[tuple[int, int]]:
        """What remains when operations are taken away in this order until the rest fits."""
        kept = list(order)
        size = sum(self._size(layer, op) for layer, op in kept)
        while size > left:
            layer, op = kept.pop(0)
            size -= self._size(layer, op)
        return kept

    def _total(self, chosen: Sequence[Sequence[int]]) -> float:
        total = self.params.fixed[0]
        for layer, ops in enumerate(chosen):
            total += sum(self._size(layer, op) for op in ops)
        return total

    def _size(self, layer: int, op: int) -> float:
        return self.params.layers[layer][op][0]

    def _usable(self, layer: int) -> list[int]:
        """The operations of a layer that the client supports."""
        costs = self.costs.layers[layer]
        return [op for op, cost in enumerate(costs) if inf not in cost]

    def _free(self, layer: int) -> list[int]:
        """The usable operations of a layer that have no parameters."""
        return [op for op in self._usable(layer) if self._size(layer, op) == 0]
