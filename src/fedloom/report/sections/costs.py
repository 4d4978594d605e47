"""Traffic and time: what crossed, how long it took.

Beside them: which replies were refused, whose weights were capped, whose processes died.
"""

from __future__ import annotations

from fedloom.report.figures.chart import Text
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import bands, caps, deaths, evenly, refusals
from fedloom.report.story import Story
from fedloom.report.tables import amount, duration

TRAFFIC = {
    "down": "down to clients",
    "up": "up to the server",
    "lan_down": "down, inside clusters",
    "lan_up": "up, inside clusters",
    "evaluate_down": "down for evaluation",
    "evaluate_up": "up for evaluation",
}
TIME = {"wall": "this machine", "clock": "if clients worked side by side"}


def costs(story: Story) -> Safe:
    if not story.rows:
        return section("costs", "Traffic and time")
    return section(
        "costs",
        "Traffic and time",
        grid(traffic(story), time(story)),
        sums(story),
        refusals(story),
        caps(story),
        deaths(story),
    )


def traffic(story: Story) -> Safe | None:
    lines = lines_of(story, TRAFFIC)
    if not lines:
        return None
    chart = Chart(
        key="traffic",
        title="bytes sent, added up",
        about="Bytes over the rounds, added up.",
        y_name="bytes",
        y_text=lambda value: f"{amount(value)}B",
        lines=lines,
        bands=bands(story.rows),
        floor=0.0,
    )
    about = "Bytes of the encoded messages, added up over the rounds. Evaluation is booked apart."
    fallback = over_rounds(lines, lambda value: f"{value:,.0f}", "traffic")
    return figure("traffic", "Traffic", chart.draw(), about, fallback)


def time(story: Story) -> Safe | None:
    lines = lines_of(story, TIME)
    if not lines:
        return None
    chart = Chart(
        key="time",
        title="seconds, added up",
        about="Seconds over the rounds, added up.",
        y_name="seconds",
        y_text=lambda value: f"{value:g}",
        lines=lines,
        bands=bands(story.rows),
        floor=0.0,
    )
    about = (
        "Time of this machine, and what it would be if every client had a machine like it: "
        "each round as long as its slowest client."
    )
    fallback = over_rounds(lines, lambda value: f"{value:.1f}", "time")
    return figure("time", "Time", chart.draw(), about, fallback)


def lines_of(story: Story, names: dict[str, str]) -> list[Line]:
    """One for each sum that is not 0 all the time."""
    lines = []
    for number, (name, about) in enumerate(names.items()):
        points = [(row.round, getattr(row.totals, name)) for row in story.rows]
        if any(value for _, value in points):
            lines.append(Line(about, points, number))
    return lines


def over_rounds(lines: list[Line], text: Text, label: str) -> Safe:
    """A row a round, a column a line."""
    values = [dict(line.points) for line in lines]
    rows = []
    for number, _ in lines[0].points:
        cells = [f"{number:g}"]
        for by_round in values:
            value = by_round[number]
            if value is None:
                cells.append("–")
            else:
                cells.append(text(value))
        rows.append(cells)
    return table(["round", *(line.name for line in lines)], evenly(rows), label=label)


def sums(story: Story) -> Safe:
    """The ledger's last line; a finished run adds its final evaluation."""
    totals = story.rows[-1].totals.to_json()
    if story.result is not None:
        totals.update(story.result.traffic.to_json())
        totals["wall"] = story.result.seconds
        totals["clock"] = story.result.clock
    macs = f"{amount(totals.get('macs'))}MACs"
    if story.federated:
        macs = "a site does not tell"
    rows: list[list[Child]] = [["computed in training", macs]]
    for name, about in TRAFFIC.items():
        if totals.get(name):
            rows.append([about, f"{amount(totals[name])}B"])
    for name, about in TIME.items():
        if totals.get(name):
            rows.append([f"time, {about}", duration(totals[name])])
    return table(["in the whole run", ""], rows, label="sums of the run")
