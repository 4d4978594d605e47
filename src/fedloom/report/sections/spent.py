"""The figure against what was spent: simulated seconds, WAN bytes, all bytes, MACs.

Only what a budget charges counts as spent: describing and evaluating clients does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedloom.config.models import Limit
from fedloom.federation.server.budgets import charged
from fedloom.metrics.metric import Metric
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.chart import Text
from fedloom.report.figures.curves import Chart, Level, Line, Point
from fedloom.report.html import Safe
from fedloom.report.numbers import amount
from fedloom.report.parts import figure, grid, table
from fedloom.report.sections.convergence import evenly, levels_of
from fedloom.report.story import Story


@dataclass(frozen=True)
class Cost:
    limit: Limit
    name: str
    text: Text


COSTS = (
    Cost("seconds", "simulated seconds", lambda value: f"{value:g}"),
    Cost("wan", "WAN bytes", lambda value: f"{amount(value)}B"),
    Cost("bytes", "all bytes, LAN and WAN", lambda value: f"{amount(value)}B"),
    Cost("macs", "MACs of training", amount),
)


@dataclass(frozen=True)
class Moment:
    """An evaluated round: what had been spent by then, and the figure."""

    round: int
    spent: dict[Limit, float]
    value: float
    part: str


@dataclass(frozen=True)
class Path:
    """The moments of one run, or of one method."""

    name: str
    number: int  # its colour and dashes
    moments: Sequence[Moment]

    def line(self, limit: Limit) -> Line:
        points: list[Point] = [(moment.spent[limit], moment.value) for moment in self.moments]
        return Line(self.name, points, self.number)


def moments_of(rows: Sequence[MetricsRow], metric: Metric) -> list[Moment]:
    moments = []
    for row in rows:
        evaluation = row.evaluation
        if evaluation is None or evaluation.metric != metric.name or evaluation.value is None:
            continue
        moment = Moment(row.round, charged(row.totals), evaluation.value, evaluation.part)
        moments.append(moment)
    return moments


def mean_moments(runs: Sequence[Sequence[Moment]]) -> list[Moment]:
    """Return the means over runs of spending and figure, for the rounds all of them evaluated."""
    if not runs:
        return []
    moments_of_runs = [by_round(moments) for moments in runs]
    common_rounds = set(moments_of_runs[0]).intersection(*moments_of_runs[1:])
    means = []
    for number in sorted(common_rounds):
        moments_in_round = [moments[number] for moments in moments_of_runs]
        means.append(mean_of(moments_in_round))
    return means


def by_round(moments: Sequence[Moment]) -> dict[int, Moment]:
    return {moment.round: moment for moment in moments}


def mean_of(moments: Sequence[Moment]) -> Moment:
    """Return the mean over several runs' moments of one round."""
    spent: dict[Limit, float] = {}
    for cost in COSTS:
        spent[cost.limit] = fmean(moment.spent[cost.limit] for moment in moments)
    value = fmean(moment.value for moment in moments)
    return Moment(moments[0].round, spent, value, moments[0].part)


def spent_by_run(story: Story) -> Safe | None:
    moments = moments_of(story.rows, story.metric)
    path = Path("mean over the evaluated clients", 0, moments)
    return spent_figures([path], story.metric, levels_of(story), "The run's curve")


def spent_figures(
    paths: Sequence[Path],
    metric: Metric,
    levels: Sequence[Level],
    about_lines: str,
) -> Safe | None:
    """Draw one figure for each kind of cost that occurred; `about_lines` begins their captions."""
    drawn = [path for path in paths if path.moments]
    figures = []
    for cost in COSTS:
        if cost.limit == "bytes" and not has_lan(drawn):
            continue  # all bytes are WAN bytes, which have their own figure
        figures.append(against(drawn, cost, metric, levels, about_lines))
    return grid(*figures)


def has_lan(paths: Sequence[Path]) -> bool:
    """Whether anything was sent inside clusters."""
    for path in paths:
        for moment in path.moments:
            if moment.spent["bytes"] > moment.spent["wan"]:
                return True
    return False


def against(
    paths: Sequence[Path],
    cost: Cost,
    metric: Metric,
    levels: Sequence[Level],
    about_lines: str,
) -> Safe | None:
    lines = [path.line(cost.limit) for path in paths]
    if not any(has_spent(line) for line in lines):
        return None
    heading = f"{metric.heading} against {cost.name}"
    chart = Chart(
        key=f"spent-{cost.limit}",
        title=heading,
        description=spoken(lines, cost, metric),
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        lines=lines,
        levels=levels,
        bounds=metric.bounds,
        x_name=cost.name,
        x_text=cost.text,
    )
    part = paths[0].moments[0].part
    caption = f"{about_lines}, on {part} data, against what had been spent by each evaluation."
    if cost.limit == "seconds":
        caption += " Seconds are simulated."
    if cost.limit == "wan" and not has_lan(paths):
        caption += " These are all bytes: nothing was sent inside clusters."
    rows = []
    for path in paths:
        for moment in path.moments:
            spent = cost.text(moment.spent[cost.limit])
            rows.append([path.name, f"{moment.round}", spent, metric.text(moment.value)])
    head = ["line", "round", cost.name, metric.title]
    values = table(head, evenly(rows), label=heading)
    return figure(f"spent-{cost.limit}", heading, chart.draw(), caption, values)


def has_spent(line: Line) -> bool:
    return any(spent for spent, _ in line.points)


def spoken(lines: Sequence[Line], cost: Cost, metric: Metric) -> str:
    """Say where every line ends, for readers who cannot see the drawing."""
    ends = []
    for line in lines:
        spent, value = line.points[-1]
        figure_text = metric.text(value) + metric.unit
        ends.append(f"{line.name}: {figure_text} at {cost.text(spent)}")
    return f"{'; '.join(ends)}."
