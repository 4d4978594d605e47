"""ZeroFL: Qiu, Fernandez-Marques, Gusmao, Gao, Parcollet, Lane, "ZeroFL: Efficient On-Device
Training for Federated Learning with Local Sparsity", ICLR 2022.

Clients train a network by SWAT: layers compute with a tenth of their weights, and learn from a
tenth of their inputs (learning/sparse.py). Clients send only the kept part of every layer's
weights. The server averages every weight over the clients that send it, and keeps the old value if
none does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import aggregate, folded
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, Tiered, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.private_state import with_prefix
from fedloom.learning.sparse import (
    BITS,
    KEPT,
    fault_in,
    mask_in,
    packed,
    pruned,
    sparse_layers,
    sparse_names,
    unpacked,
)
from fedloom.learning.training import final_weights, train
from fedloom.learning.width_costs import WidthOptions, tiered
from fedloom.learning.widths import Nested, statistics_prefix
from fedloom.nets.nesting import is_statistic
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors


class ZeroFLOptions(WidthOptions):
    """Options of ZeroFL."""

    usual_widths = (1.0,)  # the paper's network is as wide for all clients

    sparsity: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="share of weights and activations that layers leave out; 0 is FedAvg",
    )
    mask_ratio: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the weights that clients send beyond those that layers compute with",
    )

    @property
    def sent_share(self) -> float:
        """The share of a layer's weights that clients send."""
        return min(1.0, 1 - self.sparsity + self.mask_ratio)


@dataclass(frozen=True)
class ZeroFL(Nested):
    options: ZeroFLOptions

    fields = {
        "train": Fields(
            optional=("*",),
            extra=(f"{KEPT}*", f"{BITS}*"),
            meta=("loss",),
            writes=False,
        )
    }

    def init(self, setup: Setup, previous: State | None) -> State:
        state = super().init(setup, previous)
        sparse: list[str] = []
        if self.options.sparsity > 0:
            sparse = sparse_names(self.model(setup.task, 1.0))
        return State(state.tensors, {**state.meta, "sparse": sparse})

    def about(self, state: State, width: float) -> dict[str, Json]:
        return {"width": width, "sparse": state.meta["sparse"]}

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        self.check_device(order, run)
        width = order.meta["width"]
        net = self.received(order, width, run)
        with sparse_layers(net, self.options.sparsity):
            trained = train(net, data, self.options, order.meta["lr"], run)
        tensors: dict[str, torch.Tensor] = {}
        for name, tensor in final_weights(net).items():
            if name in order.meta["sparse"]:
                tensors.update(packed(name, tensor, self.options.sent_share))
            elif is_statistic(name):
                tensors.update(with_prefix(statistics_prefix(width), {name: tensor}))
            else:
                tensors[name] = tensor
        return Reply(order.client, tensors, len(data), {"loss": trained.loss}), None

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """Checks that the reply has every tensor, and of a pruned one only the kept part."""
        sparse = set(order.meta["sparse"])
        for name, sent in order.tensors.items():
            if name in sparse:
                fault = fault_in(reply.tensors, name, sent, self.options.sent_share)
                if fault is not None:
                    return fault
            elif name not in reply.tensors:
                return f"tensor {name!r} is missing"
        for name in reply.tensors:
            if name in sparse:
                return f"it has all of {name!r}, not only the kept part"
            is_extra = name.startswith((KEPT, BITS))
            if is_extra and name.partition("/")[2] not in sparse:
                return f"it contains the undeclared tensor {name!r}"
        return None

    def update_of(self, order: Order, reply: Reply) -> Tensors:
        """Returns a reply's weights. Those that it does not have count as unchanged."""
        tensors = dict(reply.tensors)
        for name in order.meta["sparse"]:
            tensors[name] = unpacked(reply.tensors, name, order.tensors[name])
        return tensors

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages every element over the clients that send it, for the server's optimiser."""
        sparse = state.meta["sparse"]
        if not sparse:
            return server_step(self.options, state, orders, replies)
        old = shared(state)
        dense = {name: tensor for name, tensor in old.items() if name not in sparse}
        fold = folded(dense, replies, orders)
        means = dict(fold.result())
        touched = dict(fold.merged())
        zeros = {name: torch.zeros_like(old[name], dtype=torch.float64) for name in sparse}
        # Both are divided by the total weight of the clients that hold an element. It cancels out.
        sums = aggregate(zeros, kept_values(orders, replies), orders)
        shares = aggregate(zeros, kept_masks(orders, replies), orders)
        for name in sparse:
            was_sent = shares[name] > 0
            mean = sums[name] / shares[name].clamp_min(1e-300)
            means[name] = torch.where(was_sent, mean, old[name].double()).to(old[name].dtype)
            if was_sent.any():
                touched[name] = was_sent
        if not touched:
            return state
        return self.options.server().step(state, means, state.meta["parameters"], touched)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """Returns the network with pruned weights, as it computed in training."""
        net = self.received(order, order.meta["width"], run)
        if self.options.sparsity == 0:
            return net
        tensors = net.state_dict()
        for name in sparse_names(net):
            tensors[name].copy_(pruned(tensors[name], 1 - self.options.sparsity))
        return net

    def note_of_tier(self, row: Meta) -> str | None:
        if self.options.sparsity == 0:
            return None
        kept_share = f"{1 - self.options.sparsity:.0%}"
        return (
            "MACs are dense: products with zeros count, "
            f"though {kept_share} of the weights are kept"
        )


def kept_values(orders: Sequence[Order], replies: Collection[Reply]) -> Iterator[Reply]:
    """Yields every reply with its kept weights, and zeros for the others."""
    by_client = {order.client: order for order in orders}
    for reply in replies:
        order = by_client[reply.client]
        tensors = {}
        for name in order.meta["sparse"]:
            zeros = torch.zeros(order.tensors[name].shape, dtype=torch.float64)
            tensors[name] = unpacked(reply.tensors, name, zeros)
        yield Reply(reply.client, tensors, reply.weight)


def kept_masks(orders: Sequence[Order], replies: Collection[Reply]) -> Iterator[Reply]:
    """Yields every reply with a one for each kept weight, and zeros for the others."""
    by_client = {order.client: order for order in orders}
    for reply in replies:
        order = by_client[reply.client]
        tensors = {}
        for name in order.meta["sparse"]:
            mask = mask_in(reply.tensors, name, order.tensors[name].shape)
            tensors[name] = mask.double()
        yield Reply(reply.client, tensors, reply.weight)


def tiers_of(task: Task) -> Tiered:
    return tiered(task, ZeroFLOptions(**task.options))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", ZeroFL(ZeroFLOptions(**task.options))),)


zerofl = Recipe(
    "ZeroFL (Qiu et al. 2022): sparse training, clients send only the kept weights",
    ZeroFLOptions,
    stages,
    tiered=tiers_of,
    supports_regression=True,
)
