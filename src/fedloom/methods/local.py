"""Local-only training: every client for itself. What a federation must beat to be worth joining.

Nothing goes up: a reply is empty. Momentum is kept between rounds, so rounds only pace the
schedule: with one client it is plain centralised training. Inputs are normalised by the client's
own training part, unless the user gave constants for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.learning.private_state import momentum_in, own_state, weights_in
from fedloom.learning.training import TrainingOptions, train
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task

# Samples whose moments are computed at a time: data need not fit in memory as float64.
CHUNK = 4096
# A channel whose spread is less than this share of its mean is constant, but for rounding.
FLAT = 1e-6


class LocalOptions(TrainingOptions):
    constants: Literal["own", "fixed"] = Field(
        "own",
        description="normalise inputs by the client's training part, or by data.mean and data.std",
    )

    @classmethod
    def for_given_constants(cls) -> dict[str, Any]:
        return {"constants": "fixed"}


@dataclass(frozen=True)
class Local(Method):
    options: LocalOptions

    fields = {"train": Fields(writes=True)}
    seals = ("*",)
    shares = False

    def init(self, setup: Setup, previous: State | None) -> State:
        # What cannot be built is named now.
        options = self.options
        build_model(setup.task, options.network, options.width, head=options.head)
        return State()

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", meta=meta) for client in r.cohort()]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum_in(own))
        return Reply(order.client, weight=len(data)), own_state(net, trained.momentum)

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return state

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        options = self.options
        mean: Sequence[float] = run.task.mean
        std: Sequence[float] = run.task.std
        if options.constants == "own" and run.task.kind != "text":  # symbols have no mean
            mean, std = moments(data, run.task.std)
        weights = None if own is None else weights_in(own)
        return build_model(
            run.task, options.network, options.width, mean, std, weights, options.head
        )


def moments(data: Samples, fixed: Sequence[float]) -> tuple[list[float], list[float]]:
    """Per channel mean and standard deviation of a client's own inputs.

    A channel that is constant here keeps the data set's deviation: elsewhere it may not be, and
    dividing by almost nothing would make such inputs huge.
    """
    mean = channel_means(data, lambda x: x)
    spread = channel_means(data, lambda x: (x - mean[:, None]).square()).sqrt()
    fixed_spread = torch.tensor(fixed, dtype=spread.dtype)
    varies = spread > FLAT * mean.abs()
    return mean.tolist(), torch.where(varies, spread, fixed_spread).tolist()


def channel_means(data: Samples, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The mean of a function of the inputs, a number a channel."""
    sums = []
    for part in data.x.split(CHUNK):
        by_channel = part.double().transpose(0, 1).flatten(1)
        sums.append(function(by_channel).sum(1))
    values_a_channel = data.x.numel() // data.x.shape[1]
    return torch.stack(sums).sum(0) / values_a_channel


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Local(LocalOptions(**task.options))),)


local = Recipe(
    "Local-only: every client trains alone",
    LocalOptions,
    stages,
    foretells_numbers=True,
)
