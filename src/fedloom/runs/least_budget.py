"""Checks before training that a run's budget and limits are large enough.

Budget and limits must allow the least that the method needs, and every limit one round.
"""

from __future__ import annotations

import tempfile
from math import ceil
from pathlib import Path
from typing import cast

from fedloom.errors import FedloomError
from fedloom.federation.server.budgets import LIMITS, Limit, charged
from fedloom.report.numbers import amount
from fedloom.runs.preparing import Prepared
from fedloom.runs.rehearsal import Rehearsal
from fedloom.threads import one_thread
from fedloom.types import active_of

# The least amount is an estimate, and advice prints it with three digits: this many times as much
# suffices.
ENOUGH = 1.01


def check_amount(prepared: Prepared) -> None:
    """Refuse a budget that is too small for the method.

    Budgets in rounds are checked by the method's stages. In a federation the server has no samples
    by which the cost of a round could be estimated.
    """
    budget = prepared.config.budget
    if budget.equal == "rounds" or budget.amount is None:
        return
    if prepared.config.is_federated:
        return
    least = least_amount(prepared, budget.equal)
    if least is None or budget.amount >= least:
        return
    method = prepared.task.method
    raise FedloomError(
        f"a budget in {budget.equal} must let {method} decide and train, which takes about "
        f"{amount(least)}",
        f"got {amount(budget.amount)}",
        f"{amount(ENOUGH * least)} suffice; {method} needs less with fewer sizes or decisions",
    )


def least_amount(prepared: Prepared, unit: str) -> float | None:
    """The least budget in this unit that the method needs; None if any is enough."""
    rounds = least_rounds(prepared, unit, budget_in_rounds=False)
    if rounds is None:
        return None
    return rounds * first_round(prepared)[cast(Limit, unit)]


def least_rounds(prepared: Prepared, unit: str, *, budget_in_rounds: bool) -> float | None:
    """The least budget in this unit, as a multiple of the first round's cost.

    None: any budget is enough.
    """
    clients = len(prepared.split)
    active = active_of(clients, prepared.config.budget.participation)
    method = prepared.stages[0].method
    return method.least_work(prepared.task, unit, clients / active, budget_in_rounds)


def first_round(prepared: Prepared) -> dict[Limit, float]:
    """What the first round costs in the unit of each limit, as `--dry-run` estimates it."""
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        cost = Rehearsal(prepared, Path(scratch)).first_round()
    return charged(cost.totals)


def check_limits(prepared: Prepared) -> None:
    """Refuse a limit that does not allow what the method needs, or not even one round."""
    budget = prepared.config.budget
    limits = budget.limits or {}
    if not limits or prepared.config.is_federated:
        return
    costs = first_round(prepared)
    for name in LIMITS:
        if name not in limits:
            continue
        rounds = least_rounds(prepared, name, budget_in_rounds=budget.equal == "rounds")
        if rounds is not None:
            check_limit(prepared, name, limits[name], rounds * costs[name])
        if costs[name] > limits[name]:
            least = rounded_up(costs[name])
            raise FedloomError(
                f"--budget {name} must allow one round, which needs about {least}",
                f"got {limits[name]:g}",
                f"give at least {name}={least}",
            )


def check_limit(prepared: Prepared, name: Limit, limit: float, least: float) -> None:
    """Refuse a limit that would end the run before the method's first decisions."""
    if limit >= least:
        return
    method = prepared.task.method
    raise FedloomError(
        f"--budget {name} must let {method} decide and train, which takes about {amount(least)}",
        f"got {amount(limit)}",
        f"allow {amount(ENOUGH * least)}, or use it as the budget, by which {method} plans",
    )


def rounded_up(cost: float) -> str:
    """Round up to a whole number, or to hundredths if the cost is small."""
    if cost < 100:
        return f"{ceil(100 * cost) / 100:g}"
    return str(ceil(cost))
