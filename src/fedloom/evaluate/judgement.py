"""What a comparison says beside its figures: whether they are worth something.

Balanced accuracy, AUC of two classes, what the most common class would give, how many clients'
figures must be read with caution, and what stages before the last one ended with.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.evaluate.method_row import seeds
from fedloom.records.cautions import added_up
from fedloom.records.comparison import MethodRow, OverSeeds, StageRow
from fedloom.records.result import RunResult, StageEnd
from fedloom.types import Json


def judged(row: MethodRow, runs: Sequence[RunResult]) -> MethodRow:
    """The row of a method, with what its runs tell beside the metric; text has fewer of them."""
    changes: dict[str, Json] = {"cautions": added_up(run.known_cautions for run in runs)}
    for name in runs[0].columns:
        if name in ("balanced_accuracy", "auc", "mae"):
            changes[name] = seeds([run.spread_of(name).mean for run in runs])
    changes.update(of_pooled_and_shared(runs))
    most_common = seeds([run.most_common_class for run in runs])
    if most_common.mean is not None:
        changes["most_common_class"] = most_common
    gains = [run.known_gain.difference for run in runs if run.known_gain is not None]
    if gains:
        changes["personal_gain"] = seeds(gains)
    stages = stages_of(runs)
    if stages:
        changes["stages"] = stages
    return row.replace(**changes)


def of_pooled_and_shared(runs: Sequence[RunResult]) -> dict[str, OverSeeds | None]:
    """What stands beside the pooled figure and beside that of the shared model; text has nothing.

    None where a run does not know it.
    """
    if not runs[0].judged_by.counts_answers:
        return {}
    figures: dict[str, list[float | None]] = {
        "pooled_balanced_accuracy": [run.pooled_balanced_accuracy for run in runs],
        "shared_balanced_accuracy": [run.shared_balanced_accuracy for run in runs],
    }
    if runs[0].has_two_classes:
        figures["shared_auc"] = [run.shared_auc for run in runs]
    changes: dict[str, OverSeeds | None] = {}
    for name, values in figures.items():
        changes[name] = None
        if None not in values:
            changes[name] = seeds(values)
    return changes


def stages_of(runs: Sequence[RunResult]) -> list[StageRow]:
    """Of the stages that were evaluated in every run, on the same part of the data."""
    rows = []
    for end in runs[0].stages:
        if end.part is None:
            continue
        ends = []
        for run in runs:
            for other in run.stages:
                if (other.stage, other.part) == (end.stage, end.part):
                    ends.append(other)
        if len(ends) == len(runs):
            rows.append(stage_row(end.stage, end.part, ends))
    return rows


def stage_row(stage: str, part: str, ends: Sequence[StageEnd]) -> StageRow:
    """One stage over all runs; figures beside the metric's where every run has them."""
    row = StageRow(stage=stage, part=part, figure=seeds([end.figure for end in ends]))
    changes: dict[str, Json] = {}
    for name in ends[0].beside:
        figures = [end.beside.get(name) for end in ends]
        if None not in figures:
            changes[name] = seeds(figures)
    return row.replace(**changes)
