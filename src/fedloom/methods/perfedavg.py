"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical
Guarantees: A Model-Agnostic Meta-Learning Approach", NeurIPS 2020, Algorithm 1.

The shared w is trained to be good *after* a local step at the client: with w̃ = w − α∇f(w, D), the
update is w ← w − β(I − α∇²f(w, D″))∇f(w̃, D′), where D, D′ and D″ are batches drawn separately.
`variant = "fo"` leaves the Hessian out; "hf" computes its product with g = ∇f(w̃, D′) from two
gradients, (∇f(w + δg, D″) − ∇f(w − δg, D″)) / 2δ. The server averages as in FedAvg.

The reported models are the clients' networks after the local steps that w was trained for. In a
last round, every client takes `adapt_epochs` epochs of plain SGD with rate α and keeps the result.
This round is beyond the budget, but its costs are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.averaging import received_statistics
from fedloom.learning.loss import training_loss
from fedloom.learning.personal import Once
from fedloom.learning.private_state import own_state, weights_or
from fedloom.learning.training import (
    converging,
    model,
    sgd,
    train,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.model import Model
from fedloom.spaces.paths import training_scores
from fedloom.types import Fields, Order, Reply, Round, State, Task

Gradient = tuple[torch.Tensor, ...]


class PerFedAvgOptions(FedAvgOptions):
    variant: Literal["fo", "hf"] = Field("fo", description="first-order, or Hessian-free")
    alpha: float = Field(
        0.01,
        gt=0,
        description="α: rate of the local steps, which must be small for hf; lr is the paper's β",
    )
    delta: float = Field(1e-3, gt=0, description="δ of the Hessian-free difference")
    adapt_epochs: int = Field(1, ge=1, description="epochs of local steps at the end")


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    options: PerFedAvgOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Updates w ← w − β(I − α∇²f(w, D″))∇f(w̃, D′) for every batch."""
        options = self.options
        net = self.network(order, data, own, run).to(run.device)
        optimizer = sgd(net, options, order.meta["lr"])
        training_mode(net, options.bn)
        inner_batches = training_batches(data, options, run.with_stream("inner"))
        outer_batches = training_batches(data, options, run)
        third_batches = training_batches(data, options, run.with_stream("hessian"))
        total = 0.0
        seen = 0
        with received_statistics(net, data, options, run):
            for inner, outer, third in zip(
                inner_batches, outer_batches, third_batches, strict=True
            ):
                loss = set_meta_gradient(net, inner, outer, third, options)
                nn.utils.clip_grad_norm_(net.parameters(), options.clip)
                optimizer.step()
                total += loss * len(outer)
                seen += len(outer)
        loss = converging(total / max(seen, 1), net.state_dict())
        return Reply(order.client, weights_of(net), len(data), {"loss": loss}), None


def set_meta_gradient(
    net: nn.Module,
    inner: Samples,
    outer: Samples,
    third: Samples,
    options: PerFedAvgOptions,
) -> float:
    """Sets `.grad` to (I − α∇²f(w, D″))∇f(w̃, D′), or to its first-order part, returns f(w̃, D′).

    `inner` is D, `outer` is D′ and `third` is D″.
    """
    parameters = list(net.parameters())
    step, _ = gradient(net, inner)
    with moved(parameters, step, -options.alpha):  # w̃ = w − α∇f(w, D)
        meta_gradient, loss = gradient(net, outer)
    if options.variant == "hf":
        meta_gradient = hessian_free(net, meta_gradient, third, options)
    for parameter, value in zip(parameters, meta_gradient, strict=True):
        parameter.grad = value
    return loss


def hessian_free(
    net: nn.Module,
    outer_gradient: Gradient,
    third: Samples,
    options: PerFedAvgOptions,
) -> Gradient:
    """Returns (I − α∇²f(w, D″))g, where ∇²f·g is (∇f(w + δg, D″) − ∇f(w − δg, D″)) / 2δ."""
    parameters = list(net.parameters())
    with moved(parameters, outer_gradient, options.delta):
        ahead, _ = gradient(net, third)
    with moved(parameters, outer_gradient, -options.delta):
        behind, _ = gradient(net, third)
    corrected = []
    for g, a, b in zip(outer_gradient, ahead, behind, strict=True):
        hessian_product = (a - b) / (2 * options.delta)
        corrected.append(g - options.alpha * hessian_product)
    return tuple(corrected)


def gradient(net: nn.Module, batch: Samples) -> tuple[Gradient, float]:
    loss = training_loss(training_scores(net, batch.x), batch)
    return torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True), loss.item()


@contextmanager
def moved(parameters: Sequence[nn.Parameter], direction: Gradient, by: float) -> Iterator[None]:
    """Inside this context, the weights are moved by `by` · `direction`. Then they are restored."""
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter, along in zip(parameters, direction, strict=True):
            parameter.add_(along, alpha=by)
    yield
    with torch.no_grad():
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)


@dataclass(frozen=True)
class LocalSteps(Once):
    """Every client takes a few steps w_k = w − α∇f_k(w)."""

    options: PerFedAvgOptions

    def rate(self, r: Round) -> float:
        return self.options.alpha

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        plain = {
            "epochs": self.options.adapt_epochs,
            "momentum": 0.0,
            "weight_decay": 0.0,
        }
        options = self.options.model_copy(update=plain)
        net = self.network(order, data, None, run)
        train(net, data, options, order.meta["lr"], run)
        return own_state(net, {})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return model(run.task, self.options, weights_or(own, order.tensors))


def stages(task: Task) -> tuple[Stage, ...]:
    options = PerFedAvgOptions(**task.options)
    meta_train = Stage("train", PerFedAvg(options))
    return meta_train, Stage("adapt", LocalSteps(options), share=None)


perfedavg = Recipe(
    "Per-FedAvg (Fallah et al. 2020): shared weights that a few local steps personalise",
    PerFedAvgOptions,
    stages,
    short="variant",
    supports_regression=True,
)
