"""Charts that compare methods: curves, differences, clients, costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedloom.metrics.metric import Metric
from fedloom.records.rows import BESIDE
from fedloom.report.comparison_table import (
    cells_beside,
    columns_beside,
    difference,
    differences_beside,
)
from fedloom.report.figures.curves import Chart, Level, Line, Point
from fedloom.report.figures.heat import Heat
from fedloom.report.figures.intervals import Intervals, Item
from fedloom.report.figures.scatter import Mark, Scatter
from fedloom.report.groups import Group, Versus
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import NAMED, SHORT, amount, percent
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.convergence import MOST_COMMON, evaluations, evaluations_beside, evenly
from fedloom.report.sections.search import (
    PALE,
    Matrix,
    shades,
    shades_above_chance,
    shades_above_half,
)
from fedloom.report.sections.spent import Path, mean_moments, moments_of, spent_figures
from fedloom.report.story import Story

MOST_CLIENTS = 40  # that are shown
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
    figures = [story.most_common_class for story in versus.stories]
    known_figures = [figure for figure in figures if figure is not None]
    if not known_figures:
        return []
    return [Level(MOST_COMMON, fmean(known_figures))]


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
        figures: dict[float, float] = {}
        for number, value in evaluations(story.rows, metric):
            if value is not None:
                figures[number] = value
        if figures:
            curves.append(figures)
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


def clients(versus: Versus) -> Safe:
    """Show which clients gain from which method, by the first seed's runs.

    The section is hidden if runs have different splits.
    """
    metric = versus.metric
    methods = []
    stories = []
    for group in versus.groups:
        if group.stories and group.stories[0].result is not None:
            methods.append(group.name)
            stories.append(group.stories[0])
    if len(stories) < 2 or not versus.alike:
        return section("clients", "Clients")
    figures = by_metric(stories, metric)
    shares = shades(figures.rows, metric.lower_is_better)
    maps = [heat_map(figures, methods, stories, shares, "stronger is better")]
    about_shades = f"{PALE}, stronger is better"
    balanced = by_figure_beside(stories, "balanced_accuracy")
    if balanced.is_known:
        shares = shades_above_chance(balanced.rows, stories[0].result)
        maps.append(heat_map(balanced, methods, stories, shares, about_shades))
    auc = by_figure_beside(stories, "auc")
    if auc.is_known:
        shares = shades_above_half(auc.rows)
        maps.append(heat_map(auc, methods, stories, shares, about_shades))
    return section("clients", "Clients", grid(*maps))


@dataclass(frozen=True)
class ByClient:
    """A figure of each client under each method."""

    key: str
    name: str
    unit: str
    figures: list[dict[int, float | None]]  # for each method, by client
    text: Callable[[float | None], str]

    @property
    def is_known(self) -> bool:
        figures: list[float | None] = []
        for of_method in self.figures:
            figures += of_method.values()
        return any(figure is not None for figure in figures)

    @property
    def clients(self) -> list[int]:
        """The clients that are shown."""
        return sorted(self.figures[0])[:MOST_CLIENTS]

    @property
    def rows(self) -> Matrix:
        """The figures with one row per client and one column per method."""
        rows = []
        for client in self.clients:
            rows.append([of_method.get(client) for of_method in self.figures])
        return rows


def by_metric(stories: Sequence[Story], metric: Metric) -> ByClient:
    figures = []
    for story in stories:
        figures.append({client.client: client.figure for client in story.clients})
    return ByClient("by-client", metric.title, metric.unit, figures, metric.text)


def by_figure_beside(stories: Sequence[Story], name: str) -> ByClient:
    """Return balanced accuracy or AUC by client; None where a run's tables do not show it."""
    figures = []
    for story in stories:
        of_method: dict[int, float | None] = {}
        for client in story.clients:
            of_method[client.client] = None
            if story.result is not None and name in story.result.columns_of_classes:
                of_method[client.client] = client.beside.get(name)
        figures.append(of_method)
    key = f"{IN_CURVES[name].lower()}-by-client"
    return ByClient(key, NAMED[name], " %", figures, percent)


