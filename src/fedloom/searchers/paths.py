"""Paths through a chain of layers under a budget: FedorAS, Dudziak, Laskaridis, Fernandez-Marques,
2022, Eq. 1 and Eq. 3.

A path takes one operation in every layer. Its cost is a fixed part plus the costs of its
operations, in one unit (MACs) or in several at once (MACs, parameters, milliseconds); the limits of
all units must hold. An operation that a device does not support has infinite cost.
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
LayerOp = tuple[int, int]  # a layer and one of its operations
Amounts = tuple[float, ...]  # one per unit
Filling = Literal["stop", "skip", "drop"]

# A greedy draw can reach a dead end only if several units are tight and several layers have no free
# operation. It is then restarted, at most this many times.
TRIES = 100


@dataclass(frozen=True)
class PathCosts:
    """The costs of the operations of every layer, and the fixed cost of every path."""

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
        """Returns the costs of a space's table, in these units."""
        rows = []
        for row in table.rows:
            rows.append(tuple(amounts_of(cost, units) for cost in row))
        return cls(amounts_of(table.fixed, units), tuple(rows))

    @classmethod
    def of_units(cls, units: Sequence[UnitCosts]) -> PathCosts:
        """Combines the costs of several units."""
        rows_by_unit = [unit.rows for unit in units]
        layers = []
        for layer_rows in zip(*rows_by_unit, strict=True):  # a layer's row in every unit
            layers.append(tuple(zip(*layer_rows, strict=True)))
        return cls(tuple(unit.fixed for unit in units), tuple(layers))

    def within(self, sub_space: SubSpace) -> PathCosts:
        """Returns the costs if only these operations exist: all others cost infinitely much."""
        infinite = (inf,) * len(self.fixed)
        rows = []
        for costs, existing in zip(self.layers, sub_space, strict=True):
            row = []
            for op, cost in enumerate(costs):
                if op in existing:
                    row.append(cost)
                else:
                    row.append(infinite)
            rows.append(tuple(row))
        return PathCosts(self.fixed, tuple(rows))

    def without(self, unsupported: Collection[LayerOp]) -> PathCosts:
        """Returns the costs if these operations cannot be used."""
        sub_space = []
        for layer, costs in enumerate(self.layers):
            supported = []
            for op in range(len(costs)):
                if (layer, op) not in unsupported:
                    supported.append(op)
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
        """Returns the lowest possible cost of a path, separately for each unit."""
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
    """Returns the smallest amount of each unit, whichever operation has it."""
    return tuple(min(column) for column in zip(*costs, strict=True))


def has_free_operation(costs: Sequence[Amounts]) -> bool:
    """Whether an operation costs nothing in any unit."""
    return any(not any(cost) for cost in costs)


class PathSampler:
    """Eq. 3: draws paths that fit, in one pass, without rejections.

    Layers without a free operation come first, then all others, each group in random order. The
    operation of a layer is drawn uniformly from those that still fit. This is not uniform over
    paths: later layers have less budget left, so small budgets lead to shallow paths.
    """

    def __init__(self, costs: PathCosts) -> None:
        self.costs = costs
        self.forced = []  # layers without a free operation
        self.free = []  # layers with one
        for layer, ops in enumerate(costs.layers):
            if has_free_operation(ops):
                self.free.append(layer)
            else:
                self.forced.append(layer)
        self.least = [least_of(ops) for ops in costs.layers]
        # For each layer, its usable operations by increasing cost in the first unit, and these
        # costs.
        self.ascending: list[list[int]] = []
        self.ascending_costs: list[list[float]] = []
        for ops in costs.layers:
            usable = []
            for op, cost in enumerate(ops):
                if inf not in cost:
                    usable.append((cost[0], op))
            usable.sort()
            self.ascending.append([op for _, op in usable])
            self.ascending_costs.append([cost for cost, _ in usable])

    def draw(self, limits: Amounts, rng: np.random.Generator) -> Path:
        """Draws one path within all limits; the error, if there is none, names the cheapest."""
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
        # The budget of every unit that remains if each open layer takes its cheapest operation.
        spare = []
        for limit, least in zip(limits, self.costs.cheapest(), strict=True):
            if least > limit or least == inf:
                return None
            spare.append(limit - least)
        path = [0] * len(self.costs.layers)
        draws = rng.random(len(path)).tolist()
        for layer, draw in zip(self._order(rng), draws, strict=True):
            for unit, least in enumerate(self.least[layer]):
                spare[unit] += least
            fitting = self._fitting(layer, spare)
            if not fitting:
                return None
            op = fitting[int(draw * len(fitting))]
            for unit, cost in enumerate(self.costs.layers[layer][op]):
                spare[unit] -= cost
            path[layer] = op
        return tuple(path)

    def _order(self, rng: np.random.Generator) -> Iterator[int]:
        for layers in (self.forced, self.free):
            for index in rng.permutation(len(layers)).tolist():
                yield layers[index]

    def _fitting(self, layer: int, budgets: Sequence[float]) -> list[int]:
        """Returns the operations of a layer that fit the budgets of all units."""
        affordable = bisect_right(self.ascending_costs[layer], budgets[0])
        candidates = self.ascending[layer][:affordable]
        if len(budgets) == 1:
            return candidates
        costs = self.costs.layers[layer]
        return [op for op in candidates if within_limits(costs[op], tuple(budgets))]


