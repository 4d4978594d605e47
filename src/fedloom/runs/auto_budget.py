"""What each contestant of `fedloom auto` may spend, in one unit for all of them.

The user gives minutes, MACs, bytes, simulated seconds or rounds. Minutes are those of the whole
command on this machine: a step of the control is timed here, and from then on the budget is a
number of MACs, so that a run with this number gives the same result anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedloom.config.models import LIMITS
from fedloom.errors import FedloomError
from fedloom.reading import parse_number
from fedloom.report.numbers import amount, counted
from fedloom.runs.estimate import Estimate, estimate
from fedloom.runs.preparing import Prepared

MINUTES = "minutes"
ROUNDS = "rounds"
UNITS = (MINUTES, ROUNDS, *LIMITS)
SHORT = re.compile(r"(\d+(?:\.\d+)?)m")  # 2m: two minutes
LEAST_ROUNDS = 2  # of the control: one for training, one for fine-tuning
ROUNDED_UP = 1.01  # so that an amount still suffices when it is rounded to three digits
# A budget that is not in rounds also ends after four times as many rounds as the control has for
# it, so that networks which are cheaper than the control can spend theirs, too.
MOST_ROUNDS_RATIO = 4
EVALUATIONS = 10  # of the control, over its run


@dataclass(frozen=True)
class AskedBudget:
    """A budget as the user gives it: the first amount, and limits by the others."""

    unit: str
    amount: float
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SettledBudget:
    """What every contestant may spend, as its configuration says it."""

    config: dict[str, Any]  # the section `budget` of the configuration
    evaluate_every: int  # rounds
    seconds: float  # approximate duration of the whole command on this machine
    note: str  # how the budget was determined


@dataclass(frozen=True)
class Pace:
    """What the rounds of the control cost."""

    control: str
    estimated: Estimate

    def a_round(self, unit: str) -> float:
        """What one round of the control costs, in the unit of a budget."""
        if unit == ROUNDS:
            return 1.0
        return self.estimated.training.in_unit(unit) / self.estimated.rounds

    @property
    def seconds_a_round(self) -> float:
        """How long one round of the control takes on this machine, evaluation included."""
        seconds = self.estimated.training.seconds + self.estimated.evaluation.seconds
        return seconds / self.estimated.rounds


def parse_budget(texts: Sequence[str]) -> AskedBudget | None:
    """`minutes=10`, `2m`, `macs=2T`, `bytes=50M`; None: no budget is given."""
    amounts: dict[str, float] = {}
    for text in texts:
        for part in text.split(","):
            name, equals, number = part.strip().partition("=")
            short = SHORT.fullmatch(name)
            if short is not None and not equals:
                name = MINUTES
                number = short.group(1)
            value = parse_number(number)
            if name not in UNITS or not value or name in amounts:
                raise FedloomError(
                    f"--budget must be an amount of {', '.join(UNITS)}, each once",
                    f"got {part!r}",
                    "try --budget minutes=10, 2m for two minutes, macs=2T or bytes=50M",
                )
            amounts[name] = value
    if not amounts:
        return None
    unit, value = next(iter(amounts.items()))
    limits = {name: limit for name, limit in amounts.items() if name != unit}
    for name in (MINUTES, ROUNDS):
        if name in limits:
            raise FedloomError(
                f"{name} of --budget must stand alone or first",
                f"got it after {unit}",
                "leave one of them out",
            )
    return AskedBudget(unit, value, limits)


def pace_of(control: str, prepared: Prepared) -> Pace:
    """Time one step of the control on this machine."""
    return Pace(control, estimate(prepared))


def settle(
    requested: AskedBudget | None,
    pace: Pace,
    runs: float,
    least_share: float,
    least_rounds: float,
) -> SettledBudget:
    """Convert the budget to one unit, and refuse one that is too small.

    All runs together spend `runs` whole budgets; the shortest has `least_share` of one. The main
    contestant needs at least `least_rounds` rounds of the control to decide and to train.
    """
    usual = pace.estimated.rounds
    if requested is None:
        budget = AskedBudget("macs", usual * pace.a_round("macs"))
        note = f"what {counted(usual, 'round')} of {pace.control} take"
    elif requested.unit == MINUTES:
        rounds = 60 * requested.amount / runs / pace.seconds_a_round
        budget = AskedBudget("macs", rounds * pace.a_round("macs"), requested.limits)
        minutes = f"{requested.amount:g} {'minute' if requested.amount == 1 else 'minutes'}"
        note = f"{minutes} on this machine for all of them, converted by a step that was timed here"
    else:
        budget = requested
        note = "as requested"
    nominal = budget.amount / pace.a_round(budget.unit)
    needed = max(LEAST_ROUNDS / least_share, least_rounds)
    check_enough(budget, requested, nominal, pace, needed)
    config: dict[str, Any] = {"equal": budget.unit, "amount": budget.amount}
    config["rounds"] = math.ceil(MOST_ROUNDS_RATIO * nominal)
    if budget.unit == ROUNDS:
        config = {"equal": ROUNDS, "amount": None, "rounds": math.floor(budget.amount)}
    if budget.limits:
        config["limits"] = dict(budget.limits)
    return SettledBudget(
        config,
        evaluate_every=max(1, round(nominal / EVALUATIONS)),
        seconds=runs * nominal * pace.seconds_a_round,
        note=f"{in_words(budget)} for each contestant: {note}",
    )


def in_words(budget: AskedBudget) -> str:
    if budget.unit == ROUNDS:
        return counted(math.floor(budget.amount), "round")
    if budget.unit == "seconds":
        return f"{amount(budget.amount)} simulated seconds"
    names = {"macs": "MACs", "bytes": "B", "wan": "B of the WAN"}
    number = amount(budget.amount)
    if number[-1].isdigit():
        return f"{number} {names[budget.unit]}"
    return f"{number}{names[budget.unit]}"  # 2 TMACs


def check_enough(
    budget: AskedBudget,
    requested: AskedBudget | None,
    nominal: float,
    pace: Pace,
    needed: float,
) -> None:
    """Refuse a budget that lasts for fewer rounds of the control than the `needed` ones."""
    if nominal >= needed * (1 - 1e-9):
        return
    rounds = math.ceil(needed)
    rule = f"the budget must last for {rounds} rounds of {pace.control}"
    if requested is None:
        raise FedloomError(rule, f"got --rounds {nominal:.0f}", f"try --rounds {rounds}")
    if requested.unit == MINUTES:
        least_minutes = ROUNDED_UP * requested.amount * needed / nominal
        problem = f"got {requested.amount:g} minutes, which last for {nominal:.1f}"
        raise FedloomError(rule, problem, f"{least_minutes:.3g} minutes suffice")
    least = AskedBudget(budget.unit, ROUNDED_UP * rounds * pace.a_round(budget.unit))
    raise FedloomError(rule, f"got {in_words(budget)}", f"{in_words(least)} suffice")
