"""The schedule of a search by perturbation: SPIDER's, in rounds or in percent of the budget.

In the paper's 1,000 rounds, the search starts at round 30 and decides an edge every 20 rounds; the
first multiple of the period after the start is round 40. The method decides what is scored, and by
whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

from fedloom.types import Meta

# Percent of the budget: the paper's 30 and 20 of 1,000 rounds.
START = 3
PERIOD = 2
# A multiple of a period that is not a whole number of rounds may be a little too small by rounding.
ROUNDING = 1e-9
# The paper's shares of the budget: edges at rounds 40, 60, … 300 of 1,000, the pruning at 320.
PHASES: Mapping[str, float] = {"warm-up": 0.04, "search": 0.28, "final": 0.68}


@dataclass(frozen=True)
class Schedule:
    """Decisions at multiples of `period`, from `start` on, in any unit of time."""

    start: float
    period: float
    events: int

    @classmethod
    def of_percent(cls, events: int) -> Schedule:
        """Returns the paper's schedule, in percent of the budget."""
        return cls(START, PERIOD, events)

    def due(self, time: float) -> int:
        """Returns how many decisions must have been made by this time.

        If the period is shorter than a round, a round has several decisions.
        """
        first = ceil(self.start / self.period - ROUNDING)
        now = floor(time / self.period + ROUNDING)
        return min(max(now - first + 1, 0), self.events)


@dataclass(frozen=True)
class FittedSchedule:
    """The paper's phases for any number of decisions, in percent of the budget.

    The first decision is due when the warm-up ends, the last when the search ends, the others at
    equal distances between them. For the paper's own 15 decisions this is the paper's schedule.
    """

    events: int

    def due(self, time: float) -> int:
        """Returns how many decisions must have been made by this time."""
        warm_up = 100 * PHASES["warm-up"]
        search = 100 * PHASES["search"]
        if self.events == 1:
            return int(time >= warm_up + search - ROUNDING)
        period = search / (self.events - 1)
        elapsed_periods = floor((time - warm_up) / period + ROUNDING)
        return min(max(elapsed_periods + 1, 0), self.events)


def phase_of(decisions_due: int, events: int, *, has_started: bool = False) -> Meta:
    """Returns the fields about a search in a row of metrics.jsonl.

    `has_started` says that the search has started before its first decision is due.
    """
    if decisions_due == events:
        phase = "final"
    elif decisions_due > 0 or has_started:
        phase = "search"
    else:
        phase = "warm-up"
    return {"phase": phase, "search": {"due": decisions_due, "of": events}}
