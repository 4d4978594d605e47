"""Tables of tiers of devices: of one run for its page, of several methods for the terminal too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from fedloom.metrics.metric import Metric
from fedloom.records.comparison import MethodRow, OverSeeds, TierRow
from fedloom.records.result import Control, PathScore, RunResult, TierResult
from fedloom.report.tables import (
    amount,
    difference_text,
    direction,
    percent,
    plain_table,
    plus_minus,
)

# What a limit counts, behind its number.
UNITS = {
    "macs": "MACs",
    "macs_paper": "MACs (paper)",
    "params": "parameters",
    "latency_ms": "ms",
}
OWN = "Own: mean over the clients of the tier, each on its own test data"
BALANCED = "bal.: balanced accuracy, mean over the clients of the tier"
OTHER_MEANINGS = (
    "worst: of them",
    "all: its network over the test samples of all clients, whatever their tier is",
    "vs first: of `all`, to the tier of the first method that has the same clients",
    "supernet: as `all`, with the supernet's weights, before tuning",
    "MACs: of a sample",
)


def limit_text(limit: Mapping[str, float]) -> str:
    """`201 k MACs, 10 k parameters`."""
    parts = []
    for unit, most in limit.items():
        parts.append(f"{amount(most)} {UNITS.get(unit, unit)}")
    return ", ".join(parts) or "–"


def tier_columns(result: RunResult) -> list[str]:
    """What stands above `cells_of_tier`."""
    unit = result.judged_by.unit
    balanced = []
    if result.judged_by.counts_answers:
        balanced.append("bal. %")
    return [
        "tier",
        "at most",
        "clients",
        "eligible",
        "width",
        "params",
        "MACs",
        "val. %",
        "control %",
        f"supernet{unit}",
        f"all{unit}",
        f"own{unit}",
        *balanced,
        f"worst{unit}",
        "tuned",
    ]


def cells_of_tier(tier: TierResult, metric: Metric) -> list[str]:
    width = "–"
    if tier.width is not None:
        width = f"{tier.width:g}"
    own = None
    worst = None
    if tier.own is not None:
        own = tier.own.mean
        worst = tier.own.worst
    balanced = []
    if metric.counts_answers:
        balanced.append(percent(tier.balanced_accuracy))
    return [
        f"tier {tier.tier}",
        limit_text(tier.limit),
        str(tier.clients),
        str(tier.eligible),
        width,
        amount(tier.params),
        amount(tier.macs),
        accuracy_text(tier.validation),
        control_text(tier.control),
        metric.text(tier.supernet),
        metric.text(tier.pooled_over_all),
        metric.text(own),
        *balanced,
        metric.text(worst),
        str(tier.tuned_rounds),
    ]


def accuracy_text(score: PathScore | None) -> str:
    if score is None:
        return "–"
    return percent(score.accuracy)


def control_text(control: Control) -> str:
    return accuracy_text(control.validation)


def tiers_of_methods(methods: Sequence[MethodRow]) -> Table:
    """A line a tier of every method that knows tiers."""
    metric = methods[0].judged_by
    columns = ["method", *versus_columns(metric)]
    table = plain_table(
        f"tiers of devices, {metric.name}{metric.unit}", small_print(methods), columns
    )
    for row in methods:
        if row.tiers:
            table.add_section()
        for number, tier in enumerate(row.tiers):
            name = row.name if number == 0 else ""
            table.add_row(name, *cells_in_versus(tier, row))
    return table


def versus_columns(metric: Metric) -> list[str]:
    """What stands above `cells_in_versus`."""
    columns = ["tier", "own", "worst", "all", "vs first", "supernet", "params", "MACs"]
    if metric.counts_answers:
        columns.insert(2, "bal.")
    return columns


def cells_in_versus(tier: TierRow, row: MethodRow) -> list[str]:
    """One tier of one method, without the method's name."""
    metric = row.judged_by
    gap = ""
    if tier.difference is not None:
        gap = difference_text(tier.difference, row.runs, metric)
    balanced = []
    if metric.counts_answers:
        balanced.append(balanced_text(tier.balanced_accuracy))
    return [
        str(tier.tier),
        plus_minus(tier.own, metric),
        *balanced,
        metric.text(tier.worst.mean),
        plus_minus(tier.pooled, metric),
        gap,
        metric.text(tier.supernet.mean),
        amount(tier.params),
        amount(tier.macs),
    ]


def balanced_text(figure: OverSeeds | None) -> str:
    if figure is None:
        return "–"
    return percent(figure.mean)


def small_print(methods: Sequence[MethodRow]) -> str:
    """What the columns mean, and what may be concluded from them."""
    metric = methods[0].judged_by
    sentences = [f"A line a tier; {metric.name}{direction(metric)}."]
    meanings = [OWN, *OTHER_MEANINGS]
    if metric.counts_answers:
        meanings.insert(1, BALANCED)
    sentences.append(f"{'; '.join(meanings)}.")
    if methods[0].runs <= 1:
        sentences.append("One seed: a difference has no interval.")
        return " ".join(sentences)
    sentences.append(f"± is the standard deviation over {methods[0].runs} seeds.")
    compared = number_of_differences(methods)
    if compared:
        paired = "Differences are paired by seed, with a 95 % interval (Student's t)"
        adjusted = f"p is adjusted for {compared} tiers (Holm)"
        sentences.append(f"{paired}; {adjusted}; *: beyond chance.")
    return " ".join(sentences)


def number_of_differences(methods: Sequence[MethodRow]) -> int:
    """Of all tiers of all methods."""
    count = 0
    for row in methods:
        count += sum(tier.difference is not None for tier in row.tiers)
    return count
