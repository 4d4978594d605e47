"""How the figure changed over the rounds, beside the baselines to compare it with.

The phases of the method are shaded behind the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import Metric
from fedloom.records.rows import SHARED_BESIDE, MetricsRow
from fedloom.report.figures.curves import Band, Chart, Level, Line, Point
from fedloom.report.html import Safe
from fedloom.report.numbers import NAMED, percent
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.run_table import schedule
from fedloom.report.story import Story

MOST_COMMON = "baseline: each client's most common class"
# Counts and sums over samples, of some rounds only. They would flatten the other curves, so only
# the table has them.
COUNTS = ("samples", "plain", "correct", "nll", "up", "down")
MOST_VALUES = 4  # values reported by clients in one chart
MOST_ROWS = 500  # rows of a table; of more, about this many are picked at equal distances


def convergence(story: Story) -> Safe:
    if not story.rows:
        return section("convergence", "Convergence")
    return section("convergence", "Convergence", grid(curve(story), losses(story)))


def curve(story: Story) -> Safe:
    metric = story.metric
    personal = evaluations(story.rows, metric)
    if not personal:
        if story.result is None:
            return note("No round has been evaluated yet.")
        return note("No round was evaluated during the run.")
    shared = shared_evaluations(story.rows, metric)
    has_shared = any(value is not None for _, value in shared)
    personal_differs = has_shared and shared != personal
    lines = [Line("the model of the run", personal, 0)]
    if personal_differs:
        lines = [
            Line("each client's final model", personal, 0),
            Line("baseline: the shared model alone", shared, 1),
        ]
    part = first_part(story)
    levels = levels_of(story)
    phases = bands(story.rows)
    drawing = Chart(
        key="curve",
        title=f"{metric.title} on {part} data over the rounds",
        description=spoken(story, personal),
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        lines=lines,
        bands=phases,
        levels=levels,
        bounds=metric.bounds,
    )
    beside = evaluations_beside(story.rows, metric)
    if personal_differs:
        beside |= evaluations_beside(story.rows, metric, of_shared=True)
    rows = []
    for (number, value), (_, shared_value) in zip(personal, shared, strict=True):
        cells = [str(number), metric.text(value)]
        if personal_differs:
            cells.append(metric.text(shared_value))
        cells += percents_in_round(beside, number)
        rows.append(cells)
    about = caption(part, personal_differs, levels, phases)
    if story.result is not None:
        about += schedule(story.result.phases)
    head = ["round", *(line.name for line in lines), *map(in_head, beside)]
    values = table(head, evenly(rows), label="the curve")
    heading = f"{metric.heading} over the rounds"
    return figure("curve", heading, drawing.draw(), about, values)


def evaluations(rows: Iterable[MetricsRow], metric: Metric) -> list[Point]:
    """Return the figures of clients' final models, for rounds evaluated by this metric."""
    points: list[Point] = []
    for row in rows:
        if row.evaluation is not None and row.evaluation.metric == metric.name:
            points.append((row.round, row.evaluation.value))
    return points


def shared_evaluations(rows: Sequence[MetricsRow], metric: Metric) -> list[Point]:
    """Return the figures of the shared model alone, for the same rounds."""
    points: list[Point] = []
    for row in rows:
        if row.evaluation is not None and row.evaluation.metric == metric.name:
            points.append((row.round, row.evaluation.shared))
    return points


def evaluations_beside(
    rows: Sequence[MetricsRow],
    metric: Metric,
    *,
    of_shared: bool = False,
) -> dict[str, dict[float, float]]:
    """Return the means of balanced accuracy, and of AUC for two classes, by name and round.

    A figure that no round has is left out, as for text and for runs of earlier versions.
    """
    by_name: dict[str, dict[float, float]] = {}
    for row in rows:
        evaluation = row.evaluation
        if evaluation is None or evaluation.metric != metric.name:
            continue
        means = evaluation.beside
        if of_shared:
            means = evaluation.shared_beside
        for name, mean in means.items():
            by_name.setdefault(name, {})[row.round] = mean
    return by_name


