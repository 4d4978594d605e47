"""The options of FedNAS and of its variants."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from fedloom.learning.averaging import AveragedOptions
from fedloom.options import Absent
from fedloom.searchers.local_search import SearchingOptions
from fedloom.spaces.options import SpaceOptions

CONTROL = "how the genotype is searched; random: a random genotype, as a control"
USUAL_SHARE = 0.2  # of the budget after the search, for the clients' own steps


class FedNASOptions(AveragedOptions, SearchingOptions, SpaceOptions):
    epochs: int = Field(5, ge=1, description="local epochs per round")
    batch: int = Field(64, ge=1, description="samples per step")
    lr: float = Field(0.025, gt=0, description="learning rate of the weights")
    optimizer_state: Literal["keep", "reset"] = Field(
        "keep",
        description="what happens to a client's optimisers between its rounds",
    )
    search: Literal["gradient", "random", "perturbation"] = Field(
        "gradient",
        description=f"{CONTROL}; perturbation: the server searches on its own data",
    )
    personal: bool = Field(False, description="one network for each client instead of one for all")
    finish: Annotated[Literal["cut", "adapt"] | None, Absent(None)] = Field(
        None,
        description="personal: with cut, every client cuts its own network out of the supernet "
        "and trains it (the paper's §2.5, and the default); with adapt, all clients train one "
        "network, then each adapts it",
    )
    search_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of the budget for the federated search",
    )
    tune_share: float = Field(
        USUAL_SHARE,
        gt=0,
        lt=1,
        description="finish=cut: share of the rest of the budget in which every client tunes "
        "(w, α) locally",
    )
    adapt_share: Annotated[float, Absent(USUAL_SHARE)] = Field(
        USUAL_SHARE,
        gt=0,
        lt=1,
        description="finish=adapt: share of the rest of the budget in which every client adapts "
        "the network locally",
    )
    adapt_lr: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description="finish=adapt: learning rate of adapting; by default a tenth of lr",
    )
    inherit: bool | None = Field(
        None,
        description="start the derived network from the supernet's weights (by default only with "
        "finish=cut)",
    )

    @property
    def keeps_optimizer(self) -> bool:
        """Whether a client's optimisers continue from its last round."""
        return self.optimizer_state == "keep"

    @property
    def adapting_rate(self) -> float:
        if self.adapt_lr is None:
            return self.lr / 10
        return self.adapt_lr

    @field_validator("finish")
    @classmethod
    def _personal(cls, finish: str | None, info: ValidationInfo) -> str | None:
        if finish is not None and info.data.get("personal") is False:
            raise ValueError(
                "left out unless personal=true: one network for all is neither cut nor adapted"
            )
        return finish

    @field_validator("adapt_lr")
    @classmethod
    def _adapts(cls, rate: float | None, info: ValidationInfo) -> float | None:
        if rate is not None and info.data.get("finish") != "adapt":
            raise ValueError("left out unless finish=adapt: else no client adapts")
        return rate

    @field_validator("adapt_share")
    @classmethod
    def _of_adapting(cls, share: float, info: ValidationInfo) -> float:
        if share != USUAL_SHARE and info.data.get("finish") != "adapt":
            raise ValueError("left out unless finish=adapt: else no client adapts")
        return share

    @field_validator("tune_share")
    @classmethod
    def _of_tuning(cls, share: float, info: ValidationInfo) -> float:
        if share != USUAL_SHARE and info.data.get("finish") == "adapt":
            raise ValueError("left out with finish=adapt: then no client tunes (w, α)")
        return share

    @field_validator("personal")
    @classmethod
    def _global(cls, personal: bool, info: ValidationInfo) -> bool:
        if personal and info.data.get("search") == "perturbation":
            server_only = "false with search=perturbation, in which the server searches"
            raise ValueError(f"{server_only}: spider is its personal counterpart")
        return personal
