"""What FedorAS lets you set. Where an option is absent, the space says what its paper has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedloom.errors import FedloomError
from fedloom.learning.averaging import ServerOptions
from fedloom.learning.training import SgdOptions
from fedloom.reading import parse_number
from fedloom.searchers.path_scores import Statistics
from fedloom.searchers.paths import Filling
from fedloom.searchers.tier_search import SearchSettings
from fedloom.spaces import family_in, full_name, usual_space
from fedloom.spaces.options import AUTO, SpaceChoice
from fedloom.spaces.space import Space

KEPT_BACK = 0.1  # of a client's samples, to score paths on
WORDS_FOR_PATHS = ("search", "random")  # anything else names a run, or a file
TUNE_LR = 0.01  # of a network that has the supernet's weights
MODELS = 100  # paths a tier, where a space's paper does not say


class FedorASOptions(SgdOptions, ServerOptions, SpaceChoice):
    """FedorAS: a supernet for tiers of devices."""

    space: str = Field(
        AUTO,
        description="the chain that is searched: a name (`fedloom list spaces`) or FILE.toml; "
        "auto: by the kind and size of the data",
    )
    comm: str = Field(
        AUTO,
        description="what a client may be sent: a share of the supernet's parameters, or a number "
        "of them (11.4M); the fixed part counts; auto: the space's paper's or half, or everything "
        "where some operation would not fit into half",
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
    score: Literal["central", "federated", "pooled"] = Field(
        "federated",
        description="who scores paths: the server on its own set, clients on what they keep back, "
        "or, in simulations only, the server on what all clients keep back (by default central "
        "where there is data.server_share)",
    )
    score_samples: float | None = Field(
        None,
        gt=0,
        description="score=central or pooled: a share of the scoring samples, or so many (all)",
    )
    score_clients: int | None = Field(
        None,
        ge=1,
        description="score=federated: so many clients score a generation (all of a round)",
    )
    cache: bool = Field(
        False,
        description="score=federated: a client keeps the operations that it was sent, so that "
        "over the whole search it is sent at most one supernet",
    )
    score_bn: Statistics = Field(
        "running",
        description="statistics of BN while a path is scored: the merged ones, each batch's, or "
        "those of the scoring samples",
    )
    models: int | list[int] | None = Field(
        None,
        description="paths that are scored for each tier: one number, or one a tier (by default "
        f"what the space's paper has, else {MODELS})",
    )
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
    paths: str | list[list[str]] = Field(
        "search",
        description="the tiers' networks: search, random (a greedy path each), or those of a "
        "finished run or of FILE.json",
    )
    start: Literal["supernet", "random"] = Field(
        "supernet",
        description="weights that a tier's network begins with; random with other paths than "
        "search: no supernet is trained",
    )
    eligible: Literal["tier", "all"] = Field(
        "tier",
        description="who trains a tier's network: clients of the tier and above, or all",
    )
    tune_top: int = Field(
        1,
        ge=1,
        description="so many of the best paths of each tier are trained, to compare their scores "
        "with what they come to; the tier's network is the best by score",
    )
    tune_epochs: int = Field(1, ge=1, description="local epochs a round of a tier's network")
    tune_batch: int = Field(32, ge=1, description="samples a step of it")
    tune_lr: float | None = Field(
        None,
        gt=0,
        description=f"learning rate of it (by default {TUNE_LR}, and lr where it begins with "
        "fresh weights)",
    )

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
        if text == AUTO:
            return text
        number = parse_number(re.sub(r"^\.", "0.", text))
        if number is None or number <= 0:
            raise ValueError("auto, a share up to 1, or a number of parameters such as 11.4M")
        return text

    @field_validator("models", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        """`2000,500` as well as a list; in a variant, where commas part options, `2000/500`."""
        if isinstance(value, str) and re.search("[,/]", value):
            return value.replace("/", ",").split(",")
        return value

    @field_validator("models")
    @classmethod
    def _positive(cls, value: int | list[int] | None) -> int | list[int] | None:
        if value is None:
            return None
        numbers = value
        if isinstance(numbers, int):
            numbers = [numbers]
        if not numbers or min(numbers) < 1:
            raise ValueError("a number of paths, or one a tier, of at least 1 each")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """An option that would change nothing is refused."""
        if self.score_samples is not None and self.score == "federated":
            raise FedloomError(
                "--score-samples must be given for scores of the server",
                "here clients score (score=federated)",
                "leave it out, or say --score central",
            )
        if self.cache and self.score != "federated":
            raise FedloomError(
                "--cache must be given for scores of clients, who keep operations",
                f"here the server scores (score={self.score})",
                "leave it out, or say --score federated",
            )
        if self.tune_top > 1 and not self.searches:
            raise FedloomError(
                "--tune-top must be given for paths that are searched",
                "here nothing is scored",
                "leave it out, or leave --paths and --search out",
            )
        return self

    @classmethod
    def for_data(
        cls,
        given: Mapping[str, Any],
        kind: str | None,
        shape: tuple[int, ...],
    ) -> dict[str, Any]:
        """What the paper of the space has."""
        name = str(given.get("space", AUTO))
        if name == AUTO:
            if kind is None:
                return {}
            name = usual_space(kind, shape)
        usual = dict(family_in(full_name(name)).usual_options)
        usual.pop("models", None)  # it depends on the number of tiers
        return usual

    @classmethod
    def run_named(cls, given: Mapping[str, Any]) -> str | None:
        paths = given.get("paths")
        if not isinstance(paths, str) or paths in WORDS_FOR_PATHS:
            return None
        return paths

    @property
    def pooled_share(self) -> float | None:
        if self.score != "pooled":
            return None
        return KEPT_BACK

    @property
    def searches(self) -> bool:
        """Whether there is a search to score paths in."""
        return self.paths == "search" and self.search == "nsga2"

    @property
    def trains_supernet(self) -> bool:
        return self.paths == "search" or self.start == "supernet"

    @property
    def asks_clients(self) -> bool:
        """Whether the search has rounds of its own."""
        return self.searches and self.score == "federated"

    def models_of(self, space: Space, tiers: int) -> tuple[int, ...]:
        """How many paths are scored, by tier."""
        models = self.models
        if models is None:
            usual = space.usual_options.get("models", MODELS)
            models = usual
            if isinstance(usual, list) and len(usual) != tiers:
                models = max(usual)
        if isinstance(models, int):
            return (models,) * tiers
        if len(models) != tiers:
            raise FedloomError(
                f"models must be one number, or one for each of the {tiers} tiers",
                f"it has {len(models)}",
                "mend --models",
            )
        return tuple(models)

    def search_settings(self, space: Space, tiers: int) -> SearchSettings:
        return SearchSettings(
            models=self.models_of(space, tiers),
            pool=self.pool,
            sample=self.sample,
            mutation=self.mutation,
            threshold=self.threshold,
        )

    @property
    def tuning(self) -> SgdOptions:
        """How a tier's network is trained in stage 3."""
        own = {name: getattr(self, name) for name in SgdOptions.model_fields}
        own.update(epochs=self.tune_epochs, batch=self.tune_batch, lr=self._tune_rate)
        return SgdOptions(**own)

    @property
    def _tune_rate(self) -> float:
        if self.tune_lr is not None:
            return self.tune_lr
        if self.start == "random":
            return self.lr
        return TUNE_LR

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
        if not self.asks_clients:
            return self.supernet_share
        return (1 - self.search_share) * self.supernet_share

    @property
    def search_part(self) -> float | None:
        """Of what stage 1 leaves, for stage 2; None: scoring on the server asks nobody."""
        if not self.asks_clients:
            return None
        return self.search_share / (1 - self.supernet_part)

    def comm_budget(self, supernet_params: float, least_for_all: float = 0.0) -> float:
        """How many parameters a client may be sent.

        `least_for_all`: below it some operation could never be sent, and would stay untrained.
        """
        if self.comm == AUTO:
            half = supernet_params / 2
            if half < least_for_all:
                return supernet_params
            return half
        number = parse_number(re.sub(r"^\.", "0.", self.comm))
        assert number is not None
        if number <= 1:
            return number * supernet_params
        return number
