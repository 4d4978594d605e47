"""What a comparison says beside its figures: whether they are worth something.

Balanced accuracy, AUC of two classes, what the most common class would give, and how many clients'
figures must be read with caution.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.evaluate.method_row import seeds
from fedloom.records.cautions import added_up
from fedloom.records.comparison import MethodRow
from fedloom.records.result import RunResult
from fedloom.types import Json


def judged(row: MethodRow, runs: Sequence[RunResult]) -> MethodRow:
    """The row of a method, with what its runs tell beside the metric; text has fewer of them."""
    changes: dict[str, Json] = {"cautions": added_up(run.known_cautions for run in runs)}
    for name in runs[0].columns:
        if name in ("balanced_accuracy", "auc"):
            changes[name] = seeds([run.spread_of(name).mean for run in runs])
    most_common = seeds([run.most_common_class for run in runs])
    if most_common.mean is not None:
        changes["most_common_class"] = most_common
    return row.replace(**changes)
