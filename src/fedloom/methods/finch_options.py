"""The options of FINCH and of its variants."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from fedloom.config.histograms import NONE
from fedloom.reading import parse_number
from fedloom.stages.group_options import ClusteredGroupOptions
from fedloom.stages.groups import BY_UPDATES

FLAT = "none"  # a value of `clustering`: no clusters, every client talks to the server
BY_LABELS = "labels"


class FinchOptions(ClusteredGroupOptions):
    """Options of FINCH: which clients work together, and in which parts of the space."""

    clustering: Literal["none", "labels", "updates", "speed", "random", "alike"] | None = Field(
        None,
        validate_default=True,
        description="how clients are clustered (FINCH's --clusters; none: no clusters); by "
        "default labels, or updates if histograms=none",
    )
    spaces: Literal["same", "different"] = Field(
        "different",
        description="one sub-space for all clusters, or one for each",
    )
    ops_per_edge: int = Field(2, ge=1, description="operations of every edge in a sub-space")
    flops_max: float | None = Field(
        None,
        gt=0,
        description="MACs that all operations of a sub-space may have: 30M (by default any number)",
    )
    resample: int = Field(1, ge=1, description="rounds after which new sub-spaces are drawn")
    allocation: Literal["alg3", "random", "reverse"] = Field(
        "alg3",
        description="which cluster gets which sub-space: by Algorithm 3, at random, or Algorithm "
        "3 reversed",
    )
    weigh: float = Field(0.5, ge=0, le=1, description="ε of Eq. 12: bandwidth against MACs")
    search: Literal["gradient", "random"] = Field(
        "gradient",
        description="how the group is searched; random: a random group, as a control",
    )

    @field_validator("clustering")
    @classmethod
    def _has_labels(cls, clustering: str | None, info: ValidationInfo) -> str | None:
        if clustering in (BY_LABELS, "alike") and info.data.get("histograms") == NONE:
            allowed = "updates, speed, random or none"
            raise ValueError(f"{allowed}: with histograms=none clients do not reveal their labels")
        if clustering == FLAT and info.data.get("h_max") is not None:
            raise ValueError("labels or updates with h_max: it is a limit of clusters")
        if info.data.get("pretrain") != 0:
            return clustering
        if clustering == BY_UPDATES:
            raise ValueError("another one with pretrain=0: the updates are those of pretraining")
        if clustering is None and info.data.get("histograms") == NONE:
            raise ValueError("speed, random or none with histograms=none and pretrain=0")
        return clustering

    @field_validator("flops_max", mode="before")
    @classmethod
    def _amount(cls, value: object) -> object:
        """`30M` is 30,000,000."""
        if isinstance(value, str):
            return parse_number(value) or value
        return value

    @property
    def clusters(self) -> str:
        return self.clustering or self.usual_clusters
