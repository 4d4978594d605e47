"""The options of searches for a group of cells, which is then stacked and trained."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator

from fedloom.learning.averaging import AveragingOptions
from fedloom.learning.clusters import ClusterOptions
from fedloom.learning.training import (
    BN_POLICIES,
    RECEIVED,
    BnPolicy,
    IterationOptions,
    least_samples,
)
from fedloom.searchers.local_search import SearchingOptions
from fedloom.spaces import GROUP, chosen_space, family_in
from fedloom.spaces.options import MOST_CHANNELS, SpaceChoice
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.space import Size, Space
from fedloom.types import Task


class GroupOptions(IterationOptions, AveragingOptions, SpaceChoice):
    """Options of a search for a group of cells, which is then stacked and trained."""

    space: str = Field(GROUP, description="which space is searched: a group of cells")
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of the first cell")
    stack: int = Field(5, ge=1, le=100, description="how often the final network repeats the group")
    batch: int = Field(50, ge=1, description="samples per step")
    weight_decay: float = Field(4e-5, ge=0, description="L2 decay of the weights")
    bn: BnPolicy = Field(RECEIVED, description=BN_POLICIES)
    lambda2: int = Field(
        2,
        ge=1,
        description="how often a round repeats λ₁ iterations; in clusters a mean follows each time",
    )
    train_share: float = Field(
        0.5,
        ge=0.05,
        le=0.95,
        description="share of a client's data for w; the rest decides on the architecture",
    )
    pretrain: int = Field(
        100,
        ge=0,
        description="local iterations on the whole supernet at first, without clusters; at most "
        "a tenth of the budget (0: none)",
    )
    search_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of the budget after pretraining for the search; the rest trains the "
        "final network",
    )
    score_clients: int = Field(
        5,
        ge=1,
        description="clients that score networks if the server has no samples",
    )

    @field_validator("space")
    @classmethod
    def _repeats_cells(cls, name: str) -> str:
        if not family_in(name).searches_usual_cells:
            raise ValueError(f"a space whose few cells are repeated, such as {GROUP}")
        return name

    @property
    def least_samples(self) -> int:
        return least_samples(self.train_share)

    @property
    def group_space(self) -> Space:
        return chosen_space(self)

    @property
    def searched_size(self) -> Size:
        return Size(self.group_space.usual.cells, self.channels, self.head)

    @property
    def final_size(self) -> Size:
        return self.searched_size._replace(cells=self.stack * self.group_space.usual.cells)

    def searched(self, task: Task) -> SearchedSpace:
        return SearchedSpace(self.group_space, self.searched_size, self.final_size)

    def with_steps(self, steps: int) -> Self:
        """Returns the same options for an order of so many local iterations."""
        return self.model_copy(update={"lambda1": steps})


class ClusteredGroupOptions(GroupOptions, ClusterOptions, SearchingOptions):
    """Options of a search for a group of cells by α, in clusters of clients."""

    @property
    def clusters(self) -> str:
        """How clients are clustered."""
        return self.usual_clusters
