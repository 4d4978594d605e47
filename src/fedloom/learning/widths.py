"""What methods share that train one network in several widths, for tiers of devices.

The server has the weights of the widest network. A client is sent the part that its tier's devices
can hold, the first channels of every layer (nets/nesting.py). Its order says where that part lies,
and every weight becomes the mean over the clients that hold it. BN statistics depend on the width,
so each width has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch
from pydantic import Field, field_validator
from torch import nn

from fedloom.cost import limits
from fedloom.cost.count import parameters
from fedloom.cost.paper import macs_both_ways
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Declined, Method, Tiered, shared
from fedloom.learning.averaging import AveragedOptions, server_step
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import NetworkOptions, weights_of
from fedloom.nets.heads import Head, HeadChoice
from fedloom.nets.model import Model
from fedloom.nets.nesting import Inside, is_nested, is_statistic, statistics_of
from fedloom.networks import FIXED, NETWORKS, default_network
from fedloom.networks.building import build_model, new_model
from fedloom.options import as_list
from fedloom.records.result import TierResult
from fedloom.records.sections import Sections, tuned_model
from fedloom.spaces.cost_table import CostTable, OpCost, Unit
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors, Tier

STEPS = 16  # a limit chooses among the sixteenths of the full width, and the usual widths
USUAL = (0.25, 0.5, 0.75, 1.0)  # the widths if neither widths nor limits are given
STATISTICS = "statistics/"  # prefix in the state: BN statistics, for each width


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


# What a width costs, and which width a tier has


@dataclass(frozen=True)
class WidthCost:
    """What one width of a network costs, and what that network is."""

    cost: OpCost
    architecture: Json
    head: Head | None


@dataclass(frozen=True)
class Plan:
    """What decides a network's cost, except the tier's width. It has no weights."""

    network: str
    width: float  # of the widest network
    head: HeadChoice
    task: Task

    @classmethod
    def of(cls, task: Task, options: WidthOptions) -> Plan:
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
        return isinstance(other, Plan) and self._key == other._key

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


@lru_cache(maxsize=128)
def cost_of(plan: Plan, width: float) -> WidthCost:
    net = plan.built(width)
    counts = macs_both_ways(net, plan.task.shape)
    cost = OpCost(parameters(net), counts.macs, counts.macs_paper)
    return WidthCost(cost, net.architecture, net.head)


@lru_cache(maxsize=128)
def inside_of(plan: Plan, width: float, widest: float) -> Inside:
    return Inside.of(plan.sized(width), plan.sized(widest))


@dataclass(frozen=True)
class WidthRule(TierRule):
    """The rule that a tier's limit is what its width costs, of the usual or the given widths."""

    plan: Plan | None = None
    widths: tuple[float, ...] = ()

    @classmethod
    def of(cls, plan: Plan, widths: Sequence[float]) -> WidthRule:
        return cls(low=None, high=1.0, points=len(widths), plan=plan, widths=tuple(widths))

    def for_tiers(self, tiers: int) -> TierRule:
        """Returns a rule of evenly spaced widths, if there are more or fewer tiers than widths."""
        if tiers == self.tiers:
            return self
        assert self.plan is not None
        return WidthRule.of(self.plan, [number / tiers for number in range(1, tiers + 1)])

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
        assert self.plan is not None
        costs = [cost_of(self.plan, width).cost for width in self.widths]
        return [float(cost.of(cast(Unit, unit))) for cost in costs]


def possible_widths(options: WidthOptions) -> list[float]:
    """Returns the widths that a limit chooses from: the sixteenths and the usual widths."""
    sixteenths = [step / STEPS for step in range(1, STEPS + 1)]
    return sorted({*sixteenths, *options.usual_widths})


def tiered(task: Task, options: WidthOptions) -> Tiered:
    """Returns what tiers limit: a space of one layer, whose operations are the widths."""
    plan = Plan.of(task, options)
    possible = possible_widths(options)
    row = tuple(cost_of(plan, width).cost for width in possible)
    rule = WidthRule.of(plan, options.widths or options.usual_widths)
    names = tuple(f"{width:g}" for width in possible)
    return Tiered(CostTable(OpCost(), (row,)), rule, (names,), choice="width")


