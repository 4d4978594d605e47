"""Tiers of devices: each tier's network, its cost, and the figures of its clients."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.evaluate.summary import without_none
from fedloom.records.result import ClientResult, RunResult, TierResult
from fedloom.report.figures.ranked import Ranked, Ranks
from fedloom.report.figures.tradeoff import Offer, Offers, Tradeoff
from fedloom.report.html import Child, Safe, joined
from fedloom.report.numbers import NAMED, amount, figure_with
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.run_table import figure_cells, figure_columns
from fedloom.report.story import Story
from fedloom.report.tier_tables import beside_over_all, cells_of_tier, supernet_beside, tier_columns

MEANINGS = {  # of the table's columns
    "eligible": "clients that can run it, of this tier and above",
    "width": "of its layers, as a share of the widest network's",
    "val. %": "accuracy of the chosen path with the supernet's weights, on validation samples",
    "control %": "the same for a random path of about the same cost",
    "supernet": "with the supernet's weights, before tuning, over the test samples of all clients",
    "all": "its network over the test samples of all clients, also of those that cannot run it",
    "own": "mean over the tier's own clients, each on its own test data",
    "bal. %": "balanced accuracy, in which every class counts the same, mean over these clients",
    "AUC %": "area under the ROC curve, mean over these clients",
    "worst": "the worst of these clients",
    "tuned": "rounds of the last stage that trained it",
}
AFTER_TUNING = "the tiers' networks"
BEFORE_TUNING = "the same with the supernet's weights, before tuning"


def tiers(story: Story) -> Safe:
    result = story.result
    if result is None or not result.tiers:
        return section("tiers", "Tiers of devices")
    return section(
        "tiers",
        "Tiers of devices",
        tier_table(result),
        fairness(story, result),
        remarks(result.tiers),
        missing_figures(result.tiers),
        score_agreement(result.tiers),
        grid(against_macs(story, result), by_tier(story, result)),
    )


def tier_table(result: RunResult) -> Safe:
    """Return the table without its empty columns, and explain the others."""
    metric = result.judged_by
    lines = [cells_of_tier(tier, result) for tier in result.tiers]
    head = []
    meanings = []
    rows: list[list[Child]] = [[] for _ in lines]
    for column, name in enumerate(tier_columns(result)):
        if all(line[column] == "–" for line in lines):
            continue
        head.append(name)
        for row, line in zip(rows, lines, strict=True):
            row.append(line[column])
        meaning = MEANINGS.get(name) or MEANINGS.get(name.removesuffix(metric.unit))
        if meaning is not None:
            meanings.append(f"{name}: {meaning}")
    numbers = table(head, rows, words=("at most",), label="tiers of devices")
    return joined(numbers, note(f"{'; '.join(meanings)}.{about_parentheses(result)}"))


def about_parentheses(result: RunResult) -> str:
    """Explain figures in parentheses; "" where no tier has any, as for text."""
    tiers = result.tiers
    sentences = []
    names = " and ".join(NAMED[name] for name in result.columns_of_classes)
    if any(tier.global_balanced_accuracy is not None for tier in tiers):
        places = "In parentheses after supernet and all"
        sentences.append(f" {places}: {names}, mean over all clients.")
    scored = without_none(tier.validation for tier in tiers)
    if any(score.balanced_accuracy is not None for score in scored):
        sentences.append(f" After val. and control: {names} on the same samples.")
    elif scored and result.judged_by.counts_answers:
        unknown = "clients send sums over all classes, or an earlier version scored"
        sentences.append(f" Balanced accuracy of val. and control is not known: {unknown}.")
    return "".join(sentences)


def fairness(story: Story, result: RunResult) -> Safe | None:
    """Say how far the tiers' figures are apart."""
    across = result.fairness
    if across is None or across.mean is None:
        return None
    spread = f"{story.figure(across.mean)} ± {story.metric.text(across.std)}"
    worst = f"the worst tier has {story.figure(across.worst)}"
    return note(f"Over the means of the tiers' own clients: {spread}; {worst}.")


def remarks(tiers: Sequence[TierResult]) -> Safe | None:
    """Return the method's notes on its tiers; a note that several tiers have is shown once."""
    texts = without_none(tier.note for tier in tiers)
    if not texts:
        return None
    return note(f"{'; '.join(dict.fromkeys(texts))}.")


