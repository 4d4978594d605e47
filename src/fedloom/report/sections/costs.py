"""Traffic and time: what crossed, how long it took, which replies were refused, whose processes died."""

from __future__ import annotations

from fedloom.report.figures.chart import Text
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import bands, caps, deaths, evenly, refusals
from fedloom.report.story import Story
from fedloom.report.tables import amount, duration

TRAFFIC = {
    "down": "down to clients", "up": "up to the server", "lan_down": "down, inside clusters",
    "lan_up": "up, inside clusters", "evaluate_down": "down for evaluation", "evaluate_up": "up for evaluation",
}  # fmt: skip
TIME = {"wall": "this machine", "clock": "if clients worked side by side"}


def costs(story: Story) -> Safe:
    if not story.rows:
        return section("costs", "Traffic and time")
    shown = (grid(traffic(story), time(story)), sums(story), refusals(story), caps(story), deaths(story))
    return section("costs", "Traffic and time", *shown)


def lines(story: Story, names: dict[str, str]) -> list[Line]:
    """One for each sum that is not 0 all the time."""
    drawn = []
    for number, (name, about) in enumerate(names.items()):
        points = [(row.round, getattr(row.totals, name)) for row in story.rows]
        if any(value for _, value in points):
            drawn.append(Line(about, points, number))
    return drawn


def traffic(story: Story) -> Safe | None:
    drawn = lines(story, TRAFFIC)
    if not drawn:
        return None
    chart = Chart("traffic", "bytes sent, added up", "Bytes over the rounds, added up.", "bytes",
                  lambda value: f"{amount(value)}B", drawn, bands(story.rows), floor=0.0)  # fmt: skip
    told = "Bytes of the encoded messages, added up over the rounds. Evaluation is booked apart."
    return figure(
        "traffic", "Traffic", chart.draw(), told, over_rounds(drawn, lambda value: f"{value:,.0f}", "traffic")
    )


def time(story: Story) -> Safe | None:
    drawn = lines(story, TIME)
    if not drawn:
        return None
    chart = Chart("time", "seconds, added up", "Seconds over the rounds, added up.", "seconds",
                  lambda value: f"{value:g}", drawn, bands(story.rows), floor=0.0)  # fmt: skip
    told = "Time of this machine, and what it would be if every client had a machine like it: each round as long as "
    told += "its slowest client."
    return figure("time", "Time", chart.draw(), told, over_rounds(drawn, lambda value: f"{value:.1f}", "time"))


def over_rounds(drawn: list[Line], text: Text, label: str) -> Safe:
    rounds = [at for at, _ in drawn[0].points]
    values = [dict(line.points) for line in drawn]
    rows = [[f"{at:g}", *("–" if (value := found[at]) is None else text(value) for found in values)] for at in rounds]
    return table(["round", *(line.name for line in drawn)], evenly(rows), label=label)


def sums(story: Story) -> Safe:
    """The ledger's last line; a finished run adds its final evaluation."""
    totals = story.rows[-1].totals.to_json()
    if story.result is not None:
        result = story.result
        totals |= {**result.traffic.to_json(), "wall": result.seconds, "clock": result.clock}
    macs = "a site does not tell" if story.federated else f"{amount(totals.get('macs'))}MACs"
    rows: list[list[Child]] = [["computed in training", macs]]
    rows += [[about, f"{amount(totals[name])}B"] for name, about in TRAFFIC.items() if totals.get(name)]
    rows += [[f"time, {about}", duration(totals[name])] for name, about in TIME.items() if totals.get(name)]
    return table(["in the whole run", ""], rows, label="sums of the run")
