"""The options of FedPNAS and of the three variants that its paper compares it with."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedloom.errors import FedloomError, shortened
from fedloom.learning.averaging import ServerRule
from fedloom.learning.training import SgdOptions
from fedloom.options import Options
from fedloom.searchers.anticipation import Hessian
from fedloom.spaces import STACKS, chosen_space, family_in
from fedloom.spaces.options import CHOICE_OF_SPACE, MOST_CHANNELS, SpaceChoice
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.space import Size, Space
from fedloom.types import Task

LIKELY = "likely"
MOST_DRAWS = 1000


class RoutedOptions(SgdOptions, ServerRule, SpaceChoice):
    """Options of all four variants."""

    space: str = Field(STACKS, description=CHOICE_OF_SPACE)
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of all cells")
    tau: float = Field(1.0, gt=0, description="temperature of Eq. 3 at the beginning")
    tau_end: float = Field(0.1, gt=0, description="its final value; it falls geometrically")
    evaluate: str = Field(
        LIKELY,
        description="likely: the most likely path; sample:K: the mean over K drawn paths",
    )
    search: Literal["gradient", "random"] = Field(
        "gradient",
        description="how paths are searched; random: drawn once and never trained, as a control",
    )
    alpha_weight_decay: float = Field(0.0, ge=0, description="weight decay of the architecture")
    tune_share: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="share of the budget in which every client trains its personal part",
    )
    server_tau: float = Field(1e-3, gt=0, description="adaptivity of an adaptive server optimiser")

    @property
    def adaptivity(self) -> float:
        return self.server_tau

    @property
    def stack_space(self) -> Space:
        return chosen_space(self)

    @property
    def size(self) -> Size:
        return Size(self.stack_space.usual.cells, self.channels, self.head)

    def searched(self, task: Task) -> SearchedSpace:
        return SearchedSpace(self.stack_space, self.size)

    @property
    def draws(self) -> int:
        """How many drawn paths are averaged in evaluation. 0: the most likely path is used."""
        if self.evaluate == LIKELY:
            return 0
        return int(self.evaluate.partition(":")[2])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tau_end > self.tau:
            rule = "`options.tau_end` must not be above tau: the temperature falls"
            raise FedloomError(rule, f"got {self.tau} to {self.tau_end}", "try tau_end=0.1")
        if not family_in(self.space).personal:
            rule = f"`options.space` must have a personal part, as {STACKS} has"
            raise FedloomError(rule, f"got {shortened(self.space, 80)}", "leave it out")
        self._check_evaluation()
        return self

    def _check_evaluation(self) -> None:
        if self.evaluate == LIKELY:
            return
        name, _, count = self.evaluate.partition(":")
        if name != "sample" or not count.isdecimal() or not 1 <= int(count) <= MOST_DRAWS:
            rule = f"`options.evaluate` must be likely, or sample:K with K from 1 to {MOST_DRAWS}"
            raise FedloomError(rule, f"got {shortened(repr(self.evaluate), 80)}", "try sample:5")


class PathOptions(RoutedOptions):
    """Options of one distribution Π for all samples. In the end the likeliest path is cut out."""

    draw: Literal["sample", "batch"] = Field(
        "batch",
        description="draw a path for every sample, or one for the minibatch",
    )
    alpha_lr: float = Field(0.05, gt=0, description="learning rate of Π")


class ContextOptions(RoutedOptions):
    """Options of samplers that look at each sample (§3.4)."""

    context: Literal["sample", "batch"] = Field(
        "sample",
        description="logits for every sample, or their mean over the minibatch",
    )
    draw: Literal["sample", "batch"] = Field(
        "sample",
        description="draw a path for every sample, or one for the minibatch (with context=batch)",
    )
    alpha_lr: float = Field(0.01, gt=0, description="learning rate of the samplers")
    logit_bound: float = Field(
        4.0, gt=0, description="largest absolute value of a sampler's logits"
    )
    balance: float = Field(
        0.2,
        ge=0,
        description="weight of the reward for a sure choice per sample, and for the use of all "
        "operations over many samples",
    )

    @model_validator(mode="after")
    def _draws_fit(self) -> Self:
        if self.draw == "batch" and self.context == "sample":
            rule = "`options.draw` must be sample if every sample has its own logits"
            raise FedloomError(rule, "got draw=batch", "set context=batch too, or leave draw out")
        return self


class Anticipating(Options):
    """Options of Eq. 5, the update that anticipates a step of fine-tuning."""

    inner_lr: float = Field(0.01, gt=0, description="η₁: rate of the step that is anticipated")
    hessian: Hessian = Field(
        "outer",
        description="Hessian of the anticipated step: the paper's outer product, none, or exact",
    )


class Tuning(Options):
    tune: bool = Field(True, description="end with every client training its personal part")


class MayTune(Options):
    tune: bool = Field(False, description="end with every client training its personal part")


class FedDSNASOptions(PathOptions, MayTune):
    """FedDSNAS (§3.1)."""


class CaFedDSNASOptions(ContextOptions, MayTune):
    """FedDSNAS with the context-aware sampler."""


class FedPNASOptions(PathOptions, Anticipating, Tuning):
    """FedPNAS without the sampler."""


class CaFedPNASOptions(ContextOptions, Anticipating, Tuning):
    """FedPNAS with the context-aware sampler."""


VariantOptions = FedDSNASOptions | CaFedDSNASOptions | FedPNASOptions | CaFedPNASOptions