def heat_map(
    by_client: ByClient,
    methods: Sequence[str],
    stories: Sequence[Story],
    shares: Matrix,
    about_shades: str,
) -> Safe:
    """Draw the first seed's figures with one row per client and one column per method."""
    names = [stories[0].client_name(client) for client in by_client.clients]
    texts = []
    cells: list[list[Child]] = []
    for name, row in zip(names, by_client.rows, strict=True):
        row_texts = [by_client.text(value) for value in row]
        texts.append(row_texts)
        cells.append([name, *row_texts])
    heading = f"{capital(by_client.name)} of each client under each method"
    drawing = Heat(
        key=by_client.key,
        title=heading,
        description="One row per client, one column per method.",
        rows=names,
        columns=methods,
        shares=shares,
        texts=texts,
        row_name="client",
        column_name="method",
    )
    first = stories[0].result
    assert first is not None
    about_figures = f"Seed {first.seed}, {by_client.name}{by_client.unit}"
    about = f"{about_figures}, on each client's own test data; {about_shades}."
    if len(names) < len(by_client.figures[0]):
        about += f" The first {len(names)} of {len(by_client.figures[0]):,} clients."
    fallback = table(["client", *methods], cells, label=heading)
    return figure(by_client.key, heading, drawing.draw(), about, fallback)


def sizes(versus: Versus) -> Safe:
    params = [row.params for row in versus.rows]
    macs = [row.macs for row in versus.rows]
    sent = [row.bytes for row in versus.rows]
    charts = (
        against(versus, "params", "parameters", params),
        against(versus, "macs", "MACs of training", macs),
        against(versus, "bytes", "bytes sent", sent),
    )
    return section("sizes", "Result against cost", grid(*charts))


def spent(versus: Versus) -> Safe:
    """Draw each method's figure against what had been spent."""
    paths = []
    for number, group in enumerate(versus.groups):
        runs = []
        for story in averaged_stories(group):
            moments = moments_of(story.rows, versus.metric)
            if moments:
                runs.append(moments)
        paths.append(Path(group.name, number, mean_moments(runs)))
    about_lines = "One line per method"
    if versus.seeds > 1:
        about_lines = "One line per method, mean over seeds"
    figures = spent_figures(paths, versus.metric, levels(versus), about_lines)
    return section("spent", "Result against what was spent", figures)


def against(
    versus: Versus,
    key: str,
    cost_name: str,
    costs: Sequence[float | None],
) -> Safe | None:
    """Draw figures against `costs`, one for each method; None if all costs are equal."""
    metric = versus.metric
    marks: list[Mark] = []
    cells: list[list[Child]] = []
    for row, cost in zip(versus.rows, costs, strict=True):
        if cost is None or row.figure.mean is None:
            continue
        marks.append(Mark(row.name, cost, row.figure.mean, number=len(marks)))
        figure_text = metric.text(row.figure.mean)
        cells.append([row.name, amount(cost), figure_text, *cells_beside(row, versus.rows)])
    if len({mark.x for mark in marks}) < 2:
        return None
    heading = f"{metric.heading} against {cost_name}"
    unit = f"{metric.title}{metric.unit}"
    drawing = Scatter(
        key=f"against-{key}",
        title=heading,
        description="One point per method.",
        marks=marks,
        x_name=cost_name,
        y_name=unit,
        x_text=amount,
        y_text=metric.text,
        bounds=metric.bounds,
    )
    beside = [SHORT[name] for name in columns_beside(versus.rows)]
    fallback = table(["method", cost_name, unit, *beside], cells, label=heading)
    caption = "One point per method, mean over its runs."
    return figure(f"against-{key}", heading, drawing.draw(), caption, fallback)


def capital(name: str) -> str:
    """Capitalise a name for the beginning of a sentence."""
    return name[0].upper() + name[1:]


def flat(cell: str) -> str:
    """Put a cell of the terminal's table on one line."""
    return " ".join(cell.split())
