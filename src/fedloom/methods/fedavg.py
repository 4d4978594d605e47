"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, Algorithm 1.

Each round a cohort trains the shared network on its own data; the server takes the mean weighted by samples.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.aggregate import aggregate
from fedloom.federation.method import ClientRun, Method, Recipe, Stage
from fedloom.federation.server_optimizers import Rule, ServerOptimizer, shared
from fedloom.training import TrainingOptions, model, train, weights_of
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task


class FedAvgOptions(TrainingOptions):
    server_optimizer: Rule = Field("mean", description="how the server uses the mean of the replies")
    server_lr: float = Field(0.1, gt=0, description="step of an adaptive server optimiser")
    beta1: float = Field(0.9, ge=0, lt=1, description="its first momentum")
    beta2: float = Field(0.99, ge=0, lt=1, description="its second momentum")
    tau: float = Field(1e-3, gt=0, description="its adaptivity")


@dataclass(frozen=True)
class FedAvg(Method):
    options: FedAvgOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",))}
    relays = True

    def init(self, setup: Setup, previous: State | None) -> State:
        net = model(setup.task, self.options)
        names = [name for name, _ in net.named_parameters()]
        return State(weights_of(net), {"parameters": names})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors, meta = shared(state), {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", tensors, meta) for client in r.cohort()]

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run)
        return Reply(order.client, weights_of(net), len(data), {"loss": trained.loss}), None

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        o = self.options
        optimizer = ServerOptimizer(o.server_optimizer, o.server_lr, o.beta1, o.beta2, o.tau)
        mean = aggregate(shared(state), replies, orders)
        return optimizer.step(state, mean, state.meta["parameters"])

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return model(run.task, self.options, order.tensors)


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", FedAvg(FedAvgOptions(**task.options))),)


fedavg = Recipe("FedAvg (McMahan et al. 2017): one network for all, the weighted mean", FedAvgOptions, stages)
