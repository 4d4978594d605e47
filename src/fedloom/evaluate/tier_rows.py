"""The tiers of one method over its seeds: what a comparison says of each.

A difference is between networks of the same devices, on the test samples of all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedloom.evaluate.method_row import gap, seeds, verdict
from fedloom.evaluate.paired import holm
from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Difference, MethodRow, TierRow
from fedloom.records.result import RunResult, TierResult

# What both a tier's network and its row have beside the metric's figures.
BESIDE = (
    "balanced_accuracy",
    "auc",
    "global_balanced_accuracy",
    "global_auc",
    "supernet_balanced_accuracy",
    "supernet_auc",
)


def with_tiers(
    row: MethodRow,
    runs: Sequence[RunResult],
    first: Sequence[RunResult] | None,
) -> MethodRow:
    """The row of a method with its tiers; that of a method without tiers as it is.

    `first`: the runs of the first method on the same seeds, in the same order.
    """
    metric = runs[0].judged_by
    tiers = []
    for networks in tiers_over_seeds(runs):
        number = networks[0].tier
        compared_with = None
        if first is not None and have_same_clients(runs, first, number):
            compared_with = of_number(first, number)
        tiers.append(tier_row(networks, compared_with, metric))
    if not tiers:
        return row
    return row.replace(tiers=tiers)


def tiers_over_seeds(runs: Sequence[RunResult]) -> list[list[TierResult]]:
    """For every tier that all runs have, its network in each of them."""
    tiers = []
    for tier in runs[0].tiers:
        networks = of_number(runs, tier.tier)
        if networks is not None:
            tiers.append(networks)
    return tiers


def of_number(runs: Sequence[RunResult], number: int) -> list[TierResult] | None:
    """The network of one tier in each run; None: a run does not have this tier."""
    networks = []
    for run in runs:
        networks += [tier for tier in run.tiers if tier.tier == number]
    if len(networks) < len(runs):
        return None
    return networks


def have_same_clients(
    runs: Sequence[RunResult],
    first: Sequence[RunResult],
    number: int,
) -> bool:
    """Whether a tier is the same devices in both methods, with every seed.

    Methods may have other numbers of tiers, or other limits.
    """
    for run, other in zip(runs, first, strict=True):
        if clients_of(run, number) != clients_of(other, number):
            return False
    return True


def clients_of(run: RunResult, number: int) -> set[int]:
    return {client.client for client in run.clients if client.tier == number}


def tier_row(
    networks: Sequence[TierResult],
    first: Sequence[TierResult] | None,
    metric: Metric,
) -> TierRow:
    means = []
    worsts = []
    for network in networks:
        if network.own is not None:
            means.append(network.own.mean)
            worsts.append(network.own.worst)
    row = TierRow(
        tier=networks[0].tier,
        own=seeds(means),
        worst=seeds(worsts),
        pooled=seeds([network.pooled_over_all for network in networks]),
        supernet=seeds([network.supernet for network in networks]),
        params=fmean(network.params for network in networks),
        macs=fmean(network.macs for network in networks),
    )
    for name in BESIDE:
        figures = seeds([getattr(network, name) for network in networks])
        if figures.mean is not None:
            row = row.replace(**{name: figures})
    if first is None:
        return row
    return row.replace(difference=difference(networks, first, metric))


def difference(
    networks: Sequence[TierResult],
    first: Sequence[TierResult],
    metric: Metric,
) -> Difference | None:
    """Paired by seed; None where a run has no figure."""
    before = pooled_figures(first)
    after = pooled_figures(networks)
    if len(before) < len(networks) or len(after) < len(networks):
        return None
    return gap(metric, before, after)


def pooled_figures(networks: Sequence[TierResult]) -> list[float]:
    """Of those that have one."""
    figures = []
    for network in networks:
        if network.pooled_over_all is not None:
            figures.append(network.pooled_over_all)
    return figures


def tiers_with_holm(rows: Sequence[MethodRow]) -> list[MethodRow]:
    """Every tier's difference with its verdict beside those of all tiers and methods."""
    judged = []
    for row in rows:
        for tier in row.tiers:
            if tier.difference is not None:
                judged.append(tier.difference)
    adjusted = iter(holm([difference.p for difference in judged]))
    adjusted_rows = []
    for row in rows:
        tiers = []
        for tier in row.tiers:
            if tier.difference is not None:
                with_verdict = tier.difference.replace(holm=verdict(next(adjusted)))
                tier = tier.replace(difference=with_verdict)
            tiers.append(tier)
        if tiers:
            row = row.replace(tiers=tiers)
        adjusted_rows.append(row)
    return adjusted_rows