def missing_figures(tiers: Sequence[TierResult]) -> Safe | None:
    """Say which tiers lack a control or a figure over all clients, and why."""
    reasons = []
    for tier in tiers:
        if tier.validation is not None and tier.control.reason is not None:
            reasons.append(f"tier {tier.tier} has no control: {tier.control.reason}")
        if tier.reason is not None:
            reasons.append(f"tier {tier.tier} lacks a figure over all clients: {tier.reason}")
    if not reasons:
        return None
    sentence = "; ".join(reasons)
    return note(f"{sentence[0].upper()}{sentence[1:]}.")


def score_agreement(tiers: Sequence[TierResult]) -> Safe | None:
    """Say how well scores predicted final figures, if several paths of a tier were tuned."""
    parts = []
    for tier in tiers:
        if tier.top_tau is not None:
            paths = f"{len(tier.top)} paths"
            parts.append(f"tier {tier.tier} {tier.top_tau:.2f} ({paths})")
    if not parts:
        return None
    taus = ", ".join(parts)
    return note(f"Kendall's τ between scores and figures after tuning: {taus}.")


def against_macs(story: Story, result: RunResult) -> Safe | None:
    """Draw every tier's network over all clients against its MACs, before and after tuning."""
    metric = story.metric
    tuned = []
    before = []
    cells: list[list[Child]] = []
    for tier in result.tiers:
        name = f"tier {tier.tier}"
        if tier.pooled_over_all is not None:
            tuned.append(Offer(str(tier.tier), tier.macs, tier.pooled_over_all))
        if tier.supernet is not None:
            before.append(Offer(str(tier.tier), tier.macs, tier.supernet))
        supernet = figure_with(metric.text(tier.supernet), supernet_beside(tier))
        over_all = figure_with(metric.text(tier.pooled_over_all), beside_over_all(tier))
        cells.append([name, amount(tier.macs), supernet, over_all])
    lines = []
    if tuned:
        lines.append(Offers(AFTER_TUNING, tuned, 0))
    if before:
        lines.append(Offers(BEFORE_TUNING, before, 1))
    if not lines:
        return None
    heading = f"{metric.heading} against MACs over the tiers"
    drawing = Tradeoff(
        key="tiers-macs",
        title=heading,
        description=f"{len(result.tiers)} tiers.",
        lines=lines,
        x_name="MACs per sample",
        y_name=f"{metric.title}{metric.unit}",
        x_text=amount,
        y_text=metric.text,
        bounds=metric.bounds,
    )
    caption = "One point per tier, with its number: its network over all clients' test samples."
    if any(tier.global_balanced_accuracy is not None for tier in result.tiers):
        caption += " In the table, in parentheses, balanced accuracy, mean over clients."
    head = ["tier", "MACs per sample", "before tuning", "after tuning"]
    fallback = table(head, cells, label=heading)
    return figure("tiers-macs", heading, drawing.draw(), caption, fallback)


def by_tier(story: Story, result: RunResult) -> Safe | None:
    """Draw every tier's own clients, from the lowest figure to the highest."""
    metric = story.metric
    groups = []
    cells: list[list[Child]] = []
    for tier in result.tiers:
        clients = in_ascending_order(result, tier.tier)
        if not clients:
            continue
        groups.append(Ranks(f"tier {tier.tier}", [figures_of(clients)]))
        for client in clients:
            name = story.client_name(client.client)
            cells.append([name, str(tier.tier), *figure_cells(client, result)])
    if not groups:
        return None
    heading = f"{metric.heading} of the clients of each tier"
    drawing = Ranked(
        key="by-tier",
        title=heading,
        description="Clients of each tier, in ascending order.",
        groups=groups,
        runs=[story.method],
        x_name="number of clients, in ascending order",
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        bounds=metric.bounds,
    )
    caption = "Every client on its own test data, with its tier's network; one group per tier."
    head = ["client", "tier", *figure_columns(result)]
    fallback = table(head, cells, label=heading)
    return figure("by-tier", heading, drawing.draw(), caption, fallback)


def in_ascending_order(result: RunResult, tier: int) -> list[ClientResult]:
    """Return the clients of a tier that have a figure, from the lowest figure to the highest."""
    clients = []
    for client in result.clients:
        if client.tier == tier and client.figure is not None:
            clients.append(client)
    return sorted(clients, key=lambda client: client.figure or 0.0)


def figures_of(clients: Sequence[ClientResult]) -> list[float]:
    return without_none(client.figure for client in clients)
