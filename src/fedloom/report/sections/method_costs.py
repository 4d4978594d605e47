"""Charts that compare what methods cost: figures against sizes, and against what was spent."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.report.comparison_table import cells_beside, columns_beside
from fedloom.report.figures.scatter import Mark, Scatter
from fedloom.report.groups import Versus
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import SHORT, amount
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.method_curves import averaged_stories, levels
from fedloom.report.sections.spent import Path, mean_moments, moments_of, spent_figures


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
