"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated
Learning for Heterogeneous Clients", ICLR 2021.

Every tier trains one width of a network, whose layers are the first channels of the full network's.
The server averages every weight over the clients that hold it. Three things make widths fit
together. The scaler divides the output of a narrow layer by its width. Static BN normalises batches
by their own statistics, which are neither kept nor sent while training; in the end clients are
asked for the statistics of the finished network. The masked loss leaves out the classes that a
client does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, Tiered, shared
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import batch_norms, final_weights, recalibrate, train
from fedloom.learning.width_costs import (
    NestedNetwork,
    WidthOptions,
    fresh_statistics,
    inside_of,
    tiered,
)
from fedloom.learning.widths import (
    STATISTICS,
    Nested,
    statistics_prefix,
    width_of_client,
    widths_in,
)
from fedloom.nets.head import head_of
from fedloom.nets.model import Model
from fedloom.nets.nesting import is_statistic, statistics_of
from fedloom.types import Fields, Json, Order, Reply, Round, Setup, State, Task, Tensors

TRAINING = 0.995  # share of the budget; of the rest, one round collects statistics


class HeteroFLOptions(WidthOptions):
    """Options of HeteroFL."""

    scaler: bool = Field(
        True,
        description="divide the output of a narrow layer by its width",
    )
    mask: bool = Field(
        True,
        description="leave classes that a client does not have out of its loss",
    )


# The two stages


@dataclass(frozen=True)
class HeteroFL(Nested):
    """What both stages share: how a network without statistics is evaluated."""

    options: HeteroFLOptions

    remembers_statistics = False

    def init(self, setup: Setup, previous: State | None) -> State:
        state = super().init(setup, previous)
        nested = NestedNetwork.of(setup.task, self.options)
        scaled = scaled_tensors(nested.sized(max(widths_in(state))))
        return State(state.tensors, {**state.meta, "scaled": scaled})

    def about(self, state: State, width: float) -> dict[str, Json]:
        return {"width": width, "rate": self.rate(state, width)}

    def rate(self, state: State, width: float) -> float:
        """Returns what the scaler divides by: the width as a share of the widest network's."""
        if not self.options.scaler:
            return 1.0
        return width / max(widths_in(state))

    def evaluation(self, state: State, client: int, width: float) -> Order:
        """The weights include the scaler here, so the network needs none."""
        order = super().evaluation(state, client, width)
        rate = self.rate(state, width)
        tensors = with_scaler(order.tensors, state.meta["scaled"], rate)
        return Order(client, order.kind, tensors, order.meta)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """Returns the network. Before statistics are collected, BN uses the client's samples."""
        net = super().network(order, data, own, run)
        if order.kind != "evaluate":
            return net
        has_statistics = any(name.startswith(STATISTICS) for name in order.tensors)
        if not has_statistics and batch_norms(net) and len(data) > 1:
            recalibrate(net.to(run.device), data, self.options, run)
        return net


@dataclass(frozen=True)
class TrainWidths(HeteroFL):
    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        self.check_device(order, run)
        net = self.received(order, order.meta["width"], run)
        with ExitStack() as while_training:
            while_training.enter_context(scaler(net, order.meta["rate"]))
            if self.options.mask:
                missing = classes_missing(data, len(run.task.labels))
                while_training.enter_context(masked(net, missing.to(run.device)))
            trained = train(net, data, self.options, order.meta["lr"], run)
        tensors = {}
        for name, tensor in final_weights(net).items():
            if not is_statistic(name):
                tensors[name] = tensor
        return Reply(order.client, tensors, len(data), {"loss": trained.loss}), None


