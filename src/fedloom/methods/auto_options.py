"""The options of `auto`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from fedloom.learning.training import NetworkOptions, SgdOptions
from fedloom.options import Options, as_list
from fedloom.stages.decisions import DecisionOptions

SIZES = (0.35, 0.5, 0.7, 1.0)
SLICES = 2  # of the race
FIRST_LOOK = 0.5  # of the first slice: sizes are scored for the first time, and none is dropped


class RaceOptions(Options):
    sizes: list[float] = Field(
        list(SIZES),
        description="widths of the network that race (.35,.5,1; in a variant .35/.5/1)",
    )
    slice_share: float = Field(
        0.05, gt=0, le=0.2, description="share of the budget for each of the two slices of the race"
    )
    limit_macs: float | None = Field(
        None, gt=0, description="most multiply-accumulates that the network may take for one sample"
    )
    limit_params: float | None = Field(
        None, gt=0, description="most parameters that the network may have"
    )

    @field_validator("sizes", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator("sizes")
    @classmethod
    def _differ(cls, sizes: list[float]) -> list[float]:
        if not sizes or min(sizes) <= 0 or len(set(sizes)) < len(sizes):
            raise ValueError("different widths above 0, such as .35,.5,.7,1")
        return sorted(sizes)


class TuneOptions(Options):
    """Fine-tuning."""

    tune: Literal["decide", "always", "never"] = Field(
        "decide",
        description="whether clients fine-tune at the end; decide: by a trial on validation data",
    )
    tune_share: float = Field(0.1, gt=0, lt=0.5, description="share of the budget for fine-tuning")
    tune_lr: float | None = Field(
        None, gt=0, description="learning rate of fine-tuning; by default a tenth of lr"
    )
    trial_epochs: int = Field(3, ge=1, description="epochs of the trial of fine-tuning")


class AutoOptions(SgdOptions, NetworkOptions, RaceOptions, DecisionOptions, TuneOptions):
    """All options of `auto`."""

    measures_received = True

    @property
    def tuning_rate(self) -> float:
        if self.tune_lr is None:
            return self.lr / 10
        return self.tune_lr
