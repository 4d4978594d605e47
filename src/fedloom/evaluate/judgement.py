"""What helps to judge a method's figures in a comparison.

That is balanced accuracy, AUC where there are two classes, the accuracy of always answering the
most common class, how many clients' figures must be read with caution, and the figures that earlier
stages ended with.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.evaluate.method_row import mean_and_std
from fedloom.evaluate.summary import without_none
from fedloom.records.cautions import added_up
from fedloom.records.comparison import MethodRow, OverSeeds, StageRow
from fedloom.records.result import RunResult, StageEnd
from fedloom.types import Json


def judged(row: MethodRow, runs: Sequence[RunResult]) -> MethodRow:
    """Returns a method's row with the figures beside the metric. Text has fewer of them."""
    changes: dict[str, Json] = {"cautions": added_up(run.known_cautions for run in runs)}
    for name in runs[0].columns:
        if name in ("balanced_accuracy", "auc", "mae"):
            changes[name] = mean_and_std([run.spread_of(name).mean for run in runs])
    changes.update(figures_of_pooled_and_shared(runs))
    most_common = mean_and_std([run.most_common_class for run in runs])
    if most_common.mean is not None:
        changes["most_common_class"] = most_common
    gains = without_none(run.known_gain for run in runs)
    if gains:
        changes["personal_gain"] = mean_and_std([gain.difference for gain in gains])
    stages = stages_of(runs)
    if stages:
        changes["stages"] = stages
    return row.replace(**changes)


def figures_of_pooled_and_shared(runs: Sequence[RunResult]) -> dict[str, OverSeeds | None]:
    """Returns the figures beside the pooled one and beside the shared model's, by their names.

    A figure is None if one of the runs does not have it. Text has no such figures.
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
            changes[name] = mean_and_std(values)
    return changes


def stages_of(runs: Sequence[RunResult]) -> list[StageRow]:
    """Returns a row for each stage that every run evaluated on the same part of the data."""
    rows = []
    for end in runs[0].stages:
        if end.part is None:
            continue
        ends_in_runs = []
        for run in runs:
            for end_in_run in run.stages:
                if end_in_run.stage == end.stage and end_in_run.part == end.part:
                    ends_in_runs.append(end_in_run)
        if len(ends_in_runs) == len(runs):
            rows.append(stage_row(end.stage, end.part, ends_in_runs))
    return rows


def stage_row(stage: str, part: str, ends: Sequence[StageEnd]) -> StageRow:
    """Returns one stage over all runs. Figures beside the metric's need a value in every run."""
    row = StageRow(stage=stage, part=part, figure=mean_and_std([end.figure for end in ends]))
    changes: dict[str, Json] = {}
    for name in ends[0].beside:
        figures = [end.beside.get(name) for end in ends]
        if None not in figures:
            changes[name] = mean_and_std(figures)
    return row.replace(**changes)
