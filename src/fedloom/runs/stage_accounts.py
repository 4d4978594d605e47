"""What each stage of a run cost, from the rows of metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedloom.config.models import BudgetConfig
from fedloom.records.result import StageEnd
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals

# Fields of a stage's record that its last evaluation fills in.
OF_EVALUATION = (
    "part",
    "figure",
    "balanced_accuracy",
    "auc",
    "shared",
    "shared_balanced_accuracy",
    "shared_auc",
)


def stage_accounts(
    names: Sequence[str],
    rows: Iterable[MetricsRow],
    left_out: Mapping[str, int],
    budget: BudgetConfig,
    *,
    has_macs: bool = True,
) -> list[StageEnd]:
    """One account per stage, in their order, also for a stage that had no round.

    `left_out` has for each stage the bytes of the whole network that its orders did not send.
    """
    at_end: dict[str, Totals] = {}
    for row in rows:
        at_end[row.stage] = row.totals
    whole = float(budget.rounds)
    if budget.equal != "rounds" and budget.amount is not None:
        whole = budget.amount
    before = Totals()
    accounts = []
    for name in names:
        after = at_end.get(name, before)
        down = after.down - before.down
        macs = None  # unknown in a federation, whose sites do not report them
        if has_macs:
            macs = after.macs - before.macs
        account = StageEnd(
            stage=name,
            rounds=after.rounds - before.rounds,
            down=down,
            up=after.up - before.up,
            full_down=down + left_out.get(name, 0),
            macs=macs,
            server_macs=after.server_macs - before.server_macs,
            share=(after.spent(budget.equal) - before.spent(budget.equal)) / whole,
        )
        accounts.append(account)
        before = after
    return accounts


def with_ends(accounts: Iterable[StageEnd], ends: Iterable[StageEnd]) -> list[StageEnd]:
    """Add the final figures of those stages that were evaluated."""
    by_name = {end.stage: end for end in ends}
    joined = []
    for account in accounts:
        end = by_name.get(account.stage)
        if end is not None:
            figures = {}
            for name in OF_EVALUATION:
                if name in end.model_fields_set:
                    figures[name] = getattr(end, name)
            account = account.replace(**figures)
        joined.append(account)
    return joined
