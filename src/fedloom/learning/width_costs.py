"""One network in several widths: what each of them costs, and which width a tier of devices has.

Nothing here has weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch
from pydantic import Field, field_validator

from fedloom.cost.count import parameters
from fedloom.cost.paper import macs_both_ways
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Tiered
from fedloom.learning.averaging import AveragedOptions
from fedloom.learning.training import NetworkOptions
from fedloom.nets.heads import Head, HeadChoice
from fedloom.nets.model import Model
from fedloom.nets.nesting import Inside, is_nested, statistics_of
from fedloom.networks import FIXED, NETWORKS, default_network
from fedloom.networks.building import new_model
from fedloom.options import as_list
from fedloom.spaces.cost_table import CostTable, OpCost, Unit
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Json, Task, Tier

STEPS = 16  # a limit chooses among the sixteenths of the full width, and the usual widths
USUAL = (0.25, 0.5, 0.75, 1.0)  # the widths if neither widths nor limits are given


class WidthOptions(AveragedOptions, NetworkOptions):
    """Options of a fixed network in several widths, the narrower ones inside the wider ones."""

    measures_received = False  # every width has its own statistics
    usual_widths: ClassVar[tuple[float, ...]] = USUAL

    widths: list[float] | None = Field(
        None,
        description="width of each tier's network, as a share of the full width (.25,1; in a "
        "variant .25/1); by default the largest sixteenth that fits each tier's limit",
    )

    @field_validator("widths", mode="before")
    @classmethod
    def _are_a_list(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator("widths")
    @classmethod
    def _rise(cls, widths: list[float] | None) -> list[float] | None:
        if widths is None:
            return None
        are_shares = all(0 < width <= 1 for width in widths)
        if not widths or not are_shares or widths != sorted(widths):
            raise ValueError("widths above 0 and up to 1, from the smallest on, such as .25,1")
        return widths


@dataclass(frozen=True)
class NestedNetwork:
    """A network whose narrower widths lie in its wider ones. It has no weights."""

    network: str
    width: float  # of the widest network
    head: HeadChoice
    task: Task

    @classmethod
    def of(cls, task: Task, options: WidthOptions) -> NestedNetwork:
        name = options.network or default_network(task.kind)
        if not is_nested(NETWORKS.get(name)):
            nested = [network for network in FIXED if is_nested(NETWORKS.get(network))]
            raise FedloomError(
                "a network in several widths must contain its narrower ones in its wider ones",
                f"{name} does not say that it does",
                f"choose {', '.join(nested)}, or mark yours with fedloom.nets.nesting.nests",
            )
        return cls(name, options.width, options.head, task)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedNetwork) and self._key == other._key

    @property
    def _key(self) -> tuple[object, ...]:
        task = self.task
        return (self.network, self.width, self.head, task.kind, task.shape, len(task.labels))

    def built(self, width: float) -> Model:
        task = self.task
        return new_model(task, self.network, self.width * width, task.mean, task.std, self.head)

    def sized(self, width: float) -> Model:
        """Returns the network of a width, without memory for its weights."""
        with torch.device("meta"):
            return self.built(width)


@dataclass(frozen=True)
class WidthCost:
    """What one width of a network costs, and what that network is."""

    cost: OpCost
    architecture: Json
    head: Head | None


@lru_cache(maxsize=128)
def cost_of(nested: NestedNetwork, width: float) -> WidthCost:
    net = nested.built(width)
    counts = macs_both_ways(net, nested.task.shape)
    cost = OpCost(parameters(net), counts.macs, counts.macs_paper)
    return WidthCost(cost, net.architecture, net.head)


@lru_cache(maxsize=128)
def inside_of(nested: NestedNetwork, width: float, widest: float) -> Inside:
    return Inside.of(nested.sized(width), nested.sized(widest))


@dataclass(frozen=True)
class WidthRule(TierRule):
    """The rule that a tier's limit is what its width costs, of the usual or the given widths."""

    nested: NestedNetwork | None = None
    widths: tuple[float, ...] = ()

    @classmethod
    def of(cls, nested: NestedNetwork, widths: Sequence[float]) -> WidthRule:
        return cls(low=None, high=1.0, points=len(widths), nested=nested, widths=tuple(widths))

    def for_tiers(self, tiers: int) -> TierRule:
        """Returns a rule of evenly spaced widths, if there are more or fewer tiers than widths."""
        if tiers == self.tiers:
            return self
        assert self.nested is not None
        return WidthRule.of(self.nested, [number / tiers for number in range(1, tiers + 1)])

    def limits_of(
        self,
        table: CostTable,
        unit: str,
        seed: int,
        latency: object = None,
    ) -> list[float]:
        """Returns each tier's limit in this unit.

        Limits in milliseconds were refused before: no profile covers a fixed network.
        """
        assert self.nested is not None
        costs = [cost_of(self.nested, width).cost for width in self.widths]
        return [float(cost.of(cast(Unit, unit))) for cost in costs]


