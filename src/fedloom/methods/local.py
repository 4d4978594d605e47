"""Local-only training: every client for itself. What a federation must beat to be worth joining.

Nothing goes up: a reply is empty. Momentum is kept between rounds, so rounds only pace the schedule: with one
client it is plain centralised training. Inputs are normalised by the client's own training part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from fedloom.data.samples import Samples
from fedloom.federation.method import ClientRun, Method, Recipe, Stage
from fedloom.nets.model import Model, build_model
from fedloom.training import ADAM, MOMENTUM, TrainingOptions, train, weights_of
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task


@dataclass(frozen=True)
class Local(Method):
    options: TrainingOptions

    fields = {"train": Fields()}
    seals = ("*",)
    shares = False

    def init(self, setup: Setup, previous: State | None) -> State:
        build_model(setup.task, self.options.network, self.options.width)  # named now if it cannot be built
        return State()

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", meta=meta) for client in r.cohort()]

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum_in(own))
        return Reply(order.client, weight=len(data)), own_state(net, trained.momentum)

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        return state

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        own_constants = moments(data) if run.task.mean else ()  # text has none
        net = build_model(run.task, self.options.network, self.options.width, *own_constants)
        if own is not None:
            net.load_state_dict(weights_in(own))
        return net


def moments(data: Samples) -> tuple[list[float], list[float]]:
    """Per channel mean and standard deviation of a client's own inputs."""
    x = data.x.double().transpose(0, 1).flatten(1)
    return x.mean(1).tolist(), x.std(1, correction=0).clamp_min(1e-6).tolist()


def own_state(net: torch.nn.Module, momentum: dict[str, torch.Tensor]) -> State:
    return State({**weights_of(net), **{f"{MOMENTUM}{name}": buffer for name, buffer in momentum.items()}})


def weights_in(own: State) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in own.tensors.items() if not name.startswith((MOMENTUM, ADAM))}


def momentum_in(own: State | None) -> dict[str, torch.Tensor]:
    tensors = {} if own is None else own.tensors
    return {name.removeprefix(MOMENTUM): buffer for name, buffer in tensors.items() if name.startswith(MOMENTUM)}


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Local(TrainingOptions(**task.options))),)


local = Recipe("Local-only: every client trains alone", TrainingOptions, stages)