def amounts_in_words(amounts: Amounts) -> str:
    return ", ".join(f"{amount:,.10g}" for amount in amounts)


def share_in_words(amount: float, whole: float) -> str:
    """Returns a share in hundredths, rounded up so that it is enough."""
    return f"{ceil(100 * amount / whole) / 100:g}"


# Eq. 1: the sub-space that a client is sent


@dataclass(frozen=True)
class SubSpaceSampler:
    """Draws the operations that a client is sent, so that their parameters stay within a budget.

    Operations without parameters are always sent. Each layer without such an operation first gets
    one, uniformly from those that leave a path within the client's limits. Then all others follow
    in random order: `stop` ends at the first that does not fit, `skip` leaves it out and continues
    with smaller ones, `drop` begins with all operations and removes random ones until they fit.
    """

    params: PathCosts  # the parameters of the operations, in one unit
    costs: PathCosts  # the costs of the operations on the client

    def least(self) -> float:
        """Returns the parameters of the smallest sub-space.

        It has the fixed part, and the smallest operation of every layer without a free one.
        """
        total = self.params.fixed[0]
        for layer in range(len(self.params.layers)):
            if not self._free(layer):
                total += self._smallest(layer)
        return total

    def least_for_all(self) -> float:
        """Returns the smallest budget with which every operation can be sent to some client."""
        most_additional = 0.0
        for layer in range(len(self.params.layers)):
            sizes = [self._size(layer, op) for op in self._usable(layer)]
            smallest = min(sizes)  # 0, or already a part of `least`
            most_additional = max(most_additional, max(sizes) - smallest)
        return self.least() + most_additional

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
                f"use --comm {share_in_words(least, supernet)} or more; every operation can be "
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
        optional = []
        for layer in range(len(self.params.layers)):
            for op in self._usable(layer):
                if op not in chosen[layer]:
                    optional.append((layer, op))
        positions = rng.permutation(len(optional)).tolist()
        order = [optional[position] for position in positions]
        if filling == "drop":
            additional = self._after_dropping(order, budget - size)
        else:
            additional = self._until_full(order, budget - size, goes_on=filling == "skip")
        for layer, op in additional:
            chosen[layer].append(op)
        return tuple(tuple(sorted(ops)) for ops in chosen)

    def _forced(
        self,
        budget: float,
        limits: Amounts,
        rng: np.random.Generator,
    ) -> list[list[int]]:
        """Draws every free operation, and one for each layer that has none."""
        self.check(budget)
        layers = range(len(self.params.layers))
        chosen = [self._free(layer) for layer in layers]
        spare = budget - self.least()
        for layer, free in enumerate(chosen):
            if free:
                continue
            smallest = self._smallest(layer)
            candidates = []
            for op in self._usable(layer):
                affordable = self._size(layer, op) - smallest <= spare
                if affordable and self._leaves_a_path(chosen, layer, op, limits):
                    candidates.append(op)
            if not candidates:
                raise FedloomError(
                    "a sub-space must leave the client a path within its limit",
                    f"no operation of layer {layer + 1} does within {amounts_in_words(limits)}",
                    "raise the limit or --comm",
                )
            op = candidates[int(rng.integers(len(candidates)))]
            spare -= self._size(layer, op) - smallest
            chosen[layer] = [op]
        return chosen

    def _leaves_a_path(
        self,
        chosen: list[list[int]],
        layer: int,
        op: int,
        limits: Amounts,
    ) -> bool:
        """Whether the client can still build a network within its limits with this operation."""
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
        order: Sequence[LayerOp],
        budget: float,
        *,
        goes_on: bool,
    ) -> list[LayerOp]:
        """Takes operations in this order while they fit; `goes_on` skips those that do not."""
        fitting = []
        for layer, op in order:
            size = self._size(layer, op)
            if size <= budget:
                fitting.append((layer, op))
                budget -= size
            elif not goes_on:
                break
        return fitting

    def _after_dropping(self, order: Sequence[LayerOp], budget: float) -> list[LayerOp]:
        """Removes operations in this order until the others fit."""
        remaining = list(order)
        size = sum(self._size(layer, op) for layer, op in remaining)
        while size > budget:
            layer, op = remaining.pop(0)
            size -= self._size(layer, op)
        return remaining

    def _total(self, chosen: Sequence[Sequence[int]]) -> float:
        total = self.params.fixed[0]
        for layer, ops in enumerate(chosen):
            total += sum(self._size(layer, op) for op in ops)
        return total

    def _size(self, layer: int, op: int) -> float:
        return self.params.layers[layer][op][0]

    def _smallest(self, layer: int) -> float:
        """Returns the parameters of the smallest usable operation of a layer."""
        return min(self._size(layer, op) for op in self._usable(layer))

    def _usable(self, layer: int) -> list[int]:
        """Returns the operations of a layer that the client supports."""
        supported = []
        for op, cost in enumerate(self.costs.layers[layer]):
            if inf not in cost:
                supported.append(op)
        return supported

    def _free(self, layer: int) -> list[int]:
        """Returns the usable operations of a layer that have no parameters."""
        free = []
        for op in self._usable(layer):
            if self._size(layer, op) == 0:
                free.append(op)
        return free