def possible_widths(options: WidthOptions) -> list[float]:
    """Returns the widths that a limit chooses from: the sixteenths and the usual widths."""
    sixteenths = [step / STEPS for step in range(1, STEPS + 1)]
    return sorted({*sixteenths, *options.usual_widths})


def tiered(task: Task, options: WidthOptions) -> Tiered:
    """Returns what tiers limit: a space of one layer, whose operations are the widths."""
    nested = NestedNetwork.of(task, options)
    possible = possible_widths(options)
    row = tuple(cost_of(nested, width).cost for width in possible)
    rule = WidthRule.of(nested, options.widths or options.usual_widths)
    names = tuple(f"{width:g}" for width in possible)
    return Tiered(CostTable(OpCost(), (row,)), rule, (names,), choice="width")


def widths_of_tiers(
    nested: NestedNetwork, options: WidthOptions, tiers: Sequence[Tier]
) -> list[float]:
    """Returns the width of every tier's network: the given one, or the largest within its limit."""
    if options.widths is None:
        possible = possible_widths(options)
        return [largest_width(nested, possible, tier) for tier in tiers]
    if len(options.widths) != len(tiers):
        raise FedloomError(
            f"--widths must have one number for each of the {len(tiers)} tiers",
            f"it has {len(options.widths)}",
            "give as many, or leave --widths or --tiers out",
        )
    for width, tier in zip(options.widths, tiers, strict=True):
        check_fits(nested, width, tier)
    return list(options.widths)


def largest_width(nested: NestedNetwork, possible: Sequence[float], tier: Tier) -> float:
    for width in sorted(possible, reverse=True):
        if excess(nested, width, tier.limit) is None:
            return width
    raise AssertionError("limits are made such that the smallest width fits")


def check_fits(nested: NestedNetwork, width: float, tier: Tier) -> None:
    unit = excess(nested, width, tier.limit)
    if unit is None:
        return
    amount = cost_of(nested, width).cost.of(unit)
    raise FedloomError(
        f"width {width:g} must fit the limit of tier {tier.number}",
        f"it has {amount:,} {unit}, and the limit is {tier.limit[unit]:,.10g}",
        "lower the width, raise the limit, or leave one of them out",
    )


def excess(nested: NestedNetwork, width: float, limit: Mapping[str, float]) -> Unit | None:
    """Returns the first unit in which a width exceeds the limit, or None if it fits."""
    cost = cost_of(nested, width).cost
    units: tuple[Unit, ...] = ("params", "macs", "macs_paper")
    for unit in units:
        if unit in limit and cost.of(unit) > limit[unit]:
            return unit
    return None


def fresh_statistics(nested: NestedNetwork, width: float) -> dict[str, torch.Tensor]:
    """Returns the BN statistics of a new network."""
    fresh = {}
    for name, tensor in statistics_of(nested.sized(width)).items():
        fresh[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
        if name.endswith("running_var"):
            fresh[name] = torch.ones(tensor.shape, dtype=tensor.dtype)
    return fresh
