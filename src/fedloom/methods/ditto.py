"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization", ICML 2021, Algorithm 1.

The shared w is trained by FedAvg. Beside it every client keeps a personal v and minimises F_k(v) +
λ/2·‖v − wᵗ‖², where wᵗ are the weights that it received this round. v starts from the seed, as w
does; λ = 0 is local training. v has its own optimiser, and nothing of it leaves the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.private_state import momentum_in, own_state, weights_in, weights_or
from fedloom.learning.proximal import pull_towards
from fedloom.learning.training import model, train, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.options import Absent
from fedloom.types import Fields, Json, Order, Reply, State, Task


class DittoOptions(FedAvgOptions):
    v_epochs: int | None = Field(
        None,
        ge=1,
        description="local epochs of the personal model; by default epochs",
    )
    v_lr: float | None = Field(
        None,
        gt=0,
        description="learning rate of the personal model; by default lr",
    )
    optimizer_state: Annotated[Literal["reset", "keep"], Absent("reset")] = Field(
        "keep",
        description="what happens to the personal model's optimiser between rounds",
    )
    lam: float = Field(
        0.1,
        ge=0,
        validate_default=True,
        description="λ: pull of the personal model towards the received weights",
    )

    @field_validator("lam")
    @classmethod
    def _converges(cls, lam: float, info: ValidationInfo) -> float:
        rate = info.data.get("v_lr") or info.data.get("lr")
        if rate is not None and rate * lam >= 2:
            bound = f"below 2 / v_lr = {2 / rate:g}"
            raise ValueError(f"{bound}, or the pull overshoots more with every step")
        return lam

    def personal_rate(self, rate: float) -> float:
        """Returns η of v in a round in which η of w is `rate`: the same schedule, from `v_lr`."""
        if self.v_lr is None:
            return rate
        return rate * (self.v_lr / self.lr)


@dataclass(frozen=True)
class Ditto(FedAvg):
    options: DittoOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}
    seals = ("*",)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        reply, _ = super().client(order, data, None, run)  # the training of w does not see v
        return reply, self._personalised(order, data, own, run)

    def _personalised(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> State:
        """Trains v for its own number of epochs: v ← v − η(∇F_k(v) + λ(v − wᵗ))."""
        options = self.options
        weights = None
        diverged = 0
        if own is not None:
            weights = weights_in(own)
            diverged = own.meta["diverged"]
        keeps_momentum = options.optimizer_state == "keep"
        momentum = {}
        if keeps_momentum:
            momentum = momentum_in(own)
        v = model(run.task, options, weights)
        before = weights_of(v)
        try:
            trained = train(
                v,
                data,
                options.model_copy(update={"epochs": options.v_epochs or options.epochs}),
                options.personal_rate(order.meta["lr"]),
                run,
                momentum=momentum,
                after_backward=pull_towards(order.tensors, options.lam),
            )
        except FloatingPointError:  # a refused reply would reveal this, so v just stays as it was
            return State(before, {"diverged": diverged + 1})
        if keeps_momentum:
            momentum = trained.momentum
        return State(own_state(v, momentum).tensors, {"diverged": diverged})

    def observe(self, own: State, number: int) -> Json:
        if not own.meta["diverged"]:
            return None
        return {"diverged": own.meta["diverged"]}

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return model(run.task, self.options, weights_or(own, order.tensors))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Ditto(DittoOptions(**task.options))),)


ditto = Recipe(
    "Ditto (Li et al. 2021): FedAvg, and a personal model pulled towards it",
    DittoOptions,
    stages,
    supports_regression=True,
)
