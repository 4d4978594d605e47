"""The options of SPIDER and its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fedloom.errors import FedloomError, shortened
from fedloom.learning.averaging import ServerRule
from fedloom.learning.training import SgdOptions
from fedloom.options import Absent
from fedloom.searchers import perturbation
from fedloom.searchers.perturbation import Keep
from fedloom.searchers.schedule import PERIOD, PHASES, START, FittedSchedule, Schedule
from fedloom.spaces import SPARSE, space_for
from fedloom.spaces.options import CHOICE_OF_SPACE, SpaceOptions

# Percent of the budget after which appendix C derives the network: its 400 of 1,000 rounds.
DERIVED = 40
DERIVED_PHASES: Mapping[str, float] = {"search": 0.4, "final": 0.6}
MOST_ROUNDS = 10_000  # numbers of rounds that are tried to say how many a schedule needs
LONGEST = 10**9  # as many rounds as a run may have


class SpiderOptions(SgdOptions, ServerRule, SpaceOptions):
    space: str = Field(SPARSE, description=CHOICE_OF_SPACE)  # the paper's: two operations per edge
    lr: float = Field(0.01, gt=0, description="learning rate of both models' SGD")
    lam: float | str = Field(
        0.1,
        description="λ of Eq. 4, the pull of v towards w; 0: none, inf: v equals w",
    )
    t_s: int | None = Field(
        None,
        ge=0,
        le=LONGEST,
        description="perturbation: rounds before the search; by default set by pace, or 3 % of "
        "the budget if tau is given",
    )
    tau: int | None = Field(
        None,
        ge=1,
        le=LONGEST,
        description="perturbation: rounds between decisions; by default set by pace, or 2 % of "
        "the budget if t_s is given",
    )
    pace: Annotated[Literal["fitted", "paper"], Absent("paper")] = Field(
        "fitted",
        description="perturbation, without t_s and tau: with fitted, all edges together take the "
        "paper's 28 % of the budget; with paper, each takes 2 %, even if they are few",
    )
    keep: Keep = Field(
        "impact",
        description="which operation is kept: the one whose removal hurts most, or by Alg. 2's "
        "line 8 as printed",
    )
    edges: Literal["paired", "single"] = Field(
        "paired",
        description="decide on an edge in both cells at once, or in one cell",
    )
    prune_edges: bool = Field(
        True,
        description="in the end each node keeps its two strongest inputs",
    )
    searcher: Literal["perturbation", "milenas"] = Field(
        "perturbation",
        description="how clients search: by Alg. 2, or by appendix C's gradients",
    )
    search: Literal["own", "random"] = Field(
        "own",
        description="random: random decisions, as a control",
    )
    train_share: float = Field(
        0.75,
        ge=0.05,
        le=0.95,
        description="share of a client's training data for w and v; until phase 3 the rest is "
        "for validation",
    )
    alpha_lr: float = Field(0.01, gt=0, description="milenas: learning rate of α")
    alpha_lam: float = Field(1.0, ge=0, description="milenas: λ of α's validation gradient")
    server_tau: float = Field(1e-3, gt=0, description="adaptivity of an adaptive server optimiser")

    @property
    def adaptivity(self) -> float:
        return self.server_tau

    @property
    def pull(self) -> float:
        """λ as a number."""
        if self.lam == "inf":
            return inf
        return float(self.lam)

    @property
    def by_gradient(self) -> bool:
        """Whether appendix C searches, instead of Algorithm 2."""
        return self.searcher == "milenas"

    @property
    def has_own_schedule(self) -> bool:
        return self.t_s is not None or self.tau is not None

    @property
    def slot_groups(self) -> list[tuple[int, ...]]:
        """The slots that are decided at a time: an edge, in both cells or in one."""
        return perturbation.edges(space_for(self), paired=self.edges == "paired")

    @field_validator("lam", mode="before")
    @classmethod
    def _number(cls, value: Any) -> float | str:
        """Returns λ. JSON has no infinity, so infinity is a string."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not number >= 0:
            rule = "`options.lam` must be a number from 0 up, or inf"
            raise FedloomError(rule, f"got {shortened(repr(value), 80)}", "try 0.1")
        if number == inf:
            return "inf"
        return number

    @model_validator(mode="after")
    def _stable(self) -> SpiderOptions:
        if self.pull != inf and self.lr * self.pull >= 2:
            rule = "lr · lam must be below 2, or v diverges"
            product = f"{self.lr:g} · {self.pull:g} = {self.lr * self.pull:g}"
            raise FedloomError(rule, product, "lower one of them, or set lam=inf")
        if self.pull == inf and self.by_gradient:
            rule = "the searcher milenas must train personal weights"
            raise FedloomError(rule, "got lam=inf, with which v is w", "lower lam")
        return self

    @model_validator(mode="after")
    def _its_own_schedule(self) -> SpiderOptions:
        """Refuses an option that would do nothing."""
        if self.by_gradient and self.has_own_schedule:
            share = f"{DERIVED} % of the budget"
            rule = f"the searcher milenas must search for {share}, as appendix C does"
            raise FedloomError(
                rule,
                f"got t_s={self.t_s} and tau={self.tau}",
                "leave t_s and tau out",
            )
        return self

    @property
    def events(self) -> int:
        """The number of moments at which something is decided: every edge, and the pruning."""
        if self.by_gradient:
            return 1
        events = len(self.slot_groups)
        if self.prune_edges:
            events += 1
        return events

    def due(self, number: int, spent: float, budget: float) -> int:
        """Returns how many of the events must have happened before this round's training.

        t_s and tau, if given, are in rounds.
        """
        percent = 100.0
        if budget > 0:
            percent = 100 * spent / budget
        if self.by_gradient:
            return int(percent >= DERIVED)
        if not self.has_own_schedule and self.pace == "fitted":
            return FittedSchedule(self.events).due(percent)
        if not self.has_own_schedule:
            return Schedule.of_percent(self.events).due(percent)
        start = START * budget / 100
        if self.t_s is not None:
            start = self.t_s
        period = PERIOD * budget / 100
        if self.tau is not None:
            period = self.tau
        return Schedule(start, period, self.events).due(number - 1)

    @property
    def phases(self) -> Mapping[str, float]:
        """The shares of the budget of the paper's phases."""
        if self.by_gradient:
            return DERIVED_PHASES
        return PHASES

    @property
    def least_rounds(self) -> int | None:
        """The fewest rounds of which the last one trains with everything decided.

        It is None if there is no such number.
        """
        for rounds in range(1, MOST_ROUNDS):
            if self.due(rounds, rounds - 1, rounds) == self.events:
                return rounds
        return None
