"""Figures of methods beside each other: curves, differences, clients, costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Difference
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.heat import Heat
from fedloom.report.figures.intervals import Item, intervals
from fedloom.report.figures.scatter import Mark, scatter
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import evaluations, evenly
from fedloom.report.sections.search import shade
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
    items = []
    cells: list[list[Child]] = []
    for row in versus.rows:
        if row.difference is not None:
            items.append(Item(row.name, row.difference.mean, interval_of(row.difference)))
            cells.append([row.name, flat(difference(row.difference, metric))])
    if not items:
        return None
    first, unit = versus.rows[0].name, f"{metric.name}{metric.unit}"
    heading = f"Difference to {first}"
    drawn = intervals("difference", heading, "A row a method.", items, unit, lambda value: metric.text(value, "+"),
                      (float("-inf"), float("inf")))  # fmt: skip
    told = f"Mean {metric.name} less that of {first}, paired by seed; lines: 95 % interval (Student's t). "
    told += "Where a line holds 0, the difference may be chance." if versus.seeds > 1 else "One seed: no interval."
    return figure("difference", heading, drawn, told, table(["method", unit], cells, label=heading))


def interval_of(gap: Difference) -> tuple[float, float] | None:
    if gap.low is None or gap.high is None:
        return None
    return gap.low, gap.high


def clients(versus: Versus) -> Safe:
    """Who gains from which method: all of the first seed, where they have the same split."""
    metric = versus.metric
    finished = [(group.name, group.stories[0]) for group in versus.groups if group.stories and group.stories[0].result]
    if len(finished) < 2 or not versus.alike:
        return section("clients", "Clients")
    found = [{client.client: client.figure for client in story.clients} for _, story in finished]
    shown = sorted(found[0])[:MOST_CLIENTS]
    values = [[figures.get(client) for figures in found] for client in shown]
    known = [value for row in values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    texts = [[metric.text(value) for value in row] for row in values]
    names = [finished[0][1].called(client) for client in shown]
    heading = f"{metric.name.capitalize()} of each client under each method"
    drawn = Heat(
        "by-client", heading, "A row a client, a column a method.", names, [name for name, _ in finished],
        [[None if value is None else shade(value, low, high, metric.lower_is_better) for value in row]
         for row in values], texts, "client", "method",
    )  # fmt: skip
    first = finished[0][1].result
    assert first is not None
    told = f"Seed {first.seed}, {metric.name}{metric.unit}, on each client's own test data; stronger is better."
    told += f" The first {len(shown)} of {len(found[0]):,} clients." if len(shown) < len(found[0]) else ""
    cells: list[list[Child]] = [[name, *row] for name, row in zip(names, texts, strict=True)]
    fallback = table(["client", *(name for name, _ in finished)], cells, label=heading)
    return section("clients", "Clients", figure("by-client", heading, drawn.draw(), told, fallback))


def sizes(versus: Versus) -> Safe:
    params = [row.params for row in versus.rows]
    macs = [row.macs for row in versus.rows]
    sent = [row.bytes for row in versus.rows]
    drawn = (
        against(versus, "params", "parameters", params),
        against(versus, "macs", "MACs of training", macs),
        against(versus, "bytes", "bytes sent", sent),
    )
    return section("sizes", "Figure against cost", grid(*drawn))


def against(versus: Versus, name: str, about: str, costs: Sequence[float | None]) -> Safe | None:
    """`costs`: one a method. Nothing where all have the same."""
    metric = versus.metric
    marks: list[Mark] = []
    for row, cost in zip(versus.rows, costs, strict=True):
        if cost is not None and row.figure.mean is not None:
            marks.append(Mark(row.name, cost, row.figure.mean, number=len(marks)))
    if len({mark.x for mark in marks}) < 2:
        return None
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
