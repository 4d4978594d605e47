"""Whether the limits of a run leave room for its first round, before anything is trained."""

from __future__ import annotations

import tempfile
from math import ceil
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.federation.server.budgets import LIMITS, charged
from fedloom.runs.preparing import Prepared
from fedloom.runs.rehearsal import Rehearsal
from fedloom.threads import one_thread


def check_limits(prepared: Prepared) -> None:
    """The first round's costs are estimated as `--dry-run` does it."""
    limits = prepared.config.budget.limits or {}
    if not limits:
        return
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        cost = Rehearsal(prepared, Path(scratch)).first_round()
    needed = charged(cost.totals)
    for name in LIMITS:
        if name in limits and needed[name] > limits[name]:
            least = rounded_up(needed[name])
            raise FedloomError(
                f"--budget {name} must allow one round, which needs about {least}",
                f"got {limits[name]:g}",
                f"say at least {name}={least}",
            )


def rounded_up(amount: float) -> str:
    """Never less than the amount: whole, or in hundredths if it is small."""
    if amount < 100:
        return f"{ceil(100 * amount) / 100:g}"
    return str(ceil(amount))
