"""Local-only training: every client trains alone. A federation must beat this to be worth joining.

Replies are empty: nothing is sent to the server. Momentum is kept between rounds, so rounds only
set the pace of the schedule: with one client it is plain centralised training. Inputs are
normalised by the client's own training part, unless the user gave constants for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.private_state import momentum_in, own_state, weights_in
from fedloom.learning.training import TrainingOptions, train
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task

# Samples whose moments are computed at a time: the data need not fit in memory as float64.
CHUNK = 4096
# A channel whose deviation is below this share of its mean is constant, except for rounding.
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
        # A network that cannot be built raises its error now.
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
        weights = None
        if own is not None:
            weights = weights_in(own)
        return build_model(
            run.task, options.network, options.width, mean, std, weights, options.head
        )

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        options = self.options
        net = build_model(task, options.network, options.width, head=options.head)
        cost = SampleCost.of(net, task, options)
        return cost.of_training(samples_of(reply), options)


def moments(data: Samples, fixed: Sequence[float]) -> tuple[list[float], list[float]]:
    """Returns mean and standard deviation of a client's own inputs, for each channel.

    A channel that is constant in these inputs keeps the data set's deviation, `fixed`: other inputs
    may vary, and division by almost nothing would make them huge.
    """
    mean = channel_means(data, lambda x: x)
    deviation = channel_means(data, lambda x: (x - mean[:, None]).square()).sqrt()
    fixed_deviation = torch.tensor(fixed, dtype=deviation.dtype)
    varies = deviation > FLAT * mean.abs()
    return mean.tolist(), torch.where(varies, deviation, fixed_deviation).tolist()


def channel_means(data: Samples, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Returns the mean of a function of the inputs, for each channel."""
    sums = []
    for part in data.x.split(CHUNK):
        by_channel = part.double().transpose(0, 1).flatten(1)
        sums.append(function(by_channel).sum(1))
    values_per_channel = data.x.numel() // data.x.shape[1]
    return torch.stack(sums).sum(0) / values_per_channel


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Local(LocalOptions(**task.options))),)


local = Recipe(
    "Local-only: every client trains alone",
    LocalOptions,
    stages,
    supports_regression=True,
    has_macs_formula=True,
)
