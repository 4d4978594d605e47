"""Sections of a page that puts methods beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedloom.metrics.metric import METRICS, Metric
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.intervals import Item, intervals
from fedloom.report.figures.scatter import Mark, scatter
from fedloom.report.html import Child, Safe, joined, tag
from fedloom.report.parts import code, figure, grid, note, section, table
from fedloom.report.sections.convergence import evaluations, evenly
from fedloom.report.sections.headline import about_data
from fedloom.report.story import Standing, Story
from fedloom.report.tables import amount, difference, duration, plus_minus, small_print
from fedloom.types import Json

LINKS = {"curves": "Convergence", "differences": "Differences", "sizes": "Costs", "runs": "Runs", "origin": "Reproduce"}


@dataclass(frozen=True)
class Group:
    """One method, with a run for each seed that has begun."""

    name: str
    stories: list[Story]


@dataclass(frozen=True)
class Versus:
    path: Path | None
    standing: Standing
    groups: list[Group]
    rows: list[Json]  # a row a method, as in a comparison's result.json; empty before it is finished
    command: str
    seeds: int
    alike: bool = True  # whether all ran on the same splits

    @property
    def stories(self) -> list[Story]:
        return [story for group in self.groups for story in group.stories]

    @property
    def metric(self) -> Metric:
        return (
            METRICS[self.rows[0]["metric"]]
            if self.rows
            else self.stories[0].metric
            if self.stories
            else METRICS["accuracy"]
        )


def title(versus: Versus) -> str:
    about = about_data(versus.stories[0]).rpartition(", seed")[0] if versus.stories else "nothing yet"
    return f"{len(versus.groups)} methods on {about}"


def sections(versus: Versus, link: Callable[[Path], str]) -> dict[str, Safe]:
    return {
        "headline": headline(versus), "curves": curves(versus), "differences": differences(versus),
        "sizes": sizes(versus), "runs": runs(versus, link), "origin": origin(versus),
    }  # fmt: skip


def headline(versus: Versus) -> Safe:
    where = None if versus.path is None else tag("p", versus.path.resolve().name, class_="eyebrow")
    return tag(
        "section", where, tag("h1", title(versus)), result(versus) if versus.rows else underway(versus), id="headline"
    )


def underway(versus: Versus) -> Safe:
    begun, done = len(versus.stories), sum(story.standing == "finished" for story in versus.stories)
    of = len(versus.groups) * versus.seeds
    told = "This comparison is going on" if versus.standing == "running" else (
        f"This comparison is not finished, and nobody works on it. Go on with `fedloom resume {versus.path}`"
    )  # fmt: skip
    bar = tag("progress", value=done, max=max(1, of), aria_label="runs done")
    return joined(tag("p", f"{told}: {done} of {of} runs are finished, {begun} begun.", class_="lead"), bar)


def result(versus: Versus) -> Safe:
    metric = versus.metric
    head = ["method", metric.short + metric.unit, "vs first", "pooled", "worst", "shared", "params", "rounds", "MACs",
            "bytes", "time"]  # fmt: skip
    rows = [cells_of(row, metric) for row in versus.rows]
    told = small_print(versus.rows, metric) if versus.alike else (
        "These runs are not on the same splits: what differs between them is not the method alone; only runs on the "
        "splits of the first are paired with it."
    )  # fmt: skip
    return joined(tag("p", verdict(versus), class_="lead"), table(head, rows, label="methods"), note(told))


def cells_of(row: Json, metric: Metric) -> list[Child]:
    tuned = "".join(f" {option}={value}" for option, value in (row["tuned"] or {}).items())
    return [
        row["name"] + tuned, flat(plus_minus(row[metric.name], metric)), flat(difference(row["difference"], metric)),
        *(metric.text(row[name]["mean"]) for name in ("pooled", "worst", "global")), amount(row["params"]),
        f"{row['rounds']:g}", amount(row["macs"]), f"{amount(row['bytes'])}B", duration(row["seconds"]),
    ]  # fmt: skip


def flat(cell: str) -> str:
    return " ".join(cell.split())


def verdict(versus: Versus) -> str:
    """Whatever the intervals allow to say, and no more."""
    metric, first = versus.metric, versus.rows[0]["name"]
    found = [(row["name"], (row["difference"] or {}).get("better")) for row in versus.rows[1:]]
    ahead, behind = ([name for name, better in found if better is wanted] for wanted in (True, False))
    parts = [f"{', '.join(ahead)} {'beats' if len(ahead) == 1 else 'beat'} {first}"] if ahead else []
    parts += [f"{first} beats {', '.join(behind)}"] if behind else []
    if parts:
        return f"By mean {metric.name}, {'; '.join(parts)}, beyond what chance between seeds would do (95 %)."
    if versus.seeds == 1:
        return "One seed: this is an example, not evidence."
    return f"No difference in {metric.name} to {first} is beyond what chance between seeds would do (95 %)."


def curves(versus: Versus) -> Safe:
    metric = versus.metric
    lines = [Line(group.name, mean_curve(group, metric.name), k) for k, group in enumerate(versus.groups)]
    lines = [line for line in lines if line.points]
    if not lines:
        return section("curves", "Convergence")
    drawn = Chart("curve", f"{metric.name} over the rounds", "A line a method.", f"{metric.name}{metric.unit}",
                  metric.text, lines, bounds=metric.bounds)  # fmt: skip
    rounds = sorted({at for line in lines for at, _ in line.points})
    values = [dict(line.points) for line in lines]
    rows = [[f"{at:g}", *(metric.text(found.get(at)) for found in values)] for at in rounds]
    told = "Mean over clients" + (" and seeds" if versus.seeds > 1 else "")
    told += f". {versus.groups[0].name} is what the others are compared with."
    fallback = table(["round", *(line.name for line in lines)], evenly(rows), label="curves")
    return section(
        "curves",
        "Convergence",
        figure("curve", f"{metric.name.capitalize()} over the rounds", drawn.draw(), told, fallback),
    )


def mean_curve(group: Group, name: str) -> list[tuple[float, float | None]]:
    """Over its runs, for rounds that all of them evaluated."""
    each = [{at: value for at, value in evaluations(story.rows, name) if value is not None} for story in group.stories]
    each = [found for found in each if found]
    common = set.intersection(*(set(found) for found in each)) if each else set()
    return [(at, fmean(found[at] for found in each)) for at in sorted(common)]


def differences(versus: Versus) -> Safe:
    metric = versus.metric
    rows = [row for row in versus.rows if row["difference"] is not None]
    if not rows:
        return section("differences", "Differences")
    items = [
        Item(row["name"], row["difference"]["mean"],
             None if row["difference"]["low"] is None else (row["difference"]["low"], row["difference"]["high"]))
        for row in rows
    ]  # fmt: skip
    first = versus.rows[0]["name"]
    drawn = intervals("difference", f"difference to {first}", "A row a method.", items, f"{metric.name}{metric.unit}",
                      lambda value: metric.text(value, "+"), (float("-inf"), float("inf")))  # fmt: skip
    told = f"Mean {metric.name} less that of {first}, paired by seed; lines: 95 % interval (Student's t). "
    told += "Where a line holds 0, the difference may be chance." if versus.seeds > 1 else "One seed: no interval."
    return section("differences", "Differences", figure("difference", f"Difference to {first}", drawn, told))


def sizes(versus: Versus) -> Safe:
    axes: Mapping[str, str] = {"params": "parameters", "macs": "MACs of training", "bytes": "bytes sent"}
    return section(
        "sizes", "Figure against cost", grid(*(against(versus, name, about) for name, about in axes.items()))
    )


def against(versus: Versus, name: str, about: str) -> Safe | None:
    metric = versus.metric
    rows = [row for row in versus.rows if row[name] is not None and row[metric.name]["mean"] is not None]
    if len({row[name] for row in rows}) < 2:
        return None
    marks = [Mark(row["name"], row[name], row[metric.name]["mean"], number=k) for k, row in enumerate(rows)]
    heading = f"{metric.name.capitalize()} against {about}"
    drawn = scatter(
        f"against-{name}", heading, "A point a method.", marks, about, f"{metric.name}{metric.unit}", amount,
        metric.text, metric.bounds,
    )  # fmt: skip
    cells: list[list[Child]] = [[mark.name, amount(mark.x), metric.text(mark.y)] for mark in marks]
    fallback = table(["method", about, f"{metric.name}{metric.unit}"], cells, label=heading)
    return figure(f"against-{name}", heading, drawn, "A point a method, mean over its runs.", fallback)


def runs(versus: Versus, link: Callable[[Path], str]) -> Safe:
    """Every run, with the way to its own report once it is there."""
    cells: list[list[Child]] = []
    for group in versus.groups:
        for story in group.stories:
            there = story.standing == "finished"
            name: Child = tag("a", story.name, href=link(story.path)) if there else story.name
            found = story.result[story.metric.name]["mean"] if story.result else None
            seed = "–" if story.config is None else str(story.config.seed)
            cells.append([name, group.name, seed, story.standing, str(len(story.rows)), story.figure(found)])
    if not cells:
        return section("runs", "Runs")
    head = ["run", "method", "seed", "state", "rounds", f"mean {versus.metric.name}"]
    return section("runs", "Runs", table(head, cells, words=("method", "state"), label="runs"))


def origin(versus: Versus) -> Safe:
    return section("origin", "How to reproduce this", code(versus.command))
