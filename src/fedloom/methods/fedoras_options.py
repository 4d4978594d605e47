"""What FedorAS lets you set. Where an option is absent, the space says what its paper has."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from fedloom.cost.limits import parse_number
from fedloom.errors import FedloomError
from fedloom.learning.averaging import ServerOptions
from fedloom.learning.training import SgdOptions
from fedloom.searchers.path_scores import Statistics
from fedloom.searchers.paths import Filling
from fedloom.searchers.tier_search import SearchSettings
from fedloom.spaces import family_in
from fedloom.spaces.options import AUTO, SpaceChoice

KEPT_BACK = 0.1  # of a client's samples, to score paths on


class FedorASOptions(SgdOptions, ServerOptions, SpaceChoice):
    """FedorAS: a supernet for tiers of devices."""

    space: str = Field(
        AUTO,
        description="the chain that is searched: a name (`fedloom list spaces`) or FILE.toml; "
        "auto: by the kind and size of the data",
    )
    comm: str = Field(
        "0.5",
        description="what a client may be sent: a share of the supernet's parameters, or a number "
        "of them (11.4M); the fixed part counts",
    )
    subspace: Filling = Field(
        "stop",
        description="how a part is filled: stop at the first operation that does not fit, skip "
        "it, or drop operations from the whole",
    )
    aggregate: Literal["opa", "fedavg"] = Field(
        "opa",
        description="average an operation by the samples through it, or everybody's copy by "
        "samples",
    )
    dynamic: float = Field(
        1.0,
        gt=0,
        le=1,
        description="a client's limit is drawn anew for every batch, from this share of its "
        "tier's to all of it",
    )

    epochs: int = Field(5, ge=1, description="local epochs a round, while the supernet trains")
    lr: float = Field(0.1, gt=0, description="learning rate while the supernet trains")

    search: Literal["nsga2", "random"] = Field(
        "nsga2",
        description="how a tier's path is found; random: the control, a greedy path",
    )
    score: Literal["central", "federated"] = Field(
        "federated",
        description="who scores paths: the server on its own set, or clients on what they keep "
        "back (by default central where there is data.server_share)",
    )
    score_clients: int | None = Field(
        None,
        ge=1,
        description="score=federated: so many clients score a generation (all of a round)",
    )
    score_bn: Statistics = Field(
        "running",
        description="statistics of BN while a path is scored: the merged ones, each batch's, or "
        "those of the scoring samples",
    )
    models: int = Field(100, ge=1, description="paths that are scored for each tier")
    pool: int = Field(32, ge=2, description="paths that survive a generation of a tier")
    sample: int = Field(16, ge=1, description="new paths a generation of a tier")
    mutation: float = Field(0.1, ge=0, le=1, description="probability that a gene is drawn anew")
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="validation accuracy at which a tier's search ends",
    )
    bracket: Literal["upper", "both"] = Field(
        "upper",
        description="both: a tier's path must also be above the limit of the tier below",
    )
    search_share: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="score=federated: share of the budget for the search",
    )
    supernet_share: float = Field(
        5 / 6,
        gt=0,
        lt=1,
        description="share of what the search leaves for training the supernet",
    )
    start: Literal["supernet", "random"] = Field(
        "supernet",
        description="weights that a tier's network begins with",
    )
    tune_epochs: int = Field(1, ge=1, description="local epochs a round of a tier's network")
    tune_batch: int = Field(32, ge=1, description="samples a step of it")
    tune_lr: float = Field(0.01, gt=0, description="learning rate of it")

    @field_validator("space")
    @classmethod
    def _is_chain(cls, name: str) -> str:
        if name != AUTO and not family_in(name).has_own_size:
            raise ValueError(
                "a chain of layers: FILE.toml, or one of `fedloom list spaces` that is one"
            )
        return name

    @field_validator("comm", mode="before")
    @classmethod
    def _amount(cls, value: object) -> str:
        text = str(value)
        number = parse_number(re.sub(r"^\.", "0.", text))
        if number is None or number <= 0:
            raise ValueError("a share up to 1, or a number of parameters such as 11.4M")
        return text

    @property
    def search_settings(self) -> SearchSettings:
        return SearchSettings(
            models=self.models,
            pool=self.pool,
            sample=self.sample,
            mutation=self.mutation,
            threshold=self.threshold,
        )

    @property
    def tuning(self) -> SgdOptions:
        """How a tier's network is trained in stage 3."""
        own = {name: getattr(self, name) for name in SgdOptions.model_fields}
        own.update(epochs=self.tune_epochs, batch=self.tune_batch, lr=self.tune_lr)
        return SgdOptions(**own)

    @classmethod
    def for_server_data(cls) -> dict[str, Any]:
        return {"score": "central"}

    def check_for_federation(self) -> None:
        if self.score != "federated":
            raise FedloomError(
                "paths must be scored by the sites of a federation, whose samples stay there",
                f"got score={self.score}",
                "say --score federated, or leave it out",
            )

    @property
    def train_share(self) -> float:
        """Of a client's samples; the rest is kept back, to score paths on."""
        if self.score == "central":
            return 1.0
        return 1.0 - KEPT_BACK

    @property
    def supernet_part(self) -> float:
        """Of the whole budget, for stage 1."""
        if self.score == "central":
            return self.supernet_share
        return (1 - self.search_share) * self.supernet_share

    @property
    def search_part(self) -> float | None:
        """Of what stage 1 leaves, for stage 2; None: scoring on the server asks nobody."""
        if self.score == "central":
            return None
        return self.search_share / (1 - self.supernet_part)

    def comm_budget(self, supernet_params: float) -> float:
        """How many parameters a client may be sent."""
        number = parse_number(re.sub(r"^\.", "0.", self.comm))
        assert number is not None
        if number <= 1:
            return number * supernet_params
        return number