@dataclass(frozen=True)
class CollectStatistics(HeteroFL):
    """One round that collects every width's statistics, from the clients that can compute it."""

    fields = {"statistics": Fields(tensors=(f"{STATISTICS}*",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        if previous is None:  # the state's size is asked for before anything was trained
            previous = super().init(setup, None)
        nested = NestedNetwork.of(setup.task, self.options)
        tensors = dict(previous.tensors)
        for width in widths_in(previous):
            fresh = fresh_statistics(nested, width)
            tensors.update(with_prefix(statistics_prefix(width), fresh))
        return State(tensors, {**previous.meta, "asked": False, "collected": []})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if state.meta["asked"]:
            return None
        tensors: dict[float, Tensors] = {}  # orders of one width share them
        orders = []
        for client in r.cohort():
            width = width_of_client(state, client)
            widths = [narrower for narrower in widths_in(state) if narrower <= width]
            if width not in tensors:
                tensors[width] = self.with_statistics(state, width, widths)
            rates = [self.rate(state, narrower) for narrower in widths]
            meta = {"width": width, "widths": widths, "rates": rates}
            orders.append(Order(client, "statistics", tensors[width], meta))
        return state, orders

    def with_statistics(self, state: State, width: float, widths: Sequence[float]) -> Tensors:
        """Returns the weights of a width, and the statistics of all widths in it.

        The client replies with these statistics measured.
        """
        tensors = self.part(state, width)
        for narrower in widths:
            prefix = statistics_prefix(narrower)
            tensors.update(with_prefix(prefix, without_prefix(prefix, state.tensors)))
        return tensors

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        self.check_device(order, run)
        nested = NestedNetwork.of(run.task, self.options)
        scaled = scaled_tensors(nested.sized(order.meta["width"]))
        statistics = {}
        for width, rate in zip(order.meta["widths"], order.meta["rates"], strict=True):
            weights = inside_of(nested, width, order.meta["width"]).take(order.tensors)
            weights = with_scaler(weights, scaled, rate)
            weights.update(fresh_statistics(nested, width))
            net = self.model(run.task, width, weights).to(run.device)
            recalibrate(net, data, self.options, run)
            statistics.update(with_prefix(statistics_prefix(width), on_cpu(statistics_of(net))))
        return Reply(order.client, statistics, len(data)), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages statistics by samples. A width that no client could compute has none."""
        means = aggregate(shared(state), replies, orders)
        widths = set(state.meta["collected"])
        for order in orders:
            if any(reply.client == order.client and reply.weight for reply in replies):
                widths.update(order.meta["widths"])
        meta = {**state.meta, "asked": True, "collected": sorted(widths)}
        return State({**state.tensors, **means}, meta)

    def evaluation(self, state: State, client: int, width: float) -> Order:
        order = super().evaluation(state, client, width)
        if width in state.meta["collected"]:
            return order
        tensors = {}
        for name, tensor in order.tensors.items():
            if not name.startswith(STATISTICS):
                tensors[name] = tensor
        return Order(client, order.kind, tensors, order.meta)


def on_cpu(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


# The scaler


@contextmanager
def scaler(net: Model, rate: float) -> Iterator[None]:
    """Inside this context, the outputs of layers are divided by `rate`.

    The layers are convolutions, recurrent layers and linear layers, except the last layer.
    """
    handles = []
    if rate != 1.0:

        def divided(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            if isinstance(output, tuple):  # a recurrent layer's outputs, and its last state
                return (output[0] / rate, *output[1:])
            return output / rate

        for module in scaled_modules(net).values():
            handles.append(module.register_forward_hook(divided))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def scaled_modules(net: Model) -> dict[str, nn.Module]:
    last = head_of(net)
    modules = {}
    for name, module in net.named_modules():
        is_layer = isinstance(module, nn.Conv2d | nn.Linear | nn.RNNBase)
        if is_layer and name != last:
            modules[name] = module
    return modules


def scaled_tensors(net: Model) -> list[str]:
    """Returns the names of the tensors that, divided by the rate, have the scaler's effect.

    A recurrent layer is not linear in its weights: instead, the last layer's weight is divided.
    """
    names = []
    for name, module in scaled_modules(net).items():
        if isinstance(module, nn.RNNBase):
            names.append(f"{head_of(net)}.weight")
            continue
        for parameter, _ in module.named_parameters(recurse=False):
            names.append(f"{name}.{parameter}")
    return names


def with_scaler(tensors: Tensors, scaled: Sequence[str], rate: float) -> dict[str, torch.Tensor]:
    """Returns weights that include the scaler, for a network that has none."""
    weights = dict(tensors)
    if rate == 1.0:
        return weights
    for name in scaled:
        weights[name] = weights[name] / rate
    return weights


# The masked loss


def classes_missing(data: Samples, classes: int) -> torch.Tensor:
    """Returns a mask of the classes that none of these samples has."""
    missing = torch.ones(classes, dtype=torch.bool)
    missing[data.y.unique().cpu()] = False
    return missing


@contextmanager
def masked(net: nn.Module, missing: torch.Tensor) -> Iterator[None]:
    """Inside this context, the scores of missing classes are 0: the loss does not train them."""
    if not missing.any():
        yield
        return

    def without_missing(module: nn.Module, inputs: tuple[Any, ...], scores: Any) -> Any:
        return scores.masked_fill(missing, 0.0)

    handle = net.register_forward_hook(without_missing)
    try:
        yield
    finally:
        handle.remove()


def tiers_of(task: Task) -> Tiered:
    return tiered(task, HeteroFLOptions(**task.options))


def stages(task: Task) -> tuple[Stage, ...]:
    """Training, and a stage that collects BN statistics if the network has BN."""
    options = HeteroFLOptions(**task.options)
    if not fresh_statistics(NestedNetwork.of(task, options), 1.0):
        return (Stage("train", TrainWidths(options)),)
    return (
        Stage("train", TrainWidths(options), share=TRAINING),
        Stage("statistics", CollectStatistics(options)),
    )


heterofl = Recipe(
    "HeteroFL (Diao et al. 2021): one width of a network for every tier, static BN",
    HeteroFLOptions,
    stages,
    tiered=tiers_of,
)
