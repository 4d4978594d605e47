"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.

In each round, a cohort of clients trains the shared network on its own data, and the server takes
the mean of their weights, weighted by their samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.learning.averaging import Averaged, AveragedOptions
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.training import NetworkOptions, model
from fedloom.types import Meta, Order, Reply, Setup, State, Task, Tensors


class FedAvgOptions(AveragedOptions, NetworkOptions):
    """Federated averaging of a fixed network."""


@dataclass(frozen=True)
class FedAvg(Averaged):
    options: FedAvgOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        return model(task, self.options, weights)

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begin(setup.task, {})

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        cost = SampleCost.of(self.build(task, order.meta), task, self.options)
        return cost.of_averaged_training(samples_of(reply), self.options)


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", FedAvg(FedAvgOptions(**task.options))),)


fedavg = Recipe(
    "FedAvg (McMahan et al. 2017): one network for all, the weighted mean",
    FedAvgOptions,
    stages,
    supports_regression=True,
    has_macs_formula=True,
)
