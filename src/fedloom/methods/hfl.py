"""HFL: FedAvg of a fixed network in a hierarchy of clients, cluster aggregators and server.

Liu, Zhang, Song, Letaief, "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020, in the
form in which FINCH compares itself with it: clusters by labels (FINCH's Algorithm 2), λ₁ local
iterations before each mean inside a cluster, λ₂ such means before the server's. The momentum of the
clients' SGD begins anew with every hop: a client keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator
from torch import nn

from fedloom.config.histograms import NONE, USUAL_HISTOGRAMS, checked_histograms
from fedloom.federation.protocol.method import Hierarchy, Recipe, Stage
from fedloom.learning.averaging import Averaged, AveragingOptions
from fedloom.learning.training import IterationOptions, NetworkOptions, model
from fedloom.types import Meta, Order, Setup, State, Task, Tensors


class HflOptions(IterationOptions, AveragingOptions, NetworkOptions):
    """Federated averaging of a fixed network, in clusters."""

    lambda2: int = Field(2, ge=1, description="means inside a cluster before each of the server")
    cluster_size: int | None = Field(
        None,
        ge=1,
        description="clients a cluster (by default a third of the active ones, at least 2)",
    )
    recluster: int = Field(10, ge=1, description="rounds after which clusters are made anew")
    aggregator: Literal["delay", "random", "lowest"] = Field(
        "delay",
        description="which member aggregates: the one with the shortest round, a random one, "
        "the lowest id",
    )
    histograms: str = Field(
        USUAL_HISTOGRAMS,
        description="what clients say of their labels: exact, laplace:EPSILON or none",
    )
    h_max: float | None = Field(
        None,
        gt=0,
        description="simulated seconds that a cluster's round may take (any)",
    )

    @field_validator("histograms", mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> str:
        return checked_histograms(value)


@dataclass(frozen=True)
class Hfl(Averaged):
    options: HflOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        return model(task, self.options, weights)

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begin(setup.task, {})

    def samples_seen(self, order: Order, samples: int) -> int:
        return self.options.samples_seen(samples)


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Hfl(HflOptions(**task.options))),)


def hierarchy(chosen: Meta) -> Hierarchy:
    options = HflOptions(**chosen)
    clusters = "labels"
    if options.histograms == NONE:
        clusters = "updates"
    return Hierarchy(
        clusters=clusters,
        lambda1=options.lambda1,
        lambda2=options.lambda2,
        settings={
            "cluster_size": options.cluster_size,
            "recluster": options.recluster,
            "aggregator": options.aggregator,
            "histograms": options.histograms,
            "h_max": options.h_max,
        },
    )


hfl = Recipe(
    "HFL (Liu et al. 2020): FedAvg of a fixed network in clusters of balanced labels",
    HflOptions,
    stages,
    hierarchy=hierarchy,
)
