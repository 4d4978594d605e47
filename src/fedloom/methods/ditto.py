"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1.

The shared w is trained by FedAvg. Beside it every client keeps a personal v and minimises F_k(v) + λ/2·‖v − wᵗ‖²,
wᵗ being the weights it received this round. v starts from the seed, as w does; λ = 0 is local training. v has an
optimiser of its own, and nothing of it leaves the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.private_state import momentum_in, own_state, weights_in
from fedloom.learning.proximal import pull_towards
from fedloom.learning.training import model, train, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Fields, Json, Order, Reply, State, Task


class DittoOptions(FedAvgOptions):
    v_epochs: int | None = Field(None, ge=1, description="local epochs of the personal model; by default epochs")
    v_lr: float | None = Field(None, gt=0, description="learning rate of the personal model; by default lr")
    optimizer_state: Literal["reset", "keep"] = Field("reset", description="of the personal model between rounds")
    lam: float = Field(
        0.1, ge=0, validate_default=True, description="λ: pull of the personal model to the received weights"
    )

    @field_validator("lam")
    @classmethod
    def _converges(cls, lam: float, info: ValidationInfo) -> float:
        rate = info.data.get("v_lr") or info.data.get("lr")
        if rate is not None and rate * lam >= 2:
            raise ValueError(f"below 2 / v_lr = {2 / rate:g}, or every step of the pull would overshoot further")
        return lam


@dataclass(frozen=True)
class Ditto(FedAvg):
    options: DittoOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}
    seals = ("*",)

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        reply, _ = super().client(order, data, None, run)  # it sees nothing of v
        return reply, self._personalised(order, data, own, run)

    def _personalised(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        """v ← v − η(∇F_k(v) + λ(v − wᵗ)), for the client's own number of epochs."""
        o = self.options
        v = model(run.task, o, None if own is None else weights_in(own))
        rate = order.meta["lr"] if o.v_lr is None else order.meta["lr"] * (o.v_lr / o.lr)
        keeps = o.optimizer_state == "keep"
        before, diverged = weights_of(v), 0 if own is None else own.meta["diverged"]
        try:
            trained = train(
                v, data, o.model_copy(update={"epochs": o.v_epochs or o.epochs}), rate, run,
                momentum=momentum_in(own) if keeps else {}, after_backward=pull_towards(order.tensors, o.lam),
            )  # fmt: skip
        except FloatingPointError:  # to refuse the reply would tell of v: v stays as it was
            return State(before, {"diverged": diverged + 1})
        return State(own_state(v, trained.momentum if keeps else {}).tensors, {"diverged": diverged})

    def observe(self, own: State, number: int) -> Json:
        return {"diverged": own.meta["diverged"]} if own.meta["diverged"] else None

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return model(run.task, self.options, order.tensors if own is None else weights_in(own))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Ditto(DittoOptions(**task.options))),)


ditto = Recipe("Ditto (Li et al. 2021): FedAvg, and a personal model pulled to it", DittoOptions, stages)
