"""Federated averaging as a building block: McMahan et al. 2017, Algorithm 1, for any network.

A cohort trains the shared network, and the server takes the weighted mean or lets an optimiser take
a step towards it. FedAvg is this with a fixed network; searches train the network that they chose
with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import folded
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.server_optimizers import Rule, ServerOptimizer
from fedloom.learning.training import (
    RECEIVED,
    SgdOptions,
    StepOptions,
    batch_norms,
    final_weights,
    recalibrate,
    train,
    weights_of,
)
from fedloom.options import Options
from fedloom.types import Fields, Meta, Order, Reply, Round, State, Task, Tensors


class ServerRule(Options):
    """How the server uses the mean of the replies."""

    server_optimizer: Rule = Field(
        "mean",
        description="how the server uses the mean of the replies",
    )
    server_lr: float = Field(0.1, gt=0, description="step of an adaptive server optimiser")
    beta1: float = Field(0.9, ge=0, lt=1, description="its first-moment decay")
    beta2: float = Field(0.99, ge=0, lt=1, description="its second-moment decay")

    @property
    def adaptivity(self) -> float:
        raise NotImplementedError

    def server(self) -> ServerOptimizer:
        return ServerOptimizer(
            rule=self.server_optimizer,
            lr=self.server_lr,
            beta1=self.beta1,
            beta2=self.beta2,
            tau=self.adaptivity,
        )


class ServerOptions(ServerRule):
    tau: float = Field(1e-3, gt=0, description="adaptivity of an adaptive server optimiser")

    @property
    def adaptivity(self) -> float:
        return self.tau


class AveragingOptions(StepOptions, ServerOptions):
    """Options of federated averaging of any network, however long clients train."""

    measures_received = True


class AveragedOptions(SgdOptions, AveragingOptions):
    """Options of federated averaging of any network, with local training in epochs."""


@contextmanager
def received_statistics(
    net: nn.Module,
    data: Samples,
    options: StepOptions,
    run: ClientRun,
) -> Iterator[None]:
    """Gives a network that is trained inside the BN statistics that `bn` wants averaged.

    The running statistics of training are those of the clients' own networks, whose activations
    vary more than those of the mean network. The error grows from layer to layer: a deep network
    that learns well may predict as if it had learnt nothing. With `bn = "received"` a client sends
    the statistics of the mean network, as it received it before its training.
    """
    if options.bn != RECEIVED:
        yield
        return
    net.to(run.device)
    counters = []
    statistics = []
    for norm in batch_norms(net):
        for buffer in norm.buffers():
            if buffer.is_floating_point():
                statistics.append(buffer)
            else:
                counters.append(buffer)
    received_counts = copies(counters)
    recalibrate(net, data.to(run.device), options, run)
    measured = copies(statistics)
    # Recalibration resets the counters. They must never fall, and count batches of training only.
    put_back(counters, received_counts)
    yield
    put_back(statistics, measured)


def copies(buffers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in buffers]


def put_back(buffers: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


def server_step(
    options: ServerRule,
    state: State,
    orders: Sequence[Order],
    replies: Collection[Reply],
    min_clients: int = 1,
) -> State:
    """Returns the state after the server's optimiser has used the mean of the replies.

    The optimiser moves `state.meta["parameters"]`. A tensor to which no reply, or fewer than
    `min_clients`, contributed keeps its value and its moments: momentum alone moves nothing.
    """
    old = shared(state)
    fold = folded(old, replies, orders)
    mean = fold.result(min_clients)
    nothing_merged = all(mean[name] is tensor for name, tensor in old.items())
    if nothing_merged:
        return state
    optimizer = options.server()
    return optimizer.step(state, mean, state.meta["parameters"], fold.merged(min_clients))


@dataclass(frozen=True)
class Averaged(Method):
    """Algorithm 1 for any network. A subclass says which network it is.

    Every order carries `state.meta["build"]`, which says how to build it.
    """

    options: AveragingOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}
    relays = True

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        """Returns the network with these weights, or with those that the seed draws."""
        raise NotImplementedError

    def begin(self, task: Task, about: Meta) -> State:
        net = self.build(task, about)
        parameters = [name for name, _ in net.named_parameters()]
        return State(weights_of(net), {"build": about, "parameters": parameters})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors = shared(state)
        meta = {**state.meta["build"], "lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", tensors, meta) for client in r.cohort()]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        with received_statistics(net, data, self.options, run):
            trained = train(net, data, self.options, order.meta["lr"], run)
        return Reply(order.client, final_weights(net), len(data), {"loss": trained.loss}), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return server_step(self.options, state, orders, replies)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state), state.meta["build"])

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.build(run.task, order.meta, order.tensors)
