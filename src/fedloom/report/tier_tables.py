"""Tables of device tiers: one run's for its page, several methods' also for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from fedloom.records.comparison import MethodRow, OverSeeds, TierRow
from fedloom.records.result import PathScore, RunResult, TierResult
from fedloom.report.comparison_table import NEW_LINE, difference_text, plus_minus, with_beside
from fedloom.report.numbers import (
    NAMED,
    SHORT,
    amount,
    direction,
    figure_with,
    percent,
    percents,
)
from fedloom.report.tables import plain_table

# The units of limits, written after the number.
UNITS = {
    "macs": "MACs",
    "macs_paper": "MACs (paper)",
    "params": "parameters",
    "latency_ms": "ms",
}
OWN = "Own: mean over the clients of the tier, each on its own test data"
BESIDE = {
    "balanced_accuracy": "bal.: balanced accuracy, mean over the clients of the tier",
    "auc": "AUC: area under the ROC curve, mean over these clients",
}
OTHER_MEANINGS = (
    "worst: the worst of these clients",
    "all: the tier's network over the test samples of all clients, whatever their tier is",
    "vs first: the difference in `all` to the first method's tier that has the same clients",
    "supernet: as `all`, with the supernet's weights, before tuning",
    "MACs: per sample",
)


def limit_text(limit: Mapping[str, float]) -> str:
    """Write a tier's limits: `201 k MACs, 10 k parameters`."""
    parts = []
    for unit, most in limit.items():
        parts.append(f"{amount(most)} {UNITS.get(unit, unit)}")
    return ", ".join(parts) or "–"


def tier_columns(result: RunResult) -> list[str]:
    """Return the headings of `cells_of_tier`."""
    unit = result.judged_by.unit
    beside = [f"{SHORT[name]} %" for name in result.columns_of_classes]
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
        *beside,
        f"worst{unit}",
        "tuned",
    ]


def cells_of_tier(tier: TierResult, result: RunResult) -> list[str]:
    metric = result.judged_by
    width = "–"
    if tier.width is not None:
        width = f"{tier.width:g}"
    own = None
    worst = None
    if tier.own is not None:
        own = tier.own.mean
        worst = tier.own.worst
    figures = {"balanced_accuracy": tier.balanced_accuracy, "auc": tier.auc}
    return [
        f"tier {tier.tier}",
        limit_text(tier.limit),
        str(tier.clients),
        str(tier.eligible),
        width,
        amount(tier.params),
        amount(tier.macs),
        score_text(tier.validation),
        score_text(tier.control.validation),
        figure_with(metric.text(tier.supernet), supernet_beside(tier)),
        figure_with(metric.text(tier.pooled_over_all), beside_over_all(tier)),
        metric.text(own),
        *percents(figures, result.columns_of_classes),
        metric.text(worst),
        str(tier.tuned_rounds),
    ]


def score_text(score: PathScore | None) -> str:
    """Write a path's accuracy, with balanced accuracy and AUC if known: `81.0 (75.2)`."""
    if score is None:
        return "–"
    return figure_with(percent(score.accuracy), [score.balanced_accuracy, score.auc])


def supernet_beside(tier: TierResult) -> list[float | None]:
    return [tier.supernet_balanced_accuracy, tier.supernet_auc]


def beside_over_all(tier: TierResult) -> list[float | None]:
    return [tier.global_balanced_accuracy, tier.global_auc]


def tiers_of_methods(methods: Sequence[MethodRow]) -> Table:
    """Return a table with one row per tier of every method that has tiers."""
    metric = methods[0].judged_by
    columns = ["method", *versus_columns(methods)]
    table = plain_table(
        f"tiers of devices, {metric.title}{metric.unit}", small_print(methods), columns
    )
    for row in methods:
        if row.tiers:
            table.add_section()
        name = row.name  # in the first of its rows
        for tier in row.tiers:
            table.add_row(name, *cells_in_versus(tier, row, methods))
            name = ""
    return table


def versus_columns(methods: Sequence[MethodRow]) -> list[str]:
    """Return the headings of `cells_in_versus`."""
    beside = [SHORT[name] for name in names_beside(methods)]
    return ["tier", "own", *beside, "worst", "all", "vs first", "supernet", "params", "MACs"]


def names_beside(methods: Sequence[MethodRow]) -> list[str]:
    """Return the names of the figures beside the metric; AUC only if some tier has it."""
    if not methods[0].judged_by.counts_answers:
        return []
    names = ["balanced_accuracy"]
    for row in methods:
        if any(tier.auc is not None for tier in row.tiers):
            return [*names, "auc"]
    return names


def cells_in_versus(tier: TierRow, row: MethodRow, methods: Sequence[MethodRow]) -> list[str]:
    """Return the row of one tier of one method, without the method's name."""
    metric = row.judged_by
    gap = ""
    if tier.difference is not None:
        gap = difference_text(tier.difference, row.runs, metric)
    figures = {"balanced_accuracy": tier.balanced_accuracy, "auc": tier.auc}
    beside = [mean_text(figures[name]) for name in names_beside(methods)]
    return [
        str(tier.tier),
        plus_minus(tier.own, metric),
        *beside,
        metric.text(tier.worst.mean),
        with_beside(
            plus_minus(tier.pooled, metric),
            [tier.global_balanced_accuracy, tier.global_auc],
            NEW_LINE,
        ),
        gap,
        with_beside(
            metric.text(tier.supernet.mean),
            [tier.supernet_balanced_accuracy, tier.supernet_auc],
            NEW_LINE,
        ),
        amount(tier.params),
        amount(tier.macs),
    ]


def mean_text(figure: OverSeeds | None) -> str:
    if figure is None:
        return "–"
    return percent(figure.mean)


def small_print(methods: Sequence[MethodRow]) -> str:
    """Explain the columns, and what may be concluded from them."""
    metric = methods[0].judged_by
    sentences = [f"One row per tier; {metric.title}{direction(metric)}."]
    meanings = [OWN, *OTHER_MEANINGS]
    beside = [BESIDE[name] for name in names_beside(methods)]
    meanings[1:1] = beside
    sentences.append(f"{'; '.join(meanings)}.")
    sentences += about_parentheses(methods)
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


def about_parentheses(methods: Sequence[MethodRow]) -> list[str]:
    """Explain figures in parentheses; empty where no tier has any."""
    names = []
    for name in names_beside(methods):
        for row in methods:
            if any(getattr(tier, f"global_{name}") is not None for tier in row.tiers):
                names.append(NAMED[name])
                break
    if not names:
        return []
    return [f"In parentheses: {' and '.join(names)}, mean over all clients."]


def number_of_differences(methods: Sequence[MethodRow]) -> int:
    """Count the tiers, of all methods, that are compared with one of the first method."""
    count = 0
    for row in methods:
        count += sum(tier.difference is not None for tier in row.tiers)
    return count
