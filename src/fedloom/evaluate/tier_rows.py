"""The rows of a method's tiers in a comparison, over its seeds.

Differences are between networks for the same devices, on the test samples of all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedloom.evaluate.method_row import gap, mean_and_std, verdict
from fedloom.evaluate.paired import holm
from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Difference, MethodRow, TierRow
from fedloom.records.result import RunResult, TierResult

# The figures beside the metric's that both a tier's network and its row have.
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
    """Returns a method's row with the rows of its tiers, if the method has tiers.

    `first` are the first method's runs on the same seeds, in the same order.
    """
    metric = runs[0].judged_by
    tiers = []
    for networks in tiers_over_seeds(runs):
        number = networks[0].tier
        compared_with = None
        if first is not None and have_same_clients(runs, first, number):
            compared_with = networks_of_tier(first, number)
        tiers.append(tier_row(networks, compared_with, metric))
    if not tiers:
        return row
    return row.replace(tiers=tiers)


def tiers_over_seeds(runs: Sequence[RunResult]) -> list[list[TierResult]]:
    """Returns, for every tier that all runs have, its network in each run."""
    tiers = []
    for tier in runs[0].tiers:
        networks = networks_of_tier(runs, tier.tier)
        if networks is not None:
            tiers.append(networks)
    return tiers


def networks_of_tier(runs: Sequence[RunResult], number: int) -> list[TierResult] | None:
    """Returns a tier's network in each run, or None if a run does not have this tier."""
    networks = []
    for run in runs:
        for tier in run.tiers:
            if tier.tier == number:
                networks.append(tier)
    if len(networks) < len(runs):
        return None
    return networks


def have_same_clients(
    runs: Sequence[RunResult],
    first: Sequence[RunResult],
    number: int,
) -> bool:
    """Whether a tier has the same devices in both methods, with every seed.

    The methods may differ in their number of tiers, or in the limits of their tiers.
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
    over_clients = without_none(network.own for network in networks)
    row = TierRow(
        tier=networks[0].tier,
        own=mean_and_std([spread.mean for spread in over_clients]),
        worst=mean_and_std([spread.worst for spread in over_clients]),
        pooled=mean_and_std([network.pooled_over_all for network in networks]),
        supernet=mean_and_std([network.supernet for network in networks]),
        params=fmean(network.params for network in networks),
        macs=fmean(network.macs for network in networks),
    )
    for name in BESIDE:
        figures = mean_and_std([getattr(network, name) for network in networks])
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
    """Returns the difference from the first method, paired by seed.

    It is None if one of the runs has no figure.
    """
    figures_of_first = pooled_figures(first)
    figures = pooled_figures(networks)
    if len(figures_of_first) < len(networks) or len(figures) < len(networks):
        return None
    return gap(metric, figures_of_first, figures)


def pooled_figures(networks: Sequence[TierResult]) -> list[float]:
    """Returns the figures over all clients' samples, of the networks that have one."""
    return without_none(network.pooled_over_all for network in networks)


def tiers_with_holm(rows: Sequence[MethodRow]) -> list[MethodRow]:
    """Adds to every tier's difference its verdict, adjusted for all tiers of all methods."""
    p_values = []
    for row in rows:
        for tier in row.tiers:
            if tier.difference is not None:
                p_values.append(tier.difference.p)
    adjusted = iter(holm(p_values))
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