def percents_in_round(by_name: dict[str, dict[float, float]], number: float) -> list[str]:
    """Return the figures beside the metric in one round, as the cells of a table."""
    return [percent(figures.get(number)) for figures in by_name.values()]


def known_points(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the points that have a figure."""
    points_with_figure = []
    for number, value in points:
        if value is not None:
            points_with_figure.append((number, value))
    return points_with_figure


def in_head(name: str) -> str:
    """Return a column's heading, such as `balanced accuracy, shared model`."""
    if name in SHARED_BESIDE:
        return f"{NAMED[name.removeprefix('shared_')]}, shared model"
    return NAMED[name]


def first_part(story: Story) -> str:
    """Return the part of the clients' data that the first evaluation used."""
    evaluations = without_none(row.evaluation for row in story.rows)
    return evaluations[0].part


def caption(
    part: str,
    personal_differs: bool,
    levels: Sequence[Level],
    phases: Sequence[Band],
) -> str:
    sentences = [f"Mean over the evaluated clients, on their {part} data."]
    if part == "validation":
        sentences.append("The best round is selected by it; test data is used once, at the end.")
    if personal_differs:
        sentences.append("Where both lines meet, personal models gain nothing.")
    if levels:
        guess = "always answering each client's most common class"
        sentences.append(f"The dotted line is what {guess} would give.")
    if phases:
        begins = [f"{band.name} from {band.begin:g}" for band in phases]
        sentences.append(f"Phases, by round: {', '.join(begins)}.")
    return " ".join(sentences)


def levels_of(story: Story) -> list[Level]:
    most_common = story.most_common_class
    if most_common is None:
        return []
    return [Level(MOST_COMMON, most_common)]


def spoken(story: Story, points: Sequence[Point]) -> str:
    evaluated = known_points(points)
    if not evaluated:
        return "No figure is known."
    first_round, first = evaluated[0]
    last_round, last = evaluated[-1]
    begin = f"{story.figure(first)} in round {first_round:g}"
    end = f"{story.figure(last)} in round {last_round:g}"
    return f"From {begin} to {end}."


def bands(rows: Sequence[MetricsRow]) -> list[Band]:
    """Return the phases, or stages, in order; empty if there is only one."""
    phases: list[Band] = []
    for row in rows:
        if phases and phases[-1].name == row.phase:
            phases[-1] = Band(row.phase, phases[-1].begin, row.round)
        else:
            phases.append(Band(row.phase, row.round, row.round))
    if len(phases) == 1:
        return []
    return phases


def losses(story: Story) -> Safe | None:
    """Draw the means of what clients report about their training; methods differ in these."""
    all_names = set(chain.from_iterable(row.meta for row in story.rows))
    names = sorted(all_names)[:MOST_VALUES]
    if not names:
        return None
    drawn = [name for name in names if name not in COUNTS]
    if not drawn:
        drawn = names
    lines = []
    for number, name in enumerate(drawn):
        points = [(row.round, row.meta.get(name)) for row in story.rows]
        lines.append(Line(name, points, 2 + number))
    drawing = Chart(
        key="losses",
        title="values of training over the rounds",
        description="Means over clients.",
        y_name=", ".join(drawn),
        y_text=lambda value: f"{value:.3g}",
        lines=lines,
        bands=bands(story.rows),
    )
    rows = []
    for row in story.rows:
        values = [value_text(row.meta.get(name)) for name in names]
        rows.append([str(row.round), *values])
    about = "Means over the clients that took part in a round."
    fallback = table(["round", *names], evenly(rows), label="values of training")
    heading = "Training values reported by clients"
    return figure("losses", heading, drawing.draw(), about, fallback)


def value_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}"


def evenly(rows: list[list[str]]) -> list[list[str]]:
    """Return all rows, or about `MOST_ROWS` of them at equal distances and the last one."""
    if len(rows) <= MOST_ROWS:
        return rows
    every = math.ceil(len(rows) / MOST_ROWS)
    return [*rows[::every], rows[-1]]
