"""Figures of methods beside each other: curves, differences, clients, costs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from fedloom.metrics.metric import Metric
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.heat import Heat
from fedloom.report.figures.intervals import Item, intervals
from fedloom.report.figures.scatter import Mark, scatter
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import evaluations, evenly
from fedloom.report.sections.search import share
from fedloom.report.tables import amount, difference

MOST_CLIENTS = 40  # with a row of their own


def curves(versus: Versus) -> Safe:
    return section("curves", "Convergence and differences", grid(curve(versus), differences(versus)))


def curve(versus: Versus) -> Safe | None:
    metric = versus.metric
    lines = [Line(group.name, mean_curve(group, metric), k) for k, group in enumerate(versus.groups)]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    heading = f"{metric.name.capitalize()} over the rounds"
    drawn = Chart("curve", heading, "A line a method.", f"{metric.name}{metric.unit}", metric.text, lines,
                  bounds=metric.bounds)  # fmt: skip
    rounds = sorted({at for line in lines for at, _ in line.points})
    values = [dict(line.points) for line in lines]
    rows = [[f"{at:g}", *(metric.text(found.get(at)) for found in values)] for at in rounds]
    told = "Mean over clients" + (" and seeds" if versus.seeds > 1 else "")
    told += f". The baseline is {versus.groups[0].name}, which the others are compared with."
    fallback = table(["round", *(line.name for line in lines)], evenly(rows), label="curves")
    return figure("curve", heading, drawn.draw(), told, fallback)


def mean_curve(group: Group, metric: Metric) -> list[tuple[float, float | None]]:
    """Over its finished runs (or the one that goes on), for rounds that all of them evaluated."""
    whole = [story for story in group.stories if story.result] or group.stories
    curves = []
    for story in whole:
        figures = {number: value for number, value in evaluations(story.rows, metric) if value is not None}
        if figures:
            curves.append(figures)
    if not curves:
        return []
    common = set(curves[0]).intersection(*curves[1:])
    return [(number, fmean(figures[number] for figures in curves)) for number in sorted(common)]


def differences(versus: Versus) -> Safe | None:
    metric = versus.metric
    rows = [(row["name"], row["difference"]) for row in versus.rows if row["difference"] is not None]
    if not rows:
        return None
    items = [Item(name, gap["mean"], None if gap["low"] is None else (gap["low"], gap["high"])) for name, gap in rows]
    first, unit = versus.rows[0]["name"], f"{metric.name}{metric.unit}"
    heading = f"Difference to {first}"
    drawn = intervals("difference", heading, "A row a method.", items, unit, lambda value: metric.text(value, "+"),
                      (float("-inf"), float("inf")))  # fmt: skip
    told = f"Mean {metric.name} less that of {first}, paired by seed; lines: 95 % interval (Student's t). "
    told += "Where a line holds 0, the difference may be chance." if versus.seeds > 1 else "One seed: no interval."
    cells: list[list[Child]] = [[name, flat(difference(gap, metric))] for name, gap in rows]
    return figure("difference", heading, drawn, told, table(["method", unit], cells, label=heading))


def clients(versus: Versus) -> Safe:
    """Who gains from which method: all of the first seed, where they have the same split."""
    metric = versus.metric
    finished = [(group.name, group.stories[0]) for group in versus.groups if group.stories and group.stories[0].result]
    if len(finished) < 2 or not versus.alike:
        return section("clients", "Clients")
    found = [{row["client"]: row[metric.name] for row in story.clients} for _, story in finished]
    shown = sorted(found[0])[:MOST_CLIENTS]
    values = [[figures.get(client) for figures in found] for client in shown]
    known = [value for row in values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    texts = [[metric.text(value) for value in row] for row in values]
    names = [finished[0][1].called(client) for client in shown]
    heading = f"{metric.name.capitalize()} of each client under each method"
    drawn = Heat(
        "by-client", heading, "A row a client, a column a method.", names, [name for name, _ in finished],
        [[None if value is None else share(value, low, high, metric.lower_is_better) for value in row]
         for row in values], texts, "client", "method",
    )  # fmt: skip
    seed = finished[0][1].result or {}
    told = f"Seed {seed['seed']}, {metric.name}{metric.unit}, on each client's own test data; stronger is better."
    told += f" The first {len(shown)} of {len(found[0]):,} clients." if len(shown) < len(found[0]) else ""
    cells: list[list[Child]] = [[name, *row] for name, row in zip(names, texts, strict=True)]
    fallback = table(["client", *(name for name, _ in finished)], cells, label=heading)
    return section("clients", "Clients", figure("by-client", heading, drawn.draw(), told, fallback))


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


def flat(cell: str) -> str:
    return " ".join(cell.split())
