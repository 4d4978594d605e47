"""The sections of a page that compares methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedloom.records.auto import AutoResult
from fedloom.records.comparison import MethodRow
from fedloom.report.cautions import cautions_of_methods
from fedloom.report.comparison_table import (
    MOST_COMMON,
    about_worst,
    cells_beside,
    columns_beside,
    difference,
    differences_in,
    most_common_class,
    plus_minus,
    pooled_text,
    shared_text,
    small_print,
    stage_names,
    stage_text,
    undecided_methods,
    unfair,
)
from fedloom.report.damage import damage_note
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe, joined, tag
from fedloom.report.numbers import SHORT, amount, duration, percent
from fedloom.report.parts import Tile, code, note, section, table, tiles, warning
from fedloom.report.sections import leaderboard
from fedloom.report.sections.headline import data_title
from fedloom.report.sections.method_clients import clients
from fedloom.report.sections.method_costs import sizes, spent
from fedloom.report.sections.method_curves import curves, flat
from fedloom.report.sections.method_tiers import tiers as tiers_of_devices
from fedloom.report.story import Story

LINKS = {
    "curves": "Convergence",
    "clients": "Clients",
    "tiers": "Tiers",
    "sizes": "Costs",
    "spent": "Result against spending",
    "runs": "Runs",
    "origin": "Reproduce",
}
IN_RUNS = {"balanced_accuracy": "balanced", "auc": "AUC"}  # headings in the table of runs
Link = Callable[[Path], str] | None  # returns the link to a run's own report; None: there is none


def links(versus: Versus) -> dict[str, str]:
    """Return the texts of the page's menu."""
    if versus.contest is None:
        return LINKS
    return {**leaderboard.LINKS, **LINKS}


def title(versus: Versus) -> str:
    data = "nothing yet"
    if versus.stories:
        data, _, _ = data_title(versus.stories[0]).rpartition(", seed")
    if versus.contest is not None:
        return f"The model to use on {data}"
    return f"{len(versus.groups)} methods on {data}"


def sections(versus: Versus, link: Link) -> dict[str, Safe]:
    auto_sections: dict[str, Safe] = {}
    if versus.contest is not None:
        auto_sections = leaderboard.sections_of_auto(versus)
    return {
        "headline": headline(versus),
        **auto_sections,
        "curves": curves(versus),
        "clients": clients(versus),
        "tiers": tiers_of_devices(versus),
        "sizes": sizes(versus),
        "spent": spent(versus),
        "runs": runs(versus, link),
        "origin": origin(versus),
    }


def headline(versus: Versus) -> Safe:
    folder = None
    if versus.path is not None:
        folder = tag("p", versus.path.resolve().name, class_="eyebrow")
    content = underway(versus)
    if versus.auto_result is not None:
        content = auto_verdict(versus, versus.auto_result)
    elif versus.rows:
        content = result(versus)
    heading = tag("h1", title(versus))
    damage = damage_note(versus.all_damage)
    return tag("section", folder, heading, content, damage, id="headline")


def auto_verdict(versus: Versus, auto_result: AutoResult) -> Safe:
    """Return the verdict, what readers must know before the figures, and the main figures."""
    return joined(
        tag("p", auto_result.verdict, class_="lead"),
        warning(cautions_of_methods(versus.rows)),
        tiles(*tiles_of_auto(versus, auto_result)),
    )


def tiles_of_auto(versus: Versus, auto_result: AutoResult) -> list[Tile]:
    metric = versus.metric
    winner = auto_result.winner
    over_clients = "mean over clients"
    if winner.test.interval is not None:
        low, high = map(metric.text, winner.test.interval)
        over_clients = f"mean over clients, 95 % interval {low} to {high}"
    shown = [
        Tile(f"test {metric.name}", f"{metric.text(winner.test.mean)}{metric.unit}", over_clients),
        Tile("worst client", f"{metric.text(winner.test.worst)}{metric.unit}"),
        Tile("MACs", amount(winner.macs), "per sample"),
        Tile("parameters", amount(winner.params)),
    ]
    if auto_result.mixed is not None:
        mean = f"{metric.text(auto_result.mixed.mean)}{metric.unit}"
        shown.append(Tile("each client's own choice", mean, "where decisive on validation"))
    return shown


def underway(versus: Versus) -> Safe:
    started = len(versus.stories)
    finished = sum(story.standing == "finished" for story in versus.stories)
    planned = len(versus.groups) * versus.seeds
    bar = tag("progress", value=finished, max=max(1, planned), aria_label="runs done")
    sentence = f"{state(versus)}: {finished} of {planned} runs are finished, {started} begun."
    return joined(tag("p", sentence, class_="lead"), bar)


def state(versus: Versus) -> str:
    if versus.standing == "running":
        return "This comparison is in progress"
    if versus.damage is not None:
        return "This comparison has no readable result, and no process is working on it"
    advice = f"Continue it with `fedloom resume {versus.path}`"
    return f"This comparison is not finished, and no process is working on it. {advice}"


def result(versus: Versus) -> Safe:
    metric = versus.metric
    head = [
        "method",
        metric.short + metric.unit,
        *(SHORT[name] for name in columns_beside(versus.rows)),
        "vs first",
        "pooled",
        "worst",
        "shared",
        "params",
        "rounds",
        "MACs",
        "bytes",
        "time",
        "memory",
    ]
    place = head.index("params")
    head[place:place] = [after(stage) for stage in stage_names(versus.rows)]
    rows = [cells_of(row, versus.rows) for row in versus.rows]
    most_common = most_common_class(versus.rows)
    if most_common is not None:
        blank: list[Child] = [""] * (len(head) - 2)
        rows.append([MOST_COMMON, metric.text(most_common), *blank])
    return joined(
        tag("p", verdict(versus), class_="lead"),
        warning(cautions_of_methods(versus.rows)),
        table(head, rows, label="methods"),
        note(below_the_table(versus)),
    )


