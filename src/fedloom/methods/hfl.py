"""HFL: FedAvg of a fixed network in a hierarchy of clients, cluster aggregators and server.

Liu, Zhang, Song, Letaief, "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020, in the
form in which FINCH compares itself with it: clusters by labels (FINCH's Algorithm 2), λ₁ local
iterations before each mean inside a cluster, and λ₂ such means before the server's. A client keeps
nothing, so the momentum of its SGD starts from zero in every hop.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedloom.federation.protocol.method import Hierarchy, Recipe, Stage
from fedloom.learning.averaging import Averaged, AveragingOptions
from fedloom.learning.clusters import ClusterOptions
from fedloom.learning.training import NetworkOptions, model
from fedloom.types import Meta, Order, Setup, State, Task, Tensors


class HflOptions(ClusterOptions, AveragingOptions, NetworkOptions):
    """Options of federated averaging of a fixed network, in clusters."""


@dataclass(frozen=True)
class Hfl(Averaged):
    options: HflOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        return model(task, self.options, weights)

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begin(setup.task, {})

    def samples_seen(self, order: Order, samples: int) -> int:
        return self.options.work_of(samples)


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Hfl(HflOptions(**task.options))),)


def hierarchy(chosen: Meta) -> Hierarchy:
    options = HflOptions(**chosen)
    return options.hierarchy(options.usual_clusters)


hfl = Recipe(
    "HFL (Liu et al. 2020): FedAvg of a fixed network in clusters of balanced labels",
    HflOptions,
    stages,
    hierarchy=hierarchy,
)
