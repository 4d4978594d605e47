"""Federated averaging as a building block.

A cohort trains the shared network, the server takes the weighted mean: McMahan et al. 2017,
Algorithm 1, for any network; and what a server may make of the mean instead of taking it as it is.
FedAvg is this with a fixed network; searches train what they found with it.
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

    measures_received = True


class AveragedOptions(SgdOptions, AveragingOptions):
    """Federated averaging, of whatever network."""


@contextmanager
def received_statistics(
    net: nn.Module,
    data: Samples,
    options: StepOptions,
    run: ClientRun,
) -> Iterator[None]:
    """A network that is trained inside leaves with the BN statistics that `bn` wants averaged.

    Running statistics of training are those of the clients' own networks, whose activations vary
    more than those of their mean. The error grows from layer to layer: a deep network that learns
    well may answer as if it had learnt nothing. With `bn = "received"` a client sends the
    statistics of the mean itself, as it was before the client's training.
    """
    if options.bn != RECEIVED:
        yield
        return
    net.to(run.device)
    buffers = [buffer for norm in batch_norms(net) for buffer in norm.buffers()]
    counts = [buffer for buffer in buffers if not buffer.is_floating_point()]
    statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
    counted = copies(counts)
    recalibrate(net, data.to(run.device), options, run)
    measured = copies(statistics)
    put_back(counts, counted)  # batches of training alone: a client may not count backwards
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
