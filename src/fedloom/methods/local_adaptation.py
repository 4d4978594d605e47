"""Local adaptation: FedAvg, then every client fine-tunes the shared network on its own data.

It is the simplest personalisation, and hard to beat: Yu, Bagdasaryan, Shmatikov, "Salvaging
Federated Learning by Local Adaptation", 2020. Fine-tuning is charged to the same budget: it has the
last `adapt_share` of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.personal import FineTuned
from fedloom.learning.private_state import weights_or
from fedloom.learning.training import model
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.model import Model
from fedloom.types import Order, Reply, Round, State, Task


class LocalAdaptationOptions(FedAvgOptions):
    adapt_share: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="share of the budget in which every client fine-tunes",
    )
    adapt_lr: float | None = Field(
        None,
        gt=0,
        description="learning rate of fine-tuning; by default a tenth of lr",
    )


@dataclass(frozen=True)
class Adapt(FineTuned):
    """The second stage: fine-tuning of the shared network."""

    options: LocalAdaptationOptions

    def rate(self, r: Round) -> float:
        if self.options.adapt_lr is None:
            return self.options.lr / 10
        return self.options.adapt_lr

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return model(run.task, self.options, weights_or(own, order.tensors))

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        cost = SampleCost.of(model(task, self.options), task, self.options)
        return cost.of_training(samples_of(reply), self.options)


def stages(task: Task) -> tuple[Stage, ...]:
    options = LocalAdaptationOptions(**task.options)
    train_shared = Stage("train", FedAvg(options), 1 - options.adapt_share)
    return train_shared, Stage("adapt", Adapt(options))


local_adaptation = Recipe(
    "Local adaptation (Yu et al. 2020): FedAvg, then fine-tuning at every client",
    LocalAdaptationOptions,
    stages,
    supports_regression=True,
    has_macs_formula=True,
)