def widths_of_tiers(plan: Plan, options: WidthOptions, tiers: Sequence[Tier]) -> list[float]:
    """Returns the width of every tier's network: the given one, or the largest within its limit."""
    if options.widths is None:
        possible = possible_widths(options)
        return [largest_width(plan, possible, tier) for tier in tiers]
    if len(options.widths) != len(tiers):
        raise FedloomError(
            f"--widths must have one number for each of the {len(tiers)} tiers",
            f"it has {len(options.widths)}",
            "give as many, or leave --widths or --tiers out",
        )
    for width, tier in zip(options.widths, tiers, strict=True):
        check_fits(plan, width, tier)
    return list(options.widths)


def largest_width(plan: Plan, possible: Sequence[float], tier: Tier) -> float:
    for width in sorted(possible, reverse=True):
        if excess(plan, width, tier.limit) is None:
            return width
    raise AssertionError("limits are made such that the smallest width fits")


def check_fits(plan: Plan, width: float, tier: Tier) -> None:
    unit = excess(plan, width, tier.limit)
    if unit is None:
        return
    amount = cost_of(plan, width).cost.of(unit)
    raise FedloomError(
        f"width {width:g} must fit the limit of tier {tier.number}",
        f"it has {amount:,} {unit}, and the limit is {tier.limit[unit]:,.10g}",
        "lower the width, raise the limit, or leave one of them out",
    )


def excess(plan: Plan, width: float, limit: Mapping[str, float]) -> Unit | None:
    """Returns the first unit in which a width exceeds the limit, or None if it fits."""
    cost = cost_of(plan, width).cost
    units: tuple[Unit, ...] = ("params", "macs", "macs_paper")
    for unit in units:
        if unit in limit and cost.of(unit) > limit[unit]:
            return unit
    return None


# The base class of the methods


