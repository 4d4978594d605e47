"""The options of methods that cluster their clients without being asked to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fedloom.config.histograms import NONE, USUAL_HISTOGRAMS, checked_histograms
from fedloom.federation.protocol.method import Hierarchy
from fedloom.learning.training import IterationOptions


class ClusterOptions(IterationOptions):
    """A round has λ₂ means inside a cluster, each after λ₁ local iterations, then one overall."""

    lambda2: int = Field(2, ge=1, description="means inside a cluster per mean of the server")
    cluster_size: int | None = Field(
        None,
        ge=1,
        description="clients per cluster (by default a third of the active ones, at least 2)",
    )
    recluster: int = Field(10, ge=1, description="rounds after which clients are clustered again")
    aggregator: Literal["delay", "random", "lowest"] = Field(
        "delay",
        description="which member aggregates: the one with the shortest round, a random one, "
        "the lowest id",
    )
    histograms: str = Field(
        USUAL_HISTOGRAMS,
        description="what clients reveal about their labels: exact, laplace:EPSILON or none",
    )
    h_max: float | None = Field(
        None,
        gt=0,
        description="simulated seconds that a cluster's round may take (by default any number)",
    )

    @field_validator("histograms", mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> str:
        return checked_histograms(value)

    @property
    def usual_clusters(self) -> str:
        """How clients are clustered: by labels or, if clients do not reveal them, by updates."""
        if self.histograms == NONE:
            return "updates"
        return "labels"

    def hierarchy(self, clusters: str, *, is_chosen: bool = False) -> Hierarchy:
        """Returns the clusters that a method with these options works in."""
        return Hierarchy(
            clusters=clusters,
            lambda1=self.lambda1,
            lambda2=self.lambda2,
            settings={
                "cluster_size": self.cluster_size,
                "recluster": self.recluster,
                "aggregator": self.aggregator,
                "histograms": self.histograms,
                "h_max": self.h_max,
            },
            is_chosen=is_chosen,
        )
