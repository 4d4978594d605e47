"""Federated averaging as a building block.

A cohort trains the shared network, the server takes the weighted mean: McMahan et al. 2017,
Algorithm 1, for any network; and what a server may make of the mean instead of taking it as it is.
FedAvg is this with a fixed network; searches train what they found with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import folded
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.server_optimizers import Rule, ServerOptimizer
from fedloom.learning.training import (
    SgdOptions,
    StepOptions,
    Trained,
    final_weights,
    recalibrate,
    train,
    weights_of,
)
from fedloom.options import Options
from fedloom.types import Fields, Meta, Order, Reply, Round, State, Task, Tensors

RECEIVED = "received"  # of `bn`
BnPolicy = Literal["averaged", "received", "frozen"]
BN_POLICIES = (
    "statistics of BN in evaluation: the mean of those that clients trained with, the mean of "
    "those that they measure of the network they received, or constants"
)


class ServerRule(Options):
    """How the server uses the mean of the replies."""

    server_optimizer: Rule = Field(
        "mean",
        description="how the server uses the mean of the replies",
    )
    server_lr: float = Field(0.1, gt=0, description="step of an adaptive server optimiser")
    beta1: float = Field(0.9, ge=0, lt=1, description="its first momentum")
    beta2: float = Field(0.99, ge=0, lt=1, description="its second momentum")

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
    """Federated averaging, of whatever network and however long clients train."""

    bn: BnPolicy = Field("averaged", description=BN_POLICIES)


class AveragedOptions(AveragingOptions, SgdOptions):
    """Federated averaging, of whatever network."""


def train_to_average(
    net: nn.Module,
    data: Samples,
    options: AveragingOptions,
    lr: float,
    run: ClientRun,
    momentum: Mapping[str, torch.Tensor] | None = None,
) -> Trained:
    """SGD on `data`, in place; the server will average what comes of it.

    Running statistics of training are those of the clients' own networks, whose activations vary
    more than those of their mean. The error grows from layer to layer: a deep network that learns
    well may answer as if it had learnt nothing. With `bn = "received"` clients send the statistics
    of the mean itself, as it was before their training.
    """
    if options.bn != RECEIVED:
        return train(net, data, options, lr, run, momentum=momentum)
    net.to(run.device)
    recalibrate(net, data.to(run.device), options, run)
    received = {name: buffer.clone() for name, buffer in net.named_buffers()}
    trained = train(net, data, options, lr, run, momentum=momentum)
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            buffer.copy_(received[name])
    return trained


def server_step(
    options: ServerRule,
    state: State,
    orders: Sequence[Order],
    replies: Collection[Reply],
    min_clients: int = 1,
) -> State:
    """The mean of the replies, and what the server's optimiser makes of it.

    It is an optimiser of `state.meta["parameters"]`. What nobody weighed, or fewer than
    `min_clients` brought, keeps its value and its moments: momentum alone moves nothing.
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
    """Algorithm 1, for any network: a subclass says which.

    `state.meta["build"]` goes down with every order.
    """

    options: AveragingOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}
    relays = True

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        """The network with these weights, or as the seed makes it."""
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
        trained = train_to_average(net, data, self.options, order.meta["lr"], run)
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
