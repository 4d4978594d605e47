"""A method that uses everything a method may use.

It describes all clients, searches over a supernet, weights each tensor separately, keeps a sealed
state at its clients and takes it into a second stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedloom.federation.protocol.method import Method, Recipe, Stage, shared
from fedloom.learning.training import TrainingOptions, weights_of
from fedloom.nets.model import seeded
from fedloom.rng import key
from fedloom.types import Arch, Fields, Order, Reply, State


class Space:
    def full(self) -> Arch:
        return Arch("two", ((0, 1),))

    def sample(self, generator) -> Arch:
        return Arch("two", ((int(generator.integers(2)),),))


class Supernet(nn.Module):
    """One slot with two operations between a stem and a head."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2 * 4 * 4, labels)
        self.ops = nn.ModuleList(
            [nn.Conv2d(2, 2, 1), nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2))]
        )
        self.space = Space()

    def forward(self, x, arch=Arch("two", ((0,),))):  # noqa: B008 - it is frozen
        x = self.stem(x / 100)
        return self.head(sum(self.ops[op](x) for op in arch.choice[0]).flatten(1))

    def owner(self, name: str) -> tuple[int, int] | None:
        return (0, int(name.split(".")[1])) if name.startswith("ops.") else None

    def cut(self, arch: Arch) -> nn.Module:
        return nn.Sequential(
            Scaled(), self.stem, self.ops[arch.choice[0][0]], nn.Flatten(), self.head
        )


class Scaled(nn.Module):
    def forward(self, x):
        return x / 100


@dataclass(frozen=True)
class Sound(Method):
    options: TrainingOptions

    fields = {"step": Fields(tensors=("*",), meta=("loss",))}
    describe = {"classes": True}
    seals = ("private/*",)

    def init(self, setup, previous):
        with seeded(key(setup.task.seed, "init")):
            net = Supernet(len(setup.task.labels))
        counts = {str(client): facts.extra["classes"] for client, facts in setup.clients.items()}
        return State(weights_of(net) if previous is None else previous.tensors, {"classes": counts})

    def plan(self, state, r):
        state = State(state.tensors, {**state.meta, "draw": float(r.rng("draw").random())})
        return state, [Order(client, "step", shared(state), {"lr": 0.05}) for client in r.cohort()]

    def client(self, order, data, own, run):
        op = int(torch.randint(2, (), generator=run.rng("path")))
        net = self.network(order, data, own, run)
        private = self.network(order, data, own, run)
        if own is not None:
            private.load_state_dict(
                {name.removeprefix("private/"): value for name, value in own.tensors.items()}
            )
        loss = step(net, data, op, order.meta["lr"])
        choice = 1 - op if own is None else own.meta["private/choice"]
        step(private, data, choice, order.meta["lr"])
        weight = {
            name: 0 if net.owner(name) == (0, 1 - op) else len(data) for name in net.state_dict()
        }
        mine = State(
            {f"private/{name}": value for name, value in weights_of(private).items()},
            {"private/choice": choice},
        )
        return Reply(order.client, weights_of(net), weight, {"loss": loss}), mine

    def network(self, order, data, own, run):
        net = Supernet(len(run.task.labels))
        net.load_state_dict(dict(order.tensors))
        return net

    def describe_client(self, ask, data, run):
        return {"classes": len(data.y.unique())}


def step(net, data, op, lr) -> float:
    loss = nn.functional.cross_entropy(net.train()(data.x, Arch("two", ((op,),))), data.y)
    loss.backward()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter -= lr * parameter.grad
    return loss.item()


def stages(task):
    options = TrainingOptions(**task.options)
    return Stage("search", Sound(options), 0.5), Stage("train", Sound(options), keeps_own=True)


sound = Recipe("Everything a method may do", TrainingOptions, stages)
