"""How the figure grew over the rounds, beside what it is to be compared with, with the phases of the method."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from fedloom.metrics.metric import Metric
from fedloom.records.rows import MetricsRow, WorkerDeath
from fedloom.report.figures.curves import Band, Chart, Level, Line
from fedloom.report.html import Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story
from fedloom.report.tables import schedule

MOST_NAMED = 10  # clients in one sentence
MOST_VALUES = 4  # that clients tell of their training, in one chart
MOST_ROWS = 500  # of a table; of more rounds so many are picked evenly
Point = tuple[float, float | None]  # a round, and its figure


def convergence(story: Story) -> Safe:
    if not story.rows:
        return section("convergence", "Convergence")
    return section("convergence", "Convergence", grid(curve(story), losses(story)))


def evaluations(rows: Sequence[MetricsRow], metric: Metric) -> list[Point]:
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


def curve(story: Story) -> Safe:
    metric = story.metric
    personal = evaluations(story.rows, metric)
    shared = shared_evaluations(story.rows, metric)
    if not personal:
        return note("No round was evaluated on the way" + ("." if story.result else " yet."))
    parts = [row.evaluation.part for row in story.rows if row.evaluation is not None]
    personal_differs = any(value is not None for _, value in shared) and shared != personal
    lines = [Line("the model of the run", personal, 0)]
    if personal_differs:
        lines = [
            Line("what each client ends with", personal, 0),
            Line("baseline: the shared model alone", shared, 1),
        ]
    levels = levels_of(story)
    phases = bands(story.rows)
    drawn = Chart(
        "curve", f"{metric.name} on {parts[0]} data over the rounds", spoken(story, personal),
        f"{metric.name}{metric.unit}", metric.text, lines, phases, levels, metric.bounds,
    ).draw()  # fmt: skip
    rows = []
    for (number, value), (_, shared_value) in zip(personal, shared, strict=True):
        cells = [str(number), metric.text(value)]
        if personal_differs:
            cells.append(metric.text(shared_value))
        rows.append(cells)
    rounds_by_phase = [] if story.result is None else story.result.phases
    about = caption(parts[0], personal_differs, levels, phases) + schedule(rounds_by_phase)
    values = table(["round", *(line.name for line in lines)], evenly(rows), label="the curve")
    return figure("curve", f"{metric.name.capitalize()} over the rounds", drawn, about, values)


def caption(part: str, personal_differs: bool, levels: Sequence[Level], phases: Sequence[Band]) -> str:
    text = f"Mean over the evaluated clients, on their {part} data."
    if part == "validation":
        text += " Rounds are chosen by it; test data is looked at once, at the end."
    if personal_differs:
        text += " Where both lines meet, personal models gain nothing."
    if levels:
        text += " The dotted line is what answering each client's most common class, whatever is shown, would give."
    if phases:
        begins = [f"{band.name} from {band.begin:g}" for band in phases]
        text += f" Phases, by round: {', '.join(begins)}."
    return text


def levels_of(story: Story) -> list[Level]:
    if story.classes is None or story.classes.usual is None or story.metric.name != "accuracy":
        return []
    return [Level("baseline: each client's most common class", story.classes.usual)]


def spoken(story: Story, points: Sequence[Point]) -> str:
    ends = [(x, y) for x, y in points if y is not None]
    if not ends:
        return "No figure is known."
    (first, low), (last, high) = ends[0], ends[-1]
    return f"From {story.figure(low)} in round {first:g} to {story.figure(high)} in round {last:g}."


def bands(rows: Sequence[MetricsRow]) -> list[Band]:
    """Phases, or stages, as they followed one another; a method of one phase has none to tell apart."""
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
    names = sorted(set(chain.from_iterable(row.meta for row in story.rows)))[:MOST_VALUES]
    if not names:
        return None
    lines = []
    for number, name in enumerate(names):
        points = [(row.round, row.meta.get(name)) for row in story.rows]
        lines.append(Line(name, points, 2 + number))
    drawn = Chart(
        "losses", "values of training over the rounds", "Means over clients.", ", ".join(names),
        lambda value: f"{value:.3g}", lines, bands(story.rows),
    ).draw()  # fmt: skip
    rows = []
    for row in story.rows:
        values = [shown(row.meta.get(name)) for name in names]
        rows.append([str(row.round), *values])
    about = "Means over the clients that worked in a round."
    listed = table(["round", *names], evenly(rows), label="values of training")
    return figure("losses", "What clients tell of their training", drawn, about, listed)


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def evenly(rows: list[list[str]]) -> list[list[str]]:
    if len(rows) <= MOST_ROWS:
        return rows
    every = -(-len(rows) // MOST_ROWS)
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
    return Safe(
        total + table(["round", "client", "why"], cells[:MOST_ROWS], words=("client", "why"), label="refused replies")
    )


def deaths(story: Story) -> Safe | None:
    """Worker processes that ended while they worked, and how."""
    cells = []
    for row in story.rows:
        for death in row.all_deaths:
            cells.append([str(row.round), story.called(death.client), ended_by(death)])
    if not cells:
        return None
    processes = "1 worker process" if len(cells) == 1 else f"{len(cells):,} worker processes"
    total = note(f"{processes} died at work. An order whose process dies is given to another one, once.")
    listed = table(
        ["round", "client", "ended by"], cells[:MOST_ROWS], words=("client", "ended by"), label="dead processes"
    )
    return Safe(total + listed)


def ended_by(death: WorkerDeath) -> str:
    if death.signal is not None:
        return death.signal
    if death.exit is None:
        return "it went silent"
    return f"exit code {death.exit}"


def caps(story: Story) -> Safe | None:
    """Clients whose weight --max-weight-share lowered, and the share that they claimed."""
    rounds: dict[int, list[float]] = {}
    for row in story.rows:
        for client, share in row.capped.items():
            rounds.setdefault(client, []).append(share)
    if not rounds:
        return None
    largest_first = sorted(rounds, key=lambda client: -max(rounds[client]))
    named = []
    for client in largest_first[:MOST_NAMED]:
        times = "1 round" if len(rounds[client]) == 1 else f"{len(rounds[client]):,} rounds"
        named.append(f"{story.called(client)} in {times} (it claimed {max(rounds[client]):.0%})")
    more = f", and {len(rounds) - len(named):,} more" if len(rounds) > len(named) else ""
    return note(f"Weights were capped by --max-weight-share: {', '.join(named)}{more}.")
