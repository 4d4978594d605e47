"""Traffic and time: the bytes that were sent, and how long the run took.

Refused replies, capped weights and processes that died are listed here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedloom.records.result_parts import Traffic
from fedloom.records.rows import are_by_formula
from fedloom.records.totals import Totals
from fedloom.report.figures.chart import Text
from fedloom.report.figures.curves import Chart, Line, Point
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import BY_FORMULA, amount, duration
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import bands, evenly
from fedloom.report.sections.troubles import caps, deaths, refusals
from fedloom.report.story import Story

# What the lines of the charts, and the rows of the table below, add up.
TRAFFIC: dict[str, Callable[[Totals | Traffic], int]] = {
    "down to clients": lambda sent: sent.down,
    "up to the server": lambda sent: sent.up,
    "down, inside clusters": lambda sent: sent.lan_down,
    "up, inside clusters": lambda sent: sent.lan_up,
    "down for evaluation": lambda sent: sent.evaluate_down,
    "up for evaluation": lambda sent: sent.evaluate_up,
}
THIS_MACHINE = "this machine"
SIDE_BY_SIDE = "if clients worked side by side"
TIME: dict[str, Callable[[Totals], float]] = {
    THIS_MACHINE: lambda totals: totals.wall,
    SIDE_BY_SIDE: lambda totals: totals.measured_clock,
}


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
        description="Bytes over the rounds, added up.",
        y_name="bytes",
        y_text=lambda value: f"{amount(value)}B",
        lines=lines,
        bands=bands(story.rows),
        floor=0.0,
    )
    about = (
        "Bytes of the encoded messages, added up over the rounds. Evaluation is counted separately."
    )
    fallback = over_rounds(lines, lambda value: f"{value:,.0f}", "traffic")
    return figure("traffic", "Traffic", chart.draw(), about, fallback)


def time(story: Story) -> Safe | None:
    lines = lines_of(story, TIME)
    if not lines:
        return None
    chart = Chart(
        key="time",
        title="seconds, added up",
        description="Seconds over the rounds, added up.",
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


def lines_of(story: Story, sums: Mapping[str, Callable[[Totals], float]]) -> list[Line]:
    """Return a line for each sum that is not always 0."""
    lines = []
    for number, (name, sum_of) in enumerate(sums.items()):
        points: list[Point] = [(row.round, sum_of(row.totals)) for row in story.rows]
        if any(value for _, value in points):
            lines.append(Line(name, points, number))
    return lines


def over_rounds(lines: list[Line], text: Text, label: str) -> Safe:
    """Return a table with one row per round and one column per line."""
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
    """Return a table of the whole run's sums; a finished run's include the final evaluation."""
    totals = story.rows[-1].totals
    sent: Totals | Traffic = totals
    seconds: dict[str, float | None] = {
        THIS_MACHINE: totals.wall,
        SIDE_BY_SIDE: totals.measured_clock,
    }
    if story.result is not None:
        sent = story.result.traffic
        seconds = {THIS_MACHINE: story.result.seconds, SIDE_BY_SIDE: story.result.side_by_side}
    macs = f"{amount(totals.macs)}MACs"
    if are_by_formula(story.rows):
        macs = f"{macs}, {BY_FORMULA}"
    elif story.federated:
        macs = "sites do not report it"
    rows: list[list[Child]] = [["computed in training", macs]]
    if totals.server_macs:
        on_the_server = f"{amount(totals.server_macs)}MACs"
        rows.append(["computed by the server, in rounds without clients", on_the_server])
    for name, bytes_of in TRAFFIC.items():
        if bytes_of(sent):
            rows.append([name, f"{amount(bytes_of(sent))}B"])
    for name, elapsed in seconds.items():
        if elapsed:
            rows.append([f"time, {name}", duration(elapsed)])
    return table(["in the whole run", ""], rows, label="sums of the run")
