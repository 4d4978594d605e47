"""SPIDER's options and its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fedloom.errors import FedloomError, shortened
from fedloom.learning.averaging import ServerRule
from fedloom.learning.training import SgdOptions
from fedloom.searchers import perturbation
from fedloom.searchers.perturbation import Keep
from fedloom.searchers.schedule import PERIOD, PHASES, START, Schedule
from fedloom.spaces import space_for
from fedloom.spaces.options import SpaceOptions

DERIVED = 40  # percent of the budget after which appendix C derives: its 400 of 1,000 rounds
DERIVED_PHASES: Mapping[str, float] = {"search": 0.4, "final": 0.6}
MOST_ROUNDS = 10_000  # looked at to say how many a schedule needs
LONGEST = 10**9  # rounds, as many as a run may have


class SpiderOptions(SgdOptions, ServerRule, SpaceOptions):
    lr: float = Field(0.01, gt=0, description="learning rate of both models' SGD")
    lam: float | str = Field(0.1, description="λ of Eq. 4, the pull of v towards w; 0: none, inf: v is w")
    ops: str = Field("s2", description="op set of a cell's edges: s2 (the paper's), full, s1, s3, s4 or s5")
    t_s: int | None = Field(
        None, ge=0, le=LONGEST, description="perturbation: rounds before the search; default 3 % of the budget"
    )
    tau: int | None = Field(
        None, ge=1, le=LONGEST, description="perturbation: rounds from edge to edge; default 2 % of the budget"
    )
    keep: Keep = Field("impact", description="the operation whose removal hurts most, or Alg. 2's line 8 as printed")
    edges: Literal["paired", "single"] = Field(
        "paired", description="decide an edge in both cells at a time, or in one"
    )
    prune_edges: bool = Field(True, description="in the end each node keeps its two strongest inputs")
    searcher: Literal["perturbation", "milenas"] = Field(
        "perturbation", description="Alg. 2, or appendix C's gradients"
    )
    search: Literal["own", "random"] = Field("own", description="random: the control, decisions by chance")
    train_share: float = Field(
        0.75, ge=0.05, le=0.95, description="of a client's rest; validation until phase 3: the rest"
    )
    alpha_lr: float = Field(0.01, gt=0, description="milenas: learning rate of α")
    alpha_lam: float = Field(1.0, ge=0, description="milenas: λ of α's validation gradient")
    server_tau: float = Field(1e-3, gt=0, description="adaptivity of an adaptive server optimiser")

    @property
    def adaptivity(self) -> float:
        return self.server_tau

    @property
    def pull(self) -> float:
        return inf if self.lam == "inf" else float(self.lam)

    @field_validator("lam", mode="before")
    @classmethod
    def _number(cls, value: Any) -> float | str:
        """JSON has no infinity, so it is a word."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not number >= 0:
            raise FedloomError(
                "`options.lam` must be a number from 0 up, or inf", f"got {shortened(repr(value), 80)}", "try 0.1"
            )
        return "inf" if number == inf else number

    @model_validator(mode="after")
    def _stable(self) -> SpiderOptions:
        if self.pull != inf and self.lr * self.pull >= 2:
            found = f"{self.lr:g} · {self.pull:g} = {self.lr * self.pull:g}"
            raise FedloomError("lr · lam must be below 2, or v diverges", found, "lower one of them, or say lam=inf")
        if self.pull == inf and self.searcher == "milenas":
            raise FedloomError("the searcher milenas must have weights of its own", "got lam=inf", "lower lam")
        return self

    @model_validator(mode="after")
    def _its_own_schedule(self) -> SpiderOptions:
        """An option that would do nothing is refused."""
        if self.searcher == "milenas" and (self.t_s, self.tau) != (None, None):
            must = f"the searcher milenas must search for {DERIVED} % of the budget, as appendix C does"
            raise FedloomError(must, f"got t_s={self.t_s} and tau={self.tau}", "leave t_s and tau out")
        return self

    @property
    def events(self) -> int:
        """Moments at which something is decided: every edge, and the pruning."""
        if self.searcher == "milenas":
            return 1
        return len(perturbation.edges(space_for(self), paired=self.edges == "paired")) + self.prune_edges

    def due(self, number: int, spent: float, budget: float) -> int:
        """How many of them there have been, before a round's training. Explicit values are rounds."""
        percent = 100.0 if budget <= 0 else 100 * spent / budget
        if self.searcher == "milenas":
            return int(percent >= DERIVED)
        if self.t_s is None and self.tau is None:
            return Schedule.of_percent(self.events).due(percent)
        start = START * budget / 100 if self.t_s is None else self.t_s
        return Schedule(start, self.tau or PERIOD * budget / 100, self.events).due(number - 1)

    @property
    def phases(self) -> Mapping[str, float]:
        """The shares of the budget that the paper's phases have."""
        return DERIVED_PHASES if self.searcher == "milenas" else PHASES

    @property
    def least_rounds(self) -> int | None:
        """The fewest whose last one finds everything decided; None: there is no such number."""
        enough = (r for r in range(1, MOST_ROUNDS) if self.due(r, r - 1, r) == self.events)
        return next(enough, None)
