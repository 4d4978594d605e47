"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020, Algorithm 1.

The shared w is trained to be good *after* a step at the client: with w̃ = w − α∇f(w, D),
w ← w − β(I − α∇²f(w, D″))∇f(w̃, D′), D, D′ and D″ being batches drawn apart. `variant = "fo"` leaves the Hessian out;
"hf" takes its product with g = ∇f(w̃, D′) from two gradients, (∇f(w + δg, D″) − ∇f(w − δg, D″)) / 2δ. The server
averages as FedAvg does.

What is reported is each client's network after the steps that w was trained for: a last round, beyond the budget and
booked, in which everybody takes `adapt_epochs` epochs of plain SGD with rate α and keeps the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.personal import Once
from fedloom.learning.private_state import own_state, weights_in
from fedloom.learning.training import converging, model, sgd, train, training_batches, training_mode, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.model import Model
from fedloom.types import Fields, Order, Reply, Round, State, Task

Gradient = tuple[torch.Tensor, ...]


class PerFedAvgOptions(FedAvgOptions):
    variant: Literal["fo", "hf"] = Field("fo", description="first-order, or Hessian-free")
    alpha: float = Field(0.01, gt=0, description="α: rate of the steps at home, for hf small; lr is the paper's β")
    delta: float = Field(1e-3, gt=0, description="δ of the Hessian-free difference")
    adapt_epochs: int = Field(1, ge=1, description="epochs of steps at home, at the end")


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    options: PerFedAvgOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        o, net = self.options, self.network(order, data, own, run).to(run.device)
        optimizer, total, seen = sgd(net, o, order.meta["lr"], {}), 0.0, 0
        training_mode(net, o.bn)
        draws = (run.with_stream("inner"), run, run.with_stream("hessian"))
        for inner, outer, third in zip(*(training_batches(data, o, draw) for draw in draws), strict=True):
            loss = set_meta_gradient(net, inner, outer, third, o)
            nn.utils.clip_grad_norm_(net.parameters(), o.clip)
            optimizer.step()
            total, seen = total + loss * len(outer), seen + len(outer)
        loss = converging(total / max(seen, 1), net.state_dict())
        return Reply(order.client, weights_of(net), len(data), {"loss": loss}), None


def set_meta_gradient(net: nn.Module, inner: Samples, outer: Samples, third: Samples, o: PerFedAvgOptions) -> float:
    """Leaves (I − α∇²f(w, D″))∇f(w̃, D′), or its first-order part, in `.grad`; returns f(w̃, D′)."""
    parameters = list(net.parameters())
    step, _ = gradient(net, inner)
    with moved(parameters, step, -o.alpha):
        found, loss = gradient(net, outer)
    if o.variant == "hf":
        with moved(parameters, found, o.delta):
            ahead, _ = gradient(net, third)
        with moved(parameters, found, -o.delta):
            behind, _ = gradient(net, third)
        bends = [(a - b) / (2 * o.delta) for a, b in zip(ahead, behind, strict=True)]
        found = tuple(g - o.alpha * bend for g, bend in zip(found, bends, strict=True))
    for parameter, value in zip(parameters, found, strict=True):
        parameter.grad = value
    return loss


def gradient(net: nn.Module, batch: Samples) -> tuple[Gradient, float]:
    loss = functional.cross_entropy(net(batch.x), batch.y)
    return torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True), loss.item()


@contextmanager
def moved(parameters: Sequence[nn.Parameter], direction: Gradient, by: float) -> Iterator[None]:
    """Inside, the weights stand elsewhere; afterwards they are back, to the bit."""
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter, along in zip(parameters, direction, strict=True):
            parameter.add_(along, alpha=by)
    yield
    with torch.no_grad():
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)


@dataclass(frozen=True)
class StepsAtHome(Once):
    """w_k = w − α∇f_k(w), a few times."""

    options: PerFedAvgOptions

    def rate(self, r: Round) -> float:
        return self.options.alpha

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        plain = {"epochs": self.options.adapt_epochs, "momentum": 0.0, "weight_decay": 0.0}
        net = self.network(order, data, None, run)
        train(net, data, self.options.model_copy(update=plain), order.meta["lr"], run)
        return own_state(net, {})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return model(run.task, self.options, order.tensors if own is None else weights_in(own))


def stages(task: Task) -> tuple[Stage, ...]:
    options = PerFedAvgOptions(**task.options)
    return (Stage("train", PerFedAvg(options)), Stage("adapt", StepsAtHome(options), share=None))


perfedavg = Recipe(
    "Per-FedAvg (Fallah et al. 2020): shared weights that are good after a step at home",
    PerFedAvgOptions,
    stages,
    short="variant",
)