def after(stage: str) -> str:
    """Return the heading of the column with a stage's final figures."""
    return f"after {stage}"


def below_the_table(versus: Versus) -> str:
    if versus.alike:
        columns = ", ".join(after(stage) for stage in stage_names(versus.rows))
        return small_print(versus.rows, versus.metric, columns)
    splits = (
        "These runs used different splits, so the method is not all that differs between them; "
        "only runs on the splits of the first are paired with it."
    )
    return f"{splits} In the table, {about_worst(versus.rows)}.{unfair(versus.rows)}"


def cells_of(row: MethodRow, rows: Sequence[MethodRow]) -> list[Child]:
    """Return the row of one method; the `rows` of all methods decide which columns there are."""
    metric = row.judged_by
    name = row.name
    for option, value in (row.tuned or {}).items():
        name += f" {option}={value}"
    memory = "–"
    if row.memory is not None:
        memory = f"{amount(row.memory)}B"
    stages = [stage_text(row, stage) for stage in stage_names(rows)]
    return [
        name,
        flat(plus_minus(row.figure, metric)),
        *cells_beside(row, rows),
        flat(difference(row, metric)),
        pooled_text(row),
        metric.text(row.worst.mean),
        shared_text(row),
        *stages,
        amount(row.params),
        f"{row.rounds:g}",
        amount(row.macs),
        f"{amount(row.bytes)}B",
        duration(row.seconds),
        memory,
    ]


def verdict(versus: Versus) -> str:
    """Say which methods are better, as far as the intervals allow, and no more."""
    metric = versus.metric
    first = versus.rows[0].name
    beyond_chance = "beyond chance between seeds (95 %)"
    undecided = undecided_methods(versus.rows)
    sentences = []
    parts = beaten(versus.rows, first)
    if parts:
        plain = f"By mean {metric.title}, {'; '.join(parts)}, {beyond_chance}."
        sentences.append(f"{plain}{after_holm(versus.rows, first)}")
    elif versus.seeds == 1:
        return "One seed: this is an example, not evidence."
    elif len(undecided) < len(differences_in(versus.rows)) or not undecided:
        sentences.append(f"No difference in {metric.title} to {first} is {beyond_chance}.")
    if undecided:
        unclear = f"It is unclear whether {', '.join(undecided)} and {first} differ"
        sentences.append(f"{unclear}: the difference is the same with every seed.")
    return " ".join(sentences)


def beaten(rows: Sequence[MethodRow], first: str) -> list[str]:
    """Say who beats whom, by the differences of these rows that have a verdict."""
    ahead = []
    behind = []
    for row in rows:
        if row.difference is None or row.difference.is_improvement is None:
            continue
        if row.difference.is_improvement:
            ahead.append(row.name)
        else:
            behind.append(row.name)
    parts = []
    if ahead:
        verb = "beat"
        if len(ahead) == 1:
            verb = "beats"
        parts.append(f"{', '.join(ahead)} {verb} {first}")
    if behind:
        parts.append(f"{first} beats {', '.join(behind)}")
    return parts


def after_holm(rows: Sequence[MethodRow], first: str) -> str:
    """Say which verdicts hold after adjusting for all comparisons; "" for a single comparison."""
    gaps = differences_in(rows)
    if len(gaps) < 2 or all(gap.holm is None for gap in gaps):
        return ""
    significant = []
    for row in rows:
        gap = row.difference
        if gap is not None and gap.holm is not None and gap.holm.significant:
            significant.append(row)
    parts = beaten(significant, first)
    adjusted = f"Adjusted for {len(gaps)} comparisons (Holm)"
    if not parts:
        return f" {adjusted}, none of it is beyond chance."
    return f" {adjusted}, {'; '.join(parts)}."


def runs(versus: Versus, link: Link) -> Safe:
    """List every run, with a link to its own report if there is one."""
    rows = []
    for group in versus.groups:
        for story in group.stories:
            beside = [figure_beside(story, name) for name in columns_of_runs(versus)]
            rows.append([*run_cells(story, group, link), *beside])
    if not rows:
        return section("runs", "Runs")
    head = ["run", "method", "seed", "state", "rounds", f"mean {versus.metric.title}"]
    head += [IN_RUNS[name] for name in columns_of_runs(versus)]
    return section("runs", "Runs", table(head, rows, words=("method", "state"), label="runs"))


def run_cells(story: Story, group: Group, link: Link) -> list[Child]:
    name: Child = story.name
    if link is not None and story.standing == "finished":
        name = tag("a", story.name, href=link(story.path))
    seed = "–"
    if story.config is not None:
        seed = str(story.config.seed)
    mean = None
    if story.result is not None:
        mean = story.result.spread.mean
    rounds = str(len(story.rows))
    return [name, group.name, seed, story.standing, rounds, story.figure(mean)]


def columns_of_runs(versus: Versus) -> list[str]:
    """Return the names of the figures beside the metric; AUC if some run has two classes."""
    if not versus.metric.counts_answers:
        return []
    names = ["balanced_accuracy"]
    for story in versus.stories:
        if story.result is not None and story.result.has_two_classes:
            return [*names, "auc"]
    return names


def figure_beside(story: Story, name: str) -> str:
    """Write the mean over the clients of one run."""
    if story.result is None or name not in story.result.columns_of_classes:
        return "–"
    mean = story.result.spread_of(name).mean
    if mean is None:
        return "–"
    return f"{percent(mean)} %"


def origin(versus: Versus) -> Safe:
    return section("origin", "How to reproduce this", code(versus.command))
