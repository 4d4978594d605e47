"""A method's row in a comparison: its figures and costs over the seeds that it ran with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedloom.evaluate.paired import holm, over_seeds, paired
from fedloom.evaluate.summary import most, without_none
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
    """Returns a method's row.

    `first` are the first method's runs on the same seeds, in the same order. If it is None, there
    is nothing to compare with, and the row has no difference.
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
        figure=mean_and_std([run.spread.mean for run in runs]),
        difference=to_first,
        pooled=mean_and_std([run.spread.pooled for run in runs]),
        worst=mean_and_std([run.spread.worst for run in runs]),
        shared=mean_and_std([run.shared_pooled for run in runs]),
        params=mean_params(runs),
        rounds=fmean(run.rounds for run in runs),
        macs=mean_and_std([run.macs for run in runs]).mean,
        bytes=fmean(run.traffic.of_training for run in runs),
        seconds=fmean(run.seconds for run in runs),
        memory=most(run.memory for run in runs),
        seen=most(run.seen for run in runs),
    )


def with_holm(rows: Sequence[MethodRow]) -> list[MethodRow]:
    """Adds to every difference from the first method its verdict, adjusted for all comparisons."""
    p_values = []
    for row in rows:
        if row.difference is not None:
            p_values.append(row.difference.p)
    adjusted = iter(holm(p_values))
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


def mean_and_std(values: Sequence[float | None]) -> OverSeeds:
    """Returns mean and standard deviation over the runs that have a figure."""
    figures = without_none(values)
    if not figures:
        return OverSeeds(mean=None, std=None)
    mean, std = over_seeds(figures)
    return OverSeeds(mean=mean, std=std)


def difference(
    metric: Metric,
    first: Sequence[RunResult],
    runs: Sequence[RunResult],
) -> Difference | None:
    """Returns the difference from the first method, paired by seed.

    It is None if one of the runs has no figure.
    """
    figures_of_first = mean_figures(first)
    figures = mean_figures(runs)
    if len(figures_of_first) < len(first) or len(figures) < len(runs):
        return None
    return gap(metric, figures_of_first, figures)


def mean_figures(runs: Sequence[RunResult]) -> list[float]:
    """Returns the mean over clients of each run that has one."""
    return without_none(run.spread.mean for run in runs)


def gap(metric: Metric, first: Sequence[float], second: Sequence[float]) -> Difference:
    """Returns by how much `second` is above `first`.

    Whether that is an improvement is known only if the difference has an interval without 0.
    """
    pair = paired(first, second)
    low = pair.low
    high = pair.high
    better = None
    if low is not None and high is not None and (low > 0 or high < 0):
        better = metric.better(pair.difference, 0.0)
    return Difference(mean=pair.difference, low=low, high=high, better=better, p=pair.p)


def mean_params(runs: Sequence[RunResult]) -> float | None:
    """Returns the mean size of the clients' final networks, as far as sizes are known."""
    sizes = []
    for run in runs:
        for client in run.clients:
            if client.params is not None:
                sizes.append(client.params)
    if not sizes:
        return None
    return fmean(sizes)


def mean_macs(runs: Sequence[RunResult]) -> float | None:
    """Returns the mean MACs per sample of the clients' final networks, as far as they are known."""
    costs = []
    for run in runs:
        for client in run.clients:
            if client.macs is not None:
                costs.append(client.macs)
    if not costs:
        return None
    return fmean(costs)
