"""The section that compares the device tiers of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedloom.evaluate.summary import without_none
from fedloom.records.comparison import MethodRow
from fedloom.records.result import RunResult
from fedloom.report.comparison_table import pooled_text, with_beside
from fedloom.report.figures.ranked import Ranked, Ranks
from fedloom.report.figures.tradeoff import Offer, Offers, Tradeoff
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import amount
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.run_table import figure_cells, figure_columns
from fedloom.report.sections.method_curves import flat
from fedloom.report.sections.tiers import figures_of, in_ascending_order
from fedloom.report.tier_tables import cells_in_versus, small_print, versus_columns


def tiers(versus: Versus) -> Safe:
    """Return the section; it is hidden if no method has tiers."""
    if not any(row.tiers for row in versus.rows):
        return section("tiers", "Tiers of devices")
    return section(
        "tiers",
        "Tiers of devices",
        tiers_table(versus.rows),
        note(small_print(versus.rows)),
        grid(against_macs(versus), by_tier(versus)),
    )


def tiers_table(rows: Sequence[MethodRow]) -> Safe:
    cells: list[list[Child]] = []
    for row in rows:
        for tier in row.tiers:
            cells.append([row.name, *map(flat, cells_in_versus(tier, row, rows))])
    head = ["method", *versus_columns(rows)]
    return table(head, cells, label="tiers of the methods")


def against_macs(versus: Versus) -> Safe | None:
    """Draw a line for each method with tiers, and a point for each method without."""
    if len(versus.rows) != len(versus.groups):  # the comparison's own file was edited
        return None
    metric = versus.metric
    lines = []
    cells: list[list[Child]] = []
    for number, (row, group) in enumerate(zip(versus.rows, versus.groups, strict=True)):
        points = offers_of(row, group)
        if points:
            lines.append(Offers(row.name, [point.offer for point in points], number))
        for point in points:
            tier = "–"
            if row.tiers:
                tier = point.offer.name
            cells.append([row.name, tier, amount(point.offer.cost), point.text])
    if not lines:
        return None
    heading = f"{metric.heading} against MACs over the tiers"
    drawing = Tradeoff(
        key="tiers-macs",
        title=heading,
        description=f"{len(lines)} methods.",
        lines=lines,
        x_name="MACs per sample",
        y_name=f"{metric.title}{metric.unit}",
        x_text=amount,
        y_text=metric.text,
        bounds=metric.bounds,
    )
    sentences = ["Over the test samples of all clients.", "One point per tier, with its number;"]
    sentences.append("a method without tiers has one, at the mean MACs of its clients' networks.")
    if versus.seeds > 1:
        sentences.append("Means over seeds; lines: their standard deviation.")
    if metric.counts_answers:
        balanced = "for tiers the mean over clients, otherwise over all samples"
        sentences.append(f"In the table, in parentheses, balanced accuracy: {balanced}.")
    fallback = table(["method", "tier", "MACs per sample", metric.title], cells, label=heading)
    return figure("tiers-macs", heading, drawing.draw(), " ".join(sentences), fallback)


@dataclass(frozen=True)
class OfferWithText:
    """A point of the drawing, and its figures as the table shows them."""

    offer: Offer
    text: str


def offers_of(row: MethodRow, group: Group) -> list[OfferWithText]:
    """Return the costs of a method's networks and their figures over all clients."""
    offers = []
    for tier in row.tiers:
        if tier.pooled.mean is not None:
            offer = Offer(str(tier.tier), tier.macs, tier.pooled.mean, tier.pooled.std)
            figure = row.judged_by.text(tier.pooled.mean)
            text = with_beside(figure, [tier.global_balanced_accuracy, tier.global_auc], " ")
            offers.append(OfferWithText(offer, text))
    if row.tiers or row.pooled.mean is None:
        return offers
    macs = mean_macs(group)
    if macs is None:
        return []
    offer = Offer(row.name, macs, row.pooled.mean, row.pooled.std)
    return [OfferWithText(offer, pooled_text(row))]


def mean_macs(group: Group) -> float | None:
    """Return the mean MACs of the clients' final networks; None: they are not known."""
    amounts = []
    for story in group.stories:
        amounts += without_none(client.macs for client in story.clients)
    if not amounts:
        return None
    return fmean(amounts)


@dataclass(frozen=True)
class TieredRun:
    """The first seed's run of a method with tiers."""

    name: str
    result: RunResult


def by_tier(versus: Versus) -> Safe | None:
    """Draw each tier's clients in ascending order, if runs have the same splits and tiers."""
    runs = tiered_runs(versus)
    if not runs or not versus.alike:
        return None
    metric = versus.metric
    groups = []
    cells: list[list[Child]] = []
    for tier in runs[0].result.tiers:
        figures = []
        for run in runs:
            clients = in_ascending_order(run.result, tier.tier)
            figures.append(figures_of(clients))
            for client in clients:
                name = versus.stories[0].client_name(client.client)
                figures_of_client = figure_cells(client, run.result)
                cells.append([name, str(tier.tier), run.name, *figures_of_client])
        if any(figures):
            groups.append(Ranks(f"tier {tier.tier}", figures))
    if not groups:
        return None
    heading = f"{metric.heading} of the clients of each tier"
    drawing = Ranked(
        key="by-tier",
        title=heading,
        description=f"{len(runs)} methods; clients of each tier, in ascending order.",
        groups=groups,
        runs=[run.name for run in runs],
        x_name="number of clients, in ascending order",
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        bounds=metric.bounds,
    )
    seed = runs[0].result.seed
    caption = (
        f"Seed {seed}. Every client on its own test data, with its tier's network; clients are "
        "sorted for each method separately."
    )
    head = ["client", "tier", "method", *figure_columns(runs[0].result)]
    fallback = table(head, cells, words=("method",), label=heading)
    return figure("by-tier", heading, drawing.draw(), caption, fallback)


def tiered_runs(versus: Versus) -> list[TieredRun]:
    """Return the runs whose clients are in the same tiers as the first one's."""
    runs: list[TieredRun] = []
    for group in versus.groups:
        if not group.stories:
            continue
        result = group.stories[0].result
        if result is None or not result.tiers:
            continue
        if not runs or client_tiers(result) == client_tiers(runs[0].result):
            runs.append(TieredRun(group.name, result))
    return runs


def client_tiers(result: RunResult) -> dict[int, int | None]:
    """Return the tier of every client."""
    return {client.client: client.tier for client in result.clients}
