"""Local-only training: every client for itself. What a federation must beat to be worth joining.

Nothing goes up: a reply is empty. Momentum is kept between rounds, so rounds only pace the schedule: with one
client it is plain centralised training. Inputs are normalised by the client's own training part, unless the user gave
constants for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.learning.private_state import momentum_in, own_state, weights_in
from fedloom.learning.training import TrainingOptions, train
from fedloom.nets.model import Model, build_model
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task

CHUNK = 4096  # samples whose moments are computed at a time: data need not fit in memory as float64
FLAT = 1e-6  # a channel whose spread is less than this share of its mean is constant, but for rounding


class LocalOptions(TrainingOptions):
    constants: Literal["own", "fixed"] = Field(
        "own", description="input normalisation by the client's own training part, or by data.mean and data.std"
    )


@dataclass(frozen=True)
class Local(Method):
    options: LocalOptions

    fields = {"train": Fields(writes=True)}
    seals = ("*",)
    shares = False

    def init(self, setup: Setup, previous: State | None) -> State:
        build_model(
            setup.task, self.options.network, self.options.width, head=self.options.head
        )  # named now if it cannot be built
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
        own_constants = self.options.constants == "own" and run.task.kind != "text"  # symbols have no mean
        mean, std = moments(data, run.task.std) if own_constants else (run.task.mean, run.task.std)
        weights = None if own is None else weights_in(own)
        options = self.options
        return build_model(run.task, options.network, options.width, mean, std, weights, options.head)


def moments(data: Samples, fixed: Sequence[float]) -> tuple[list[float], list[float]]:
    """Per channel mean and standard deviation of a client's own inputs. A channel that is constant here keeps the data
    set's deviation: elsewhere it may not be, and dividing by almost nothing would make such inputs huge.
    """
    mean = channel_means(data, lambda x: x)
    spread = channel_means(data, lambda x: (x - mean[:, None]).square()).sqrt()
    kept = torch.where(spread > FLAT * mean.abs(), spread, torch.tensor(fixed, dtype=spread.dtype))
    return mean.tolist(), kept.tolist()


def channel_means(data: Samples, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The mean of a function of the inputs, a number a channel."""
    sums = [of(part.double().transpose(0, 1).flatten(1)).sum(1) for part in data.x.split(CHUNK)]
    return torch.stack(sums).sum(0) / (data.x.numel() // data.x.shape[1])


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Local(LocalOptions(**task.options))),)


local = Recipe("Local-only: every client trains alone", LocalOptions, stages)
