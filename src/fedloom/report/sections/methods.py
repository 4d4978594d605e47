"""Sections of a page that puts methods beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedloom.metrics.metric import Metric
from fedloom.records.comparison import MethodRow
from fedloom.report.damage import damage_note
from fedloom.report.groups import Versus
from fedloom.report.html import Child, Safe, joined, tag
from fedloom.report.parts import code, note, section, table
from fedloom.report.sections.headline import about_data
from fedloom.report.sections.method_figures import clients, curves, flat, sizes
from fedloom.report.tables import amount, difference, duration, plus_minus, small_print, unfair

LINKS = {"curves": "Convergence", "clients": "Clients", "sizes": "Costs", "runs": "Runs", "origin": "Reproduce"}
Link = Callable[[Path], str] | None  # the way to a run's own report, where there is one


def title(versus: Versus) -> str:
    about = about_data(versus.stories[0]).rpartition(", seed")[0] if versus.stories else "nothing yet"
    return f"{len(versus.groups)} methods on {about}"


def sections(versus: Versus, link: Link) -> dict[str, Safe]:
    return {
        "headline": headline(versus), "curves": curves(versus), "clients": clients(versus),
        "sizes": sizes(versus), "runs": runs(versus, link), "origin": origin(versus),
    }  # fmt: skip


def headline(versus: Versus) -> Safe:
    where = None if versus.path is None else tag("p", versus.path.resolve().name, class_="eyebrow")
    content = result(versus) if versus.rows else underway(versus)
    return tag("section", where, tag("h1", title(versus)), content, damage_note(versus.all_damage), id="headline")


def underway(versus: Versus) -> Safe:
    begun, done = len(versus.stories), sum(story.standing == "finished" for story in versus.stories)
    of = len(versus.groups) * versus.seeds
    bar = tag("progress", value=done, max=max(1, of), aria_label="runs done")
    sentence = f"{state(versus)}: {done} of {of} runs are finished, {begun} begun."
    return joined(tag("p", sentence, class_="lead"), bar)


def state(versus: Versus) -> str:
    if versus.standing == "running":
        return "This comparison is going on"
    if versus.damage is not None:
        return "This comparison has no result that can be read, and nobody works on it"
    return f"This comparison is not finished, and nobody works on it. Go on with `fedloom resume {versus.path}`"


def result(versus: Versus) -> Safe:
    metric = versus.metric
    head = ["method", metric.short + metric.unit, "vs first", "pooled", "worst", "shared", "params", "rounds", "MACs",
            "bytes", "time", "memory"]  # fmt: skip
    rows = [cells_of(row, metric) for row in versus.rows]
    told = small_print(versus.rows, metric) if versus.alike else (
        "These runs are not on the same splits: what differs between them is not the method alone; only runs on the "
        "splits of the first are paired with it."
    ) + unfair(versus.rows)  # fmt: skip
    return joined(tag("p", verdict(versus), class_="lead"), table(head, rows, label="methods"), note(told))


def cells_of(row: MethodRow, metric: Metric) -> list[Child]:
    tuned = "".join(f" {option}={value}" for option, value in (row.tuned or {}).items())
    return [
        row.name + tuned, flat(plus_minus(row.figure, metric)), flat(difference(row.difference, metric)),
        *(metric.text(figure.mean) for figure in (row.pooled, row.worst, row.shared)), amount(row.params),
        f"{row.rounds:g}", amount(row.macs), f"{amount(row.bytes)}B", duration(row.seconds),
        "–" if row.memory is None else f"{amount(row.memory)}B",
    ]  # fmt: skip


def verdict(versus: Versus) -> str:
    """Whatever the intervals allow to say, and no more."""
    metric, first = versus.metric, versus.rows[0].name
    found = [(row.name, row.difference and row.difference.better) for row in versus.rows[1:]]
    ahead, behind = ([name for name, better in found if better is wanted] for wanted in (True, False))
    parts = [f"{', '.join(ahead)} {'beats' if len(ahead) == 1 else 'beat'} {first}"] if ahead else []
    parts += [f"{first} beats {', '.join(behind)}"] if behind else []
    if parts:
        return f"By mean {metric.name}, {'; '.join(parts)}, beyond what chance between seeds would do (95 %)."
    if versus.seeds == 1:
        return "One seed: this is an example, not evidence."
    return f"No difference in {metric.name} to {first} is beyond what chance between seeds would do (95 %)."


def runs(versus: Versus, link: Link) -> Safe:
    """Every run, with the way to its own report once it is there."""
    cells: list[list[Child]] = []
    for group in versus.groups:
        for story in group.stories:
            way = None if link is None or story.standing != "finished" else link(story.path)
            name: Child = story.name if way is None else tag("a", story.name, href=way)
            found = None if story.result is None else story.result.spread.mean
            seed = "–" if story.config is None else str(story.config.seed)
            cells.append([name, group.name, seed, story.standing, str(len(story.rows)), story.figure(found)])
    if not cells:
        return section("runs", "Runs")
    head = ["run", "method", "seed", "state", "rounds", f"mean {versus.metric.name}"]
    return section("runs", "Runs", table(head, cells, words=("method", "state"), label="runs"))


def origin(versus: Versus) -> Safe:
    return section("origin", "How to reproduce this", code(versus.command))