@dataclass(frozen=True)
class Nested(Method):
    """Federated averaging of one network in several widths.

    Each weight is averaged over the clients that hold it. A subclass says how a client trains.
    """

    options: WidthOptions

    remembers_statistics = True  # whether BN statistics are sent and averaged, for each width

    def init(self, setup: Setup, previous: State | None) -> State:
        plan = Plan.of(setup.task, self.options)
        assert setup.tiers is not None  # the recipe says that this method has tiers
        tiers = setup.tiers.tiers
        widths = widths_of_tiers(plan, self.options, tiers)
        widest = max(widths)
        net = self.model(setup.task, widest)
        tensors = {}
        for name, tensor in weights_of(net).items():
            if not is_statistic(name):
                tensors[name] = tensor
        parts = {}
        for width in sorted(set(widths)):
            parts[key_of(width)] = inside_of(plan, width, widest).to_plain()
            if self.remembers_statistics:
                fresh = fresh_statistics(plan, width)
                tensors.update(with_prefix(statistics_prefix(width), fresh))
        rows = []
        for tier, width in zip(tiers, widths, strict=True):
            rows.append(tier_row(plan, tier, width))
        meta = {
            "parameters": [name for name, _ in net.named_parameters()],
            "tiers": rows,
            "tier_of": list(setup.tiers.of_client),
            "parts": parts,
        }
        return State(tensors, meta)

    def model(self, task: Task, width: float, weights: Tensors | None = None) -> Model:
        """Returns the network of this share of the full width."""
        options = self.options
        return build_model(
            task, options.network, options.width * width, weights=weights, head=options.head
        )

    # Orders

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors: dict[float, Tensors] = {}  # orders of one width share them
        regions = {}
        orders = []
        for client in r.cohort():
            width = width_of_client(state, client)
            if width not in tensors:
                tensors[width] = self.part(state, width)
                regions[width] = inside_in(state, width).region() or None
            meta = {**self.about(state, width), "lr": self.options.rate(r.progress)}
            order = Order(client, "train", tensors[width], meta, regions[width])
            orders.append(order)
        return state, orders

    def about(self, state: State, width: float) -> dict[str, Json]:
        """Returns what an order says about its network."""
        return {"width": width}

    def part(self, state: State, width: float) -> dict[str, torch.Tensor]:
        """Returns the tensors that a client of this width is sent."""
        tensors = shared(state)
        part = inside_in(state, width).take(tensors)
        prefix = statistics_prefix(width)
        return {**part, **with_prefix(prefix, without_prefix(prefix, tensors))}

    def check_device(self, order: Order, run: ClientRun) -> None:
        """Raises Declined if the device can no longer hold what its tier's limit allows."""
        most = run.limit_for(order).most
        if most == limits.Limit():
            return
        width = order.meta["width"]
        cost = cost_of(Plan.of(run.task, self.options), width).cost
        figures = limits.Figures(cost.params, cost.macs)
        if not most.fits(figures):
            names = ", ".join(most.over(figures))
            raise Declined(f"its network of width {width:g} exceeds the device's limit of {names}")

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return server_step(self.options, state, orders, replies)

    # Evaluation

    def serve(self, state: State, client: int) -> Order:
        """The client evaluates the network of its own tier."""
        return self.evaluation(state, client, width_of_client(state, client))

    def models(self, state: State) -> tuple[str, ...]:
        return tuple(tuned_model(row["tier"]) for row in state.meta["tiers"])

    def serve_model(self, state: State, name: str, client: int) -> Order:
        tier = int(name.rpartition("-")[2])
        return self.evaluation(state, client, state.meta["tiers"][tier - 1]["width"])

    def evaluation(self, state: State, client: int, width: float) -> Order:
        return Order(client, "evaluate", self.part(state, width), {"width": width})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.received(order, order.meta["width"], run)

    def received(self, order: Order, width: float, run: ClientRun) -> Model:
        """Returns an order's network, with this width's BN statistics if the order has them."""
        weights = dict(order.tensors)
        statistics = without_prefix(statistics_prefix(width), order.tensors)
        if not statistics:
            statistics = fresh_statistics(Plan.of(run.task, self.options), width)
        weights.update(statistics)
        return self.model(run.task, width, weights)

    # The result

    def sections(self, state: State) -> Sections:
        tier_of = state.meta["tier_of"]
        tiers = []
        for row in state.meta["tiers"]:
            number = row["tier"]
            result = TierResult(
                tier=number,
                limit=row["limit"],
                clients=tier_of.count(number),
                eligible=sum(tier >= number for tier in tier_of),
                width=row["width"],
                architecture=row["architecture"],
                params=row["params"],
                macs=row["macs"],
                macs_paper=row["macs_paper"],
            )
            if row["head"] is not None:
                result = result.replace(head=row["head"])
            note = self.note_of_tier(row)
            if note is not None:
                result = result.replace(note=note)
            tiers.append(result)
        return Sections(tuple(tiers), tuple(tier_of))

    def note_of_tier(self, row: Meta) -> str | None:
        """Returns what the figures of a tier do not show, or None."""
        return None


def tier_row(plan: Plan, tier: Tier, width: float) -> dict[str, Json]:
    """Returns what the state keeps about a tier, for the result."""
    width_cost = cost_of(plan, width)
    return {
        "tier": tier.number,
        "limit": dict(tier.limit),
        "width": width,
        "architecture": width_cost.architecture,
        "head": width_cost.head,
        "params": width_cost.cost.params,
        "macs": width_cost.cost.macs,
        "macs_paper": width_cost.cost.macs_paper,
    }


def key_of(width: float) -> str:
    return f"{width:g}"


def statistics_prefix(width: float) -> str:
    return f"{STATISTICS}{key_of(width)}/"


def fresh_statistics(plan: Plan, width: float) -> dict[str, torch.Tensor]:
    """Returns the BN statistics of a new network."""
    fresh = {}
    for name, tensor in statistics_of(plan.sized(width)).items():
        fresh[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
        if name.endswith("running_var"):
            fresh[name] = torch.ones(tensor.shape, dtype=tensor.dtype)
    return fresh


def width_of_client(state: State, client: int) -> float:
    tier = state.meta["tier_of"][client]
    width: float = state.meta["tiers"][tier - 1]["width"]
    return width


def widths_in(state: State) -> list[float]:
    """Returns all different widths, from the smallest on."""
    return sorted({row["width"] for row in state.meta["tiers"]})


def inside_in(state: State, width: float) -> Inside:
    """Returns where the network of a width lies in the widest one."""
    return Inside.from_plain(state.meta["parts"][key_of(width)])
