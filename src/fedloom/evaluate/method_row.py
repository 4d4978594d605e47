"""One method over the seeds that it ran with: its row of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedloom.evaluate.paired import holm, over_seeds, paired
from fedloom.evaluate.summary import most
from fedloom.metrics.metric import Metric
from fedloom.records.comparison import SIGNIFICANT, Difference, Holm, MethodRow, OverSeeds
from fedloom.records.result import RunResult
from fedloom.types import Json


def method_row(
    method: str,
    name: str,
    runs: Sequence[RunResult],
    first: Sequence[RunResult] | None,
    tuned: Mapping[str, Json] | None,
) -> MethodRow:
    """`first`: the runs of the first method on the same seeds, in the same order.

    None: there is nothing to pair.
    """
    metric = runs[0].judged_by
    tuned_options = None
    if tuned is not None:
        tuned_options = dict(tuned)
    to_first = None
    if first is not None:
        to_first = difference(metric, first, runs)
    return MethodRow(
        method=method,
        name=name,
        runs=len(runs),
        tuned=tuned_options,
        metric=metric.name,
        lower_is_better=metric.lower_is_better,
        figure=seeds([run.spread.mean for run in runs]),
        difference=to_first,
        pooled=seeds([run.spread.pooled for run in runs]),
        worst=seeds([run.spread.worst for run in runs]),
        shared=seeds([run.shared_pooled for run in runs]),
        params=mean_params(runs),
        rounds=fmean(run.rounds for run in runs),
        macs=seeds([run.macs for run in runs]).mean,
        bytes=fmean(run.traffic.of_training for run in runs),
        seconds=fmean(run.seconds for run in runs),
        memory=most(run.memory for run in runs),
        seen=most(run.seen for run in runs),
    )


def with_holm(rows: Sequence[MethodRow]) -> list[MethodRow]:
    """Every difference to the first method with its verdict beside all the others."""
    judged = []
    for row in rows:
        if row.difference is not None:
            judged.append(row.difference)
    adjusted = iter(holm([difference.p for difference in judged]))
    adjusted_rows = []
    for row in rows:
        if row.difference is not None:
            difference = row.difference.replace(holm=verdict(next(adjusted)))
            row = row.replace(difference=difference)
        adjusted_rows.append(row)
    return adjusted_rows


def verdict(p: float | None) -> Holm | None:
    if p is None:
        return None
    return Holm(p=p, significant=p < SIGNIFICANT)


def seeds(values: Sequence[float | None]) -> OverSeeds:
    """Of the runs that have a figure."""
    figures = [value for value in values if value is not None]
    if not figures:
        return OverSeeds(mean=None, std=None)
    mean, std = over_seeds(figures)
    return OverSeeds(mean=mean, std=std)


def difference(
    metric: Metric,
    first: Sequence[RunResult],
    runs: Sequence[RunResult],
) -> Difference | None:
    """Paired by seed; None where a run has no figure."""
    before = [run.spread.mean for run in first if run.spread.mean is not None]
    after = [run.spread.mean for run in runs if run.spread.mean is not None]
    if len(before) < len(first) or len(after) < len(runs):
        return None
    return gap(metric, before, after)


def gap(metric: Metric, first: Sequence[float], second: Sequence[float]) -> Difference:
    """Whether it is for the better is known where it has an interval that does not hold 0."""
    pair = paired(first, second)
    low = pair.low
    high = pair.high
    better = None
    if low is not None and high is not None and (low > 0 or high < 0):
        better = metric.better(pair.difference, 0.0)
    return Difference(mean=pair.difference, low=low, high=high, better=better, p=pair.p)


def mean_params(runs: Sequence[RunResult]) -> float | None:
    """Of the networks that clients ended with, where they are known."""
    sizes = []
    for run in runs:
        sizes += [client.params for client in run.clients if client.params is not None]
    if not sizes:
        return None
    return fmean(sizes)


def mean_macs(runs: Sequence[RunResult]) -> float | None:
    """Of a sample, in the networks that clients ended with, where they are known."""
    costs = []
    for run in runs:
        costs += [client.macs for client in run.clients if client.macs is not None]
    if not costs:
        return None
    return fmean(costs)
