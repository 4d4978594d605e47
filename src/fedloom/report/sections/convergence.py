"""How the figure grew over the rounds, beside what it is to be compared with.

The phases of the method are shaded behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from fedloom.metrics.metric import Metric
from fedloom.records.rows import SHARED_BESIDE, MetricsRow, WorkerDeath
from fedloom.report.figures.curves import Band, Chart, Level, Line, Point
from fedloom.report.html import Safe, joined
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story
from fedloom.report.tables import NAMED, percent, schedule

MOST_NAMED = 10  # clients in one sentence
MOST_COMMON = "baseline: each client's most common class"
COUNTS = ("samples",)  # values that would flatten the others' curves: a table has them
MOST_VALUES = 4  # that clients tell of their training, in one chart
MOST_ROWS = 500  # of a table; of more rounds so many are picked evenly


def convergence(story: Story) -> Safe:
    if not story.rows:
        return section("convergence", "Convergence")
    return section("convergence", "Convergence", grid(curve(story), losses(story)))


def curve(story: Story) -> Safe:
    metric = story.metric
    personal = evaluations(story.rows, metric)
    if not personal:
        if story.result is None:
            return note("No round was evaluated on the way yet.")
        return note("No round was evaluated on the way.")
    shared = shared_evaluations(story.rows, metric)
    has_shared = any(value is not None for _, value in shared)
    personal_differs = has_shared and shared != personal
    lines = [Line("the model of the run", personal, 0)]
    if personal_differs:
        lines = [
            Line("what each client ends with", personal, 0),
            Line("baseline: the shared model alone", shared, 1),
        ]
    part = first_part(story)
    levels = levels_of(story)
    phases = bands(story.rows)
    drawing = Chart(
        key="curve",
        title=f"{metric.title} on {part} data over the rounds",
        about=spoken(story, personal),
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
        cells += [percent(figures.get(number)) for figures in beside.values()]
        rows.append(cells)
    about = caption(part, personal_differs, levels, phases)
    if story.result is not None:
        about += schedule(story.result.phases)
    head = ["round", *(line.name for line in lines), *map(in_head, beside)]
    values = table(head, evenly(rows), label="the curve")
    heading = f"{metric.heading} over the rounds"
    return figure("curve", heading, drawing.draw(), about, values)


def evaluations(rows: Iterable[MetricsRow], metric: Metric) -> list[Point]:
    """Of what each client ends with, wherever clients were evaluated by this metric."""
    points: list[Point] = []
    for row in rows:
        if row.evaluation is not None and row.evaluation.metric == metric.name:
            points.append((row.round, row.evaluation.value))
    return points


def shared_evaluations(rows: Sequence[MetricsRow], metric: Metric) -> list[Point]:
    """Of the shared model alone, in the same rounds."""
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
    """Mean balanced accuracy, and AUC of two classes, by their names and by rounds.

    One that no round tells is left out: text has none, nor have runs of earlier versions.
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


def in_head(name: str) -> str:
    """Of a figure beside the metric's: `balanced accuracy, shared model`."""
    if name in SHARED_BESIDE:
        return f"{NAMED[name.removeprefix('shared_')]}, shared model"
    return NAMED[name]


def first_part(story: Story) -> str:
    """Which part of the clients' data the first evaluation was on."""
    parts = [row.evaluation.part for row in story.rows if row.evaluation is not None]
    return parts[0]


def caption(
    part: str,
    personal_differs: bool,
    levels: Sequence[Level],
    phases: Sequence[Band],
) -> str:
    sentences = [f"Mean over the evaluated clients, on their {part} data."]
    if part == "validation":
        sentences.append("Rounds are chosen by it; test data is looked at once, at the end.")
    if personal_differs:
        sentences.append("Where both lines meet, personal models gain nothing.")
    if levels:
        guess = "answering each client's most common class, whatever is shown,"
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
    evaluated = [(number, value) for number, value in points if value is not None]
    if not evaluated:
        return "No figure is known."
    first_round, first = evaluated[0]
    last_round, last = evaluated[-1]
    begin = f"{story.figure(first)} in round {first_round:g}"
    end = f"{story.figure(last)} in round {last_round:g}"
    return f"From {begin} to {end}."


def bands(rows: Sequence[MetricsRow]) -> list[Band]:
    """Phases, or stages, as they followed one another.

    A method of one phase has none to tell apart.
    """
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
    """What clients told of their training, averaged; every method has other values."""
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
        about="Means over clients.",
        y_name=", ".join(drawn),
        y_text=lambda value: f"{value:.3g}",
        lines=lines,
        bands=bands(story.rows),
    )
    rows = []
    for row in story.rows:
        values = [value_text(row.meta.get(name)) for name in names]
        rows.append([str(row.round), *values])
    about = "Means over the clients that worked in a round."
    fallback = table(["round", *names], evenly(rows), label="values of training")
    heading = "What clients tell of their training"
    return figure("losses", heading, drawing.draw(), about, fallback)


def value_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}"


def evenly(rows: list[list[str]]) -> list[list[str]]:
    """All, or about `MOST_ROWS` at equal distances and the last."""
    if len(rows) <= MOST_ROWS:
        return rows
    every = math.ceil(len(rows) / MOST_ROWS)
    return [*rows[::every], rows[-1]]


def refusals(story: Story) -> Safe | None:
    """Replies that were not used, and why."""
    cells = []
    for row in story.rows:
        for refusal in row.refused:
            cells.append([str(row.round), story.called(refusal.client), refusal.reason])
    if not cells:
        return None
    total = note(f"{len(cells)} replies were refused; the rounds went on without them.")
    head = ["round", "client", "why"]
    rows = table(head, cells[:MOST_ROWS], words=("client", "why"), label="refused replies")
    return joined(total, rows)


def deaths(story: Story) -> Safe | None:
    """Worker processes that ended while they worked, and how."""
    cells = []
    for row in story.rows:
        for death in row.all_deaths:
            cells.append([str(row.round), story.called(death.client), ended_by(death)])
    if not cells:
        return None
    processes = "1 worker process"
    if len(cells) > 1:
        processes = f"{len(cells):,} worker processes"
    consequence = "An order whose process dies is given to another one, once."
    total = note(f"{processes} died at work. {consequence}")
    head = ["round", "client", "ended by"]
    rows = table(head, cells[:MOST_ROWS], words=("client", "ended by"), label="dead processes")
    return joined(total, rows)


def ended_by(death: WorkerDeath) -> str:
    if death.signal is not None:
        return death.signal
    if death.exit is None:
        return "it went silent"
    return f"exit code {death.exit}"


def caps(story: Story) -> Safe | None:
    """Clients whose weight --max-weight-share lowered, and the share that they claimed."""
    claims: dict[int, list[float]] = {}  # by clients, a share for each round
    for row in story.rows:
        for client, share in row.capped.items():
            claims.setdefault(client, []).append(share)
    if not claims:
        return None
    largest_first = sorted(claims, key=lambda client: -max(claims[client]))
    named = []
    for client in largest_first[:MOST_NAMED]:
        times = "1 round"
        if len(claims[client]) > 1:
            times = f"{len(claims[client]):,} rounds"
        share = max(claims[client])
        named.append(f"{story.called(client)} in {times} (it claimed {share:.0%})")
    clients = ", ".join(named)
    if len(claims) > len(named):
        clients += f", and {len(claims) - len(named):,} more"
    return note(f"Weights were capped by --max-weight-share: {clients}.")
