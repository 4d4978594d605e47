"""When a search by perturbation decides: SPIDER's schedule, in rounds or in percent of the budget.

The paper's 1,000 rounds begin to search at round 30 and decide an edge every 20 rounds; the first
multiple of the period from the start on is round 40. What is scored and who scores it is the
method's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

from fedloom.types import Meta

# Percent of the budget: the paper's 30 and 20 of 1,000 rounds.
START = 3
PERIOD = 2
# A multiple of a period that is no whole number of rounds may come out a little less.
ROUNDING = 1e-9
# The paper's shares of the budget: edges at rounds 40, 60, … 300 of 1,000, the pruning at 320.
PHASES: Mapping[str, float] = {"warm-up": 0.04, "search": 0.28, "final": 0.68}


@dataclass(frozen=True)
class Schedule:
    """When decisions fall due: at multiples of `period`, from `start` on, in whatever unit time
    has.
    """

    start: float
    period: float
    events: int

    @classmethod
    def of_percent(cls, events: int) -> Schedule:
        """The paper's, where time is percent of the budget."""
        return cls(START, PERIOD, events)

    def due(self, time: float) -> int:
        """How many decisions must have been made by now.

        A period below one round means several in one.
        """
        first = ceil(self.start / self.period - ROUNDING)
        now = floor(time / self.period + ROUNDING)
        return min(max(now - first + 1, 0), self.events)


@dataclass(frozen=True)
class FittedSchedule:
    """The paper's phases for any number of decisions, where time is percent of the budget.

    The first falls due when the warm-up ends, the last when the search does, the others at equal
    distances between them. For the paper's own 15 decisions this is the paper's schedule.
    """

    events: int

    def due(self, time: float) -> int:
        """How many decisions must have been made by now."""
        warm_up = 100 * PHASES["warm-up"]
        search = 100 * PHASES["search"]
        if self.events == 1:
            return int(time >= warm_up + search - ROUNDING)
        period = search / (self.events - 1)
        passed = floor((time - warm_up) / period + ROUNDING)
        return min(max(passed + 1, 0), self.events)


def phase_of(due: int, events: int, *, begun: bool = False) -> Meta:
    """What a row of metrics.jsonl says of a search.

    `begun`: it moves before anything falls due.
    """
    if due == events:
        phase = "final"
    elif due > 0 or begun:
        phase = "search"
    else:
        phase = "warm-up"
    return {"phase": phase, "search": {"due": due, "of": events}}
