"""The options of FedorAS. Some defaults are those of the paper of the space that is searched."""

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

KEPT_BACK = 0.1  # share of a client's samples that it scores paths on
WORDS_FOR_PATHS = ("search", "random")  # anything else names a run or a file
TUNE_LR = 0.01  # learning rate of a network that begins with the supernet's weights
MODELS = 100  # paths per tier, if the space's paper does not say


class FedorASOptions(SgdOptions, ServerOptions, SpaceChoice):
    """Options of FedorAS."""

    space: str = Field(
        AUTO,
        description="the chain that is searched: a name (`fedloom list spaces`) or FILE.toml; "
        "auto: by the kind and size of the data",
    )
    comm: str = Field(
        AUTO,
        description="what a client may be sent: a share of the supernet's parameters, or a number "
        "of them (11.4M), the fixed part included; auto: as in the space's paper, else half, or "
        "everything if some operation would not fit into half",
    )
    subspace: Filling = Field(
        "stop",
        description="how a part is filled: stop at the first operation that does not fit, skip "
        "it, or drop operations from the supernet",
    )
    aggregate: Literal["opa", "fedavg"] = Field(
        "opa",
        description="how replies are averaged: opa weights an operation by the samples through "
        "it, fedavg weights every client's copy by the client's samples",
    )
    dynamic: float = Field(
        1.0,
        gt=0,
        le=1,
        description="a client's limit is drawn for every batch, between this share of its "
        "tier's limit and all of it",
    )

    epochs: int = Field(5, ge=1, description="local epochs per round while the supernet trains")
    lr: float = Field(0.1, gt=0, description="learning rate while the supernet trains")

    search: Literal["nsga2", "random"] = Field(
        "nsga2",
        description="how a tier's path is searched; random: a greedy path, as a control",
    )
    score: Literal["central", "federated", "pooled"] = Field(
        "federated",
        description="who scores paths: the server on its own samples, clients on the samples they "
        "hold back, or, in simulations only, the server on what all clients hold back (by default "
        "central if there is data.server_share)",
    )
    score_samples: float | None = Field(
        None,
        gt=0,
        description="score=central or pooled: a share of the scoring samples, or a number of them "
        "(by default all)",
    )
    score_clients: int | None = Field(
        None,
        ge=1,
        description="score=federated: how many clients score a generation (by default all of a "
        "round)",
    )
    cache: bool = Field(
        False,
        description="score=federated: a client keeps the operations that it was sent, so that it "
        "is sent at most one supernet in the whole search",
    )
    score_bn: Statistics = Field(
        "running",
        description="BN statistics while a path is scored: the merged ones, each batch's, or "
        "those of the scoring samples",
    )
    models: int | list[int] | None = Field(
        None,
        description="paths that are scored for each tier: one number, or one per tier (by default "
        f"as in the space's paper, else {MODELS})",
    )
    pool: int = Field(32, ge=2, description="paths of a tier that survive a generation")
    sample: int = Field(16, ge=1, description="new paths of a tier per generation")
    mutation: float = Field(0.1, ge=0, le=1, description="probability that a gene mutates")
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
        description="share of the rest of the budget that trains the supernet",
    )
    paths: str | list[list[str]] = Field(
        "search",
        description="where the tiers' networks come from: search, random (a greedy path for each "
        "tier), a finished run, or FILE.json",
    )
    start: Literal["supernet", "random"] = Field(
        "supernet",
        description="weights that a tier's network begins with; with random, and --paths other "
        "than search, no supernet is trained",
    )
    eligible: Literal["tier", "all"] = Field(
        "tier",
        description="who trains a tier's network: clients of the tier and above, or all",
    )
    tune_top: int = Field(
        1,
        ge=1,
        description="how many of the best paths of each tier are trained, to compare their scores "
        "with their final figures; the tier's network is the best by score",
    )
    tune_epochs: int = Field(1, ge=1, description="local epochs per round of a tier's network")
    tune_batch: int = Field(32, ge=1, description="samples per step when tuning")
    tune_lr: float | None = Field(
        None,
        gt=0,
        description=f"learning rate of tuning (by default {TUNE_LR}, or lr if it begins with fresh "
        "weights)",
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
        """Accepts `2000,500` as well as a list.

        In a variant, where commas separate options, it is `2000/500`.
        """
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
            raise ValueError("a number of paths, or one per tier, each at least 1")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuses an option that would change nothing."""
        if self.score_samples is not None and self.score == "federated":
            raise FedloomError(
                "--score-samples must be given for scores of the server",
                "here clients score (score=federated)",
                "leave it out, or use --score central",
            )
        if self.cache and self.score != "federated":
            raise FedloomError(
                "--cache must be given for scores of clients, who keep operations",
                f"here the server scores (score={self.score})",
                "leave it out, or use --score federated",
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
        """Returns the defaults of the space's paper."""
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
        """Whether there is a search, in which paths are scored."""
        return self.paths == "search" and self.search == "nsga2"

    @property
    def trains_supernet(self) -> bool:
        return self.paths == "search" or self.start == "supernet"

    @property
    def asks_clients(self) -> bool:
        """Whether clients score paths, in rounds of the search."""
        return self.searches and self.score == "federated"

    def models_of(self, space: Space, tiers: int) -> tuple[int, ...]:
        """Returns how many paths are scored, by tier."""
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
                "correct --models",
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
        settings = {name: getattr(self, name) for name in SgdOptions.model_fields}
        settings.update(epochs=self.tune_epochs, batch=self.tune_batch, lr=self._tune_rate)
        return SgdOptions(**settings)

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
                "use --score federated, or leave it out",
            )

    @property
    def train_share(self) -> float:
        """The share of a client's samples that it trains on. It scores paths on the rest."""
        if self.score == "central":
            return 1.0
        return 1.0 - KEPT_BACK

    @property
    def supernet_part(self) -> float:
        """The share of the whole budget for stage 1."""
        if not self.asks_clients:
            return self.supernet_share
        return (1 - self.search_share) * self.supernet_share

    @property
    def search_part(self) -> float | None:
        """The share for stage 2 of what stage 1 leaves. None: no clients are asked."""
        if not self.asks_clients:
            return None
        return self.search_share / (1 - self.supernet_part)

    def comm_budget(self, supernet_params: float, least_for_all: float = 0.0) -> float:
        """Returns how many parameters a client may be sent.

        With fewer than `least_for_all`, some operation could never be sent nor trained.
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
