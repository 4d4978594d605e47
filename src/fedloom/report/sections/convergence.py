"""How the figure grew over the rounds, beside what it is to be compared with, with the phases of the method."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.report.figures.curves import Band, Chart, Level, Line
from fedloom.report.html import Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story
from fedloom.report.tables import schedule
from fedloom.types import Json

MOST_NAMED = 10  # clients in one sentence
MOST_ROWS = 500  # of a table; of more rounds so many are picked evenly


def convergence(story: Story) -> Safe:
    if not story.rows:
        return section("convergence", "Convergence")
    return section("convergence", "Convergence", grid(curve(story), losses(story)))


def evaluations(rows: Sequence[Json], name: str) -> list[tuple[float, float | None]]:
    """(round, figure) wherever clients were evaluated."""
    return [(row["round"], row["evaluation"].get(name)) for row in rows if "evaluation" in row]


def curve(story: Story) -> Safe:
    metric = story.metric
    mine, shared = evaluations(story.rows, metric.name), evaluations(story.rows, "shared")
    if not mine:
        return note("No round was evaluated on the way" + ("." if story.result else " yet."))
    part = next(row["evaluation"]["part"] for row in story.rows if "evaluation" in row)
    apart = any(value is not None for _, value in shared) and [v for _, v in shared] != [v for _, v in mine]
    lines = [Line("what each client ends with" if apart else "the model of the run", mine, 0)]
    if apart:
        lines.append(Line("baseline: the shared model alone", shared, 1))
    levels = levels_of(story)
    drawn = Chart(
        "curve", f"{metric.name} on {part} data over the rounds", spoken(story, mine), f"{metric.name}{metric.unit}",
        metric.text, lines, bands(story.rows), levels, metric.bounds,
    ).draw()  # fmt: skip
    head = ["round", lines[0].name, *([lines[1].name] if apart else [])]
    values = [[str(x), metric.text(y), *([metric.text(z)] if apart else [])]
              for (x, y), (_, z) in zip(mine, shared, strict=True)]  # fmt: skip
    return figure(
        "curve", f"{metric.name.capitalize()} over the rounds", drawn, caption(part, apart, levels, bands(story.rows))
        + schedule([] if story.result is None else story.result.phases),
        table(head, evenly(values), label="the curve"),
    )  # fmt: skip


def caption(part: str, apart: bool, levels: Sequence[Level], phases: Sequence[Band]) -> str:
    told = f"Mean over the evaluated clients, on their {part} data."
    if part == "validation":
        told += " Rounds are chosen by it; test data is looked at once, at the end."
    if apart:
        told += " Where both lines meet, personal models gain nothing."
    if levels:
        told += " The dotted line is what answering each client's most common class, whatever is shown, would give."
    if phases:
        told += " Phases, by round: " + ", ".join(f"{band.name} from {band.begin:g}" for band in phases) + "."
    return told


def levels_of(story: Story) -> list[Level]:
    if story.classes is None or story.classes.usual is None or story.metric.name != "accuracy":
        return []
    return [Level("baseline: each client's most common class", story.classes.usual)]


def spoken(story: Story, points: Sequence[tuple[float, float | None]]) -> str:
    ends = [(x, y) for x, y in points if y is not None]
    if not ends:
        return "No figure is known."
    (first, low), (last, high) = ends[0], ends[-1]
    return f"From {story.figure(low)} in round {first:g} to {story.figure(high)} in round {last:g}."


def bands(rows: Sequence[Json]) -> list[Band]:
    """Phases, or stages, as they followed one another; a method of one phase has none to tell apart."""
    found: list[Band] = []
    for row in rows:
        name = str(row.get("phase") or row.get("stage") or "")
        if found and found[-1].name == name:
            found[-1] = Band(name, found[-1].begin, row["round"])
        else:
            found.append(Band(name, row["round"], row["round"]))
    return found if len(found) > 1 else []


def losses(story: Story) -> Safe | None:
    """What clients told of their training, averaged; every method has other values."""
    names = sorted({name for row in story.rows for name in row.get("meta", {})})
    lines = [
        Line(name, [(row["round"], row.get("meta", {}).get(name)) for row in story.rows], 2 + k)
        for k, name in enumerate(names[:4])
    ]
    if not lines:
        return None
    drawn = Chart(
        "losses", "values of training over the rounds", "Means over clients.", ", ".join(names[:4]),
        lambda value: f"{value:.3g}", lines, bands(story.rows),
    ).draw()  # fmt: skip
    rows = [[str(row["round"]), *(shown(row.get("meta", {}).get(line.name)) for line in lines)] for row in story.rows]
    return figure(
        "losses", "What clients tell of their training", drawn, "Means over the clients that worked in a round.",
        table(["round", *(line.name for line in lines)], evenly(rows), label="values of training"),
    )  # fmt: skip


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def evenly(rows: list[list[str]]) -> list[list[str]]:
    if len(rows) <= MOST_ROWS:
        return rows
    every = -(-len(rows) // MOST_ROWS)
    return [*rows[::every], rows[-1]]


def refusals(story: Story) -> Safe | None:
    """Replies that were not used, and why."""
    rows = [(row["round"], refused) for row in story.rows for refused in row.get("refused", [])]
    if not rows:
        return None
    cells = [[str(number), story.called(refused["client"]), str(refused["reason"])] for number, refused in rows]
    total = note(f"{len(rows)} replies were refused; the rounds went on without them.")
    return Safe(
        total + table(["round", "client", "why"], cells[:MOST_ROWS], words=("client", "why"), label="refused replies")
    )


def deaths(story: Story) -> Safe | None:
    """Worker processes that ended while they worked, and how."""
    rows = [(row["round"], death) for row in story.rows for death in row.get("deaths", [])]
    if not rows:
        return None
    cells = []
    for number, death in rows[:MOST_ROWS]:
        cells.append([str(number), story.called(death["client"]), ended_by(death)])
    processes = "1 worker process" if len(rows) == 1 else f"{len(rows):,} worker processes"
    total = note(f"{processes} died at work. An order whose process dies is given to another one, once.")
    return Safe(
        total + table(["round", "client", "ended by"], cells, words=("client", "ended by"), label="dead processes")
    )


def ended_by(death: Json) -> str:
    """As `federation.deaths.Death` wrote it down."""
    if "signal" in death:
        return str(death["signal"])
    if death["exit"] is None:
        return "it went silent"
    return f"exit code {death['exit']}"


def caps(story: Story) -> Safe | None:
    """Clients whose weight --max-weight-share lowered, and the share that they claimed."""
    rounds: dict[int, list[float]] = {}
    for row in story.rows:
        for client, share in row.get("capped", {}).items():
            rounds.setdefault(int(client), []).append(share)
    if not rounds:
        return None
    largest_first = sorted(rounds, key=lambda client: -max(rounds[client]))
    named = []
    for client in largest_first[:MOST_NAMED]:
        times = "1 round" if len(rounds[client]) == 1 else f"{len(rounds[client]):,} rounds"
        named.append(f"{story.called(client)} in {times} (it claimed {max(rounds[client]):.0%})")
    more = f", and {len(rounds) - len(named):,} more" if len(rounds) > len(named) else ""
    return note(f"Weights were capped by --max-weight-share: {', '.join(named)}{more}.")
