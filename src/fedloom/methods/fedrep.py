"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for
Personalized Federated Learning", ICML 2021, Algorithm 1.

All clients share the body φ, and each has its own head h_k, the last linear layer. In a round a
client first trains its head with the received body fixed, then the body with its head fixed. The
server averages the bodies. A last round fits every head to the final body, also for clients that
never trained before. It is beyond the budget, but its costs are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.averaging import received_statistics
from fedloom.learning.personal import Once
from fedloom.learning.training import Trained, model, train, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.head import head_of
from fedloom.nets.model import Model
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task, Tensors


class FedRepOptions(FedAvgOptions):
    epochs: int = Field(1, ge=1, description="local epochs of the body per round")
    head_epochs: int = Field(
        5, ge=1, description="local epochs of the head per round, before the body's"
    )


@dataclass(frozen=True)
class FedRep(FedAvg):
    options: FedRepOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}
    shares = False

    def init(self, setup: Setup, previous: State | None) -> State:
        state = self.begin(setup.task, {})
        body = parts(model(setup.task, self.options)).body
        parameters = [name for name in state.meta["parameters"] if name in body]
        return State(body, {**state.meta, "parameters": parameters})

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Trains the head with the received body fixed, then the body with that head fixed."""
        net = self.network(order, data, own, run)
        fit_head(net, data, self.options, order.meta["lr"], run)
        with only(net, head=False), received_statistics(net, data, self.options, run):
            trained = train(net, data, self.options, order.meta["lr"], run)
        weights = parts(net)
        reply = Reply(order.client, weights.body, len(data), {"loss": trained.loss})
        return reply, State(weights.head)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return assembled(self.options, order.tensors, own, run)

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        return head_names(net)


@dataclass(frozen=True)
class Heads(Once):
    """The last round. A client keeps only its head: it is sent the body for evaluation."""

    options: FedRepOptions

    shares = False
    seals = ("*",)

    def rate(self, r: Round) -> float:
        # The same as in fine-tuning, because the schedule of the rounds before has ended.
        return self.options.lr / 10

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        net = self.network(order, data, own, run)
        fit_head(net, data, self.options, order.meta["lr"], run)
        return State(parts(net).head)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return assembled(self.options, order.tensors, own, run)

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        return head_names(net)


@dataclass(frozen=True)
class NetworkParts:
    """The weights of the body φ and of the head h_k."""

    body: dict[str, torch.Tensor]
    head: dict[str, torch.Tensor]


def parts(net: Model) -> NetworkParts:
    prefix = f"{head_of(net)}."
    weights = NetworkParts({}, {})
    for name, tensor in weights_of(net).items():
        if name.startswith(prefix):
            weights.head[name] = tensor
        else:
            weights.body[name] = tensor
    return weights


def head_names(net: nn.Module) -> frozenset[str]:
    assert isinstance(net, Model)  # it comes from `assembled`
    prefix = f"{head_of(net)}."
    return frozenset(name for name in net.state_dict() if name.startswith(prefix))


@contextmanager
def only(net: Model, *, head: bool) -> Iterator[None]:
    """Inside this context, only the head is trained, or everything but the head."""
    prefix = f"{head_of(net)}."
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith(prefix) == head)
    yield
    net.requires_grad_(True)


def fit_head(
    net: Model,
    data: Samples,
    options: FedRepOptions,
    lr: float,
    run: ClientRun,
) -> Trained:
    head_options = options.model_copy(update={"epochs": options.head_epochs})
    with only(net, head=True):
        return train(net, data, head_options, lr, run)


def assembled(options: FedRepOptions, body: Tensors, own: State | None, run: ClientRun) -> Model:
    """Returns a body with a client's head. The first head of a client is the seed's."""
    net = model(run.task, options)
    weights = {**weights_of(net), **body}
    if own is not None:
        weights |= own.tensors
    net.load_state_dict(weights)
    return net


def stages(task: Task) -> tuple[Stage, ...]:
    options = FedRepOptions(**task.options)
    heads = Stage("heads", Heads(options), share=None, keeps_own=True)
    return Stage("train", FedRep(options)), heads


fedrep = Recipe(
    "FedRep (Collins et al. 2021): a shared body, a private head",
    FedRepOptions,
    stages,
    supports_regression=True,
)
