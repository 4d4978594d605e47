"""Charts that compare methods: their curves over the rounds, and differences to the first."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import Metric
from fedloom.records.rows import BESIDE
from fedloom.report.comparison_table import columns_beside, difference, differences_beside
from fedloom.report.figures.curves import Chart, Level, Line, Point
from fedloom.report.figures.intervals import Intervals, Item
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import NAMED, percent
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import (
    MOST_COMMON,
    evaluations,
    evaluations_beside,
    evenly,
    known_points,
)
from fedloom.report.story import Story

IN_CURVES = {"balanced_accuracy": "balanced", "auc": "AUC"}  # written after a method's name
UNBOUNDED = (float("-inf"), float("inf"))


def curves(versus: Versus) -> Safe:
    if versus.contest is not None:  # the leaderboard has the differences, paired by client
        return section("curves", "Convergence", grid(curve(versus)))
    figures = grid(curve(versus), differences(versus))
    return section("curves", "Convergence and differences", figures)


def curve(versus: Versus) -> Safe | None:
    metric = versus.metric
    lines = []
    for number, group in enumerate(versus.groups):
        points = mean_curve(group, metric)
        if points:
            lines.append(Line(group.name, points, number))
    if not lines:
        return None
    heading = f"{metric.heading} over the rounds"
    drawing = Chart(
        key="curve",
        title=heading,
        description="One line per method.",
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        lines=lines,
        levels=levels(versus),
        bounds=metric.bounds,
    )
    averaged = "clients"
    if versus.seeds > 1:
        averaged = "clients and seeds"
    first = versus.groups[0].name
    baseline = f"The baseline is {first}, which the others are compared with."
    about = f"Mean over {averaged}. {baseline}"
    if levels(versus):
        guess = "always answering each client's most common class"
        about += f" The dotted line is what {guess} would give."
    beside = lines_beside(versus.groups, metric)
    return figure("curve", heading, drawing.draw(), about, curves_table(lines, beside, metric))


def levels(versus: Versus) -> list[Level]:
    """Return the baseline that every method must beat, if all used the same splits.

    It is the mean over the runs.
    """
    if not versus.alike:
        return []
    figures = without_none(story.most_common_class for story in versus.stories)
    if not figures:
        return []
    return [Level(MOST_COMMON, fmean(figures))]


def curves_table(lines: Sequence[Line], beside: Sequence[Line], metric: Metric) -> Safe:
    """Return a table with one row per round and one column per method.

    Columns of balanced accuracy and AUC follow, where known.
    """
    values = [dict(line.points) for line in lines]
    values_beside = [dict(line.points) for line in beside]
    rounds: set[float] = set()
    for by_round in values:
        rounds.update(by_round)
    rows = []
    for number in sorted(rounds):
        cells = [metric.text(by_round.get(number)) for by_round in values]
        cells += [percent(by_round.get(number)) for by_round in values_beside]
        rows.append([f"{number:g}", *cells])
    head = ["round", *(line.name for line in (*lines, *beside))]
    return table(head, evenly(rows), label="curves")


def mean_curve(group: Group, metric: Metric) -> list[Point]:
    """Return the mean curve of a method, for the rounds that all its runs evaluated."""
    curves = []
    for story in averaged_stories(group):
        points = known_points(evaluations(story.rows, metric))
        if points:
            curves.append(dict(points))
    return mean_points(curves)


def lines_beside(groups: Sequence[Group], metric: Metric) -> list[Line]:
    """Return the mean curves of balanced accuracy, then of AUC, of all methods that have them."""
    lines = []
    for name in BESIDE:
        for number, group in enumerate(groups):
            points = curve_beside(group, metric, name)
            if points:
                lines.append(Line(f"{group.name}, {IN_CURVES[name]}", points, number))
    return lines


def curve_beside(group: Group, metric: Metric, name: str) -> list[Point]:
    curves = []
    for story in averaged_stories(group):
        by_name = evaluations_beside(story.rows, metric)
        if name in by_name:
            curves.append(by_name[name])
    return mean_points(curves)


def averaged_stories(group: Group) -> list[Story]:
    """Return the runs that a mean is over: the finished ones, or all if none is finished."""
    stories = [story for story in group.stories if story.result is not None]
    if stories:
        return stories
    return list(group.stories)


def mean_points(curves: Sequence[dict[float, float]]) -> list[Point]:
    """Return the mean over curves, for the rounds that all of them have."""
    if not curves:
        return []
    common = set(curves[0]).intersection(*curves[1:])
    points: list[Point] = []
    for number in sorted(common):
        points.append((number, fmean([figures[number] for figures in curves])))
    return points


def differences(versus: Versus) -> Safe | None:
    metric = versus.metric
    items = []
    cells: list[list[Child]] = []
    for row in versus.rows:
        if row.difference is not None:
            items.append(Item(row.name, row.difference.mean, row.difference.interval))
            beside = differences_beside(row, versus.rows)
            cells.append([row.name, flat(difference(row, metric)), *beside])
    if not items:
        return None
    first = versus.rows[0].name
    unit = metric.difference_title
    heading = f"Difference to {first}"
    drawing = Intervals(
        key="difference",
        title=heading,
        description="One row per method.",
        items=items,
        name=unit,
        text=lambda value: metric.text(value, "+"),
        bounds=UNBOUNDED,
        holds_zero=True,
    )
    caution = "One seed: no interval."
    if versus.seeds > 1:
        caution = "If a line contains 0, or there is none, the difference may be due to chance."
    gap = f"Mean {metric.title} minus that of {first}, paired by seed"
    about = f"{gap}; lines: 95 % interval (Student's t). {caution}"
    names = [NAMED[name] for name in columns_beside(versus.rows)]
    if names:
        about += f" For {' and '.join(names)}, the table has the difference of the means."
    fallback = table(["method", unit, *names], cells, label=heading)
    return figure("difference", heading, drawing.draw(), about, fallback)


def flat(cell: str) -> str:
    """Put a cell of the terminal's table on one line."""
    return " ".join(cell.split())
