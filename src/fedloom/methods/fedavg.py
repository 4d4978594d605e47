"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.

Each round a cohort trains the shared network on its own data; the server takes the mean weighted by
samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.learning.averaging import Averaged, AveragedOptions
from fedloom.learning.training import NetworkOptions, model
from fedloom.types import Meta, Setup, State, Task, Tensors


class FedAvgOptions(AveragedOptions, NetworkOptions):
    """Federated averaging of a fixed network."""


@dataclass(frozen=True)
class FedAvg(Averaged):
    options: FedAvgOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        return model(task, self.options, weights)

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begin(setup.task, {})


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", FedAvg(FedAvgOptions(**task.options))),)


fedavg = Recipe(
    "FedAvg (McMahan et al. 2017): one network for all, the weighted mean",
    FedAvgOptions,
    stages,
    foretells_numbers=True,
)
