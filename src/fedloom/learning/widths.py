"""What methods share that train one network in several widths, for tiers of devices.

The server has the weights of the widest network. A client is sent the part that its tier's devices
can hold, the first channels of every layer (nets/nesting.py). Its order says where that part lies,
and every weight becomes the mean over the clients that hold it. BN statistics depend on the width,
so each width has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.cost import limits
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Declined, Method, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import weights_of
from fedloom.learning.width_costs import (
    NestedNetwork,
    WidthOptions,
    cost_of,
    fresh_statistics,
    inside_of,
    widths_of_tiers,
)
from fedloom.nets.model import Model
from fedloom.nets.nesting import Inside, is_statistic
from fedloom.networks.building import build_model
from fedloom.records.result import TierResult
from fedloom.records.sections import Sections, tuned_model
from fedloom.types import Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors, Tier

STATISTICS = "statistics/"  # prefix in the state: BN statistics, for each width


@dataclass(frozen=True)
class Nested(Method):
    """Federated averaging of one network in several widths.

    Each weight is averaged over the clients that hold it. A subclass says how a client trains.
    """

    options: WidthOptions

    remembers_statistics = True  # whether BN statistics are sent and averaged, for each width

    def init(self, setup: Setup, previous: State | None) -> State:
        nested = NestedNetwork.of(setup.task, self.options)
        assert setup.tiers is not None  # the recipe says that this method has tiers
        tiers = setup.tiers.tiers
        widths = widths_of_tiers(nested, self.options, tiers)
        widest = max(widths)
        net = self.model(setup.task, widest)
        tensors = {}
        for name, tensor in weights_of(net).items():
            if not is_statistic(name):
                tensors[name] = tensor
        parts = {}
        for width in sorted(set(widths)):
            parts[key_of(width)] = inside_of(nested, width, widest).to_plain()
            if self.remembers_statistics:
                fresh = fresh_statistics(nested, width)
                tensors.update(with_prefix(statistics_prefix(width), fresh))
        rows = []
        for tier, width in zip(tiers, widths, strict=True):
            rows.append(tier_row(nested, tier, width))
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
        cost = cost_of(NestedNetwork.of(run.task, self.options), width).cost
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
            statistics = fresh_statistics(NestedNetwork.of(run.task, self.options), width)
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


def tier_row(nested: NestedNetwork, tier: Tier, width: float) -> dict[str, Json]:
    """Returns what the state keeps about a tier, for the result."""
    width_cost = cost_of(nested, width)
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
