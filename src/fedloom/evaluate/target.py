"""What a method had spent when its validation figure first reached a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from fedloom.evaluate.summary import without_none
from fedloom.federation.server.budgets import charged
from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Target
from fedloom.records.rows import MetricsRow


def first_reached(rows: Iterable[MetricsRow], target: float, metric: Metric) -> Target | None:
    """Returns what a run had spent when it first reached the target, or None if it never did.

    Only figures on validation data count.
    """
    for row in rows:
        evaluation = row.evaluation
        if evaluation is None or evaluation.part != "validation" or evaluation.value is None:
            continue
        if metric.better(target, evaluation.value):
            continue
        spent = charged(row.totals)
        return Target(
            seconds=spent["seconds"],
            wan=spent["wan"],
            bytes=spent["bytes"],
            macs=spent["macs"],
            rounds=row.totals.rounds,
        )
    return None


def mean_target(reached: Sequence[Target | None]) -> Target | None:
    """Returns the mean over a method's runs, or None if one of them did not reach the target."""
    targets = without_none(reached)
    if not targets or len(targets) < len(reached):
        return None
    return Target(
        seconds=fmean(target.seconds for target in targets),
        wan=fmean(target.wan for target in targets),
        bytes=fmean(target.bytes for target in targets),
        macs=fmean(target.macs for target in targets),
        rounds=fmean(target.rounds for target in targets),
    )
