"""The section `topology`: clusters of clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedloom.config.histograms import (
    NONE,
    USUAL_HISTOGRAMS,
    HistogramRule,
    checked_histograms,
)
from fedloom.config.section import SET_LATER, Section
from fedloom.options import Absent

# Rules that form clusters if the method does not form them itself; a JSON file may do so instead.
CLUSTER_RULES = ("labels", "updates", "speed", "random", "alike", "round")
BY_LABELS = ("labels", "alike")  # these rules need the label counts that clients report


class TopologyConfig(Section):
    """Clusters of clients: how they are formed, who aggregates, and who takes over."""

    clusters: Annotated[str | None, Absent(None)] = Field(
        None,
        description="labels, updates, speed, random, alike, round, or a JSON file of client ids "
        "(the method's choice, or round)",
    )
    histograms: Annotated[str, Absent(USUAL_HISTOGRAMS)] = Field(
        USUAL_HISTOGRAMS,
        description="how clients report their label counts, if clusters need them: exact, "
        "laplace:E, none",
    )
    cluster_size: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=1,
        description="most clients in a cluster, Q (as many as make the clusters equal)",
    )
    h_max: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description="most simulated seconds that a cluster's round may take, H^max (no limit)",
    )
    recluster: Annotated[int, Absent(10)] = Field(
        10,
        ge=1,
        description="rounds between two clusterings, R",
    )
    aggregator: Annotated[Literal["delay", "random", "lowest"], Absent("lowest")] = Field(
        "delay",
        description="who aggregates: the member with the shortest round, a random one, or the one "
        "with the lowest number",
    )
    heartbeat: Annotated[float, Absent(10.0)] = Field(
        10.0,
        gt=0,
        description="simulated seconds between two heartbeats of an aggregator",
    )
    misses: Annotated[int, Absent(2)] = Field(
        2,
        ge=1,
        description="missed heartbeats after which another member takes over",
    )
    phases: Annotated[Literal["serial", "parallel"], Absent("serial")] = Field(
        "serial",
        description="serial: a device trains and then searches; parallel: it does both at once "
        "(Eq. 10)",
    )
    relay: Annotated[Literal["server"] | None, Absent(None)] = Field(
        None,
        description="server: a federation's server does the aggregators' work",
    )
    assigned: Annotated[list[list[int]] | None, Absent(None)] = Field(
        None,
        description=f"the clusters of that file; {SET_LATER}",
    )

    @field_validator("clusters")
    @classmethod
    def _rule_or_file(cls, value: str | None) -> str | None:
        if value is None or value in CLUSTER_RULES or is_cluster_file(value):
            return value
        raise ValueError(f"one of {', '.join(CLUSTER_RULES)}, or a .json file of client ids")

    @field_validator("histograms", mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> str:
        return checked_histograms(value)

    @property
    def histogram_rule(self) -> HistogramRule | None:
        """How clients report label counts before the first round; None: they report none."""
        if self.clusters not in BY_LABELS or self.histograms == NONE:
            return None
        return HistogramRule.parse(self.histograms)


def is_cluster_file(clusters: str) -> bool:
    return clusters.endswith(".json") or "/" in clusters
