"""The figure against what a network costs.

Parameters, and MACs of one sample; with a profile, milliseconds too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedloom.records.result import RunResult
from fedloom.report.figures.scatter import MOST_NAMED, Mark, Scatter
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.sections.clients import interval_of
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story
from fedloom.report.tables import amount, figure_cells, figure_columns, milliseconds


def sizes(story: Story) -> Safe:
    result = story.result
    if result is None:
        return section("sizes", "Figure against size")
    clients = story.clients
    params = {client.client: client.params for client in clients}
    macs = {client.client: client.macs for client in clients}
    latencies = {client.client: client.latency_ms for client in clients}
    charts = (
        against(story, result, "params", "parameters", params, amount),
        against(story, result, "macs", "MACs of a sample", macs, amount),
        against(story, result, "latency_ms", "milliseconds of a sample", latencies, milliseconds),
    )
    if any(charts):
        return section("sizes", "Figure against size", grid(*charts))
    return section("sizes", "Figure against size", note(alike(story)))


def alike(story: Story) -> str:
    for client in story.clients:
        if client.params is not None:
            params = f"{amount(client.params)} parameters"
            return f"All networks have {params} and {amount(client.macs)}MACs a sample."
    return "Sizes are not known: sites keep them to themselves."


def against(
    story: Story,
    result: RunResult,
    name: str,
    what: str,
    costs: Mapping[int, float | None],
    text: Callable[[float], str],
) -> Safe | None:
    """`costs` by clients. Nothing where all networks are of one size."""
    metric = story.metric
    worst = worst_client(story)
    marks = []
    cells: list[list[Child]] = []
    for client in story.clients:
        cost = costs[client.client]
        if client.figure is None or cost is None:
            continue
        called = story.called(client.client)
        label = called if story.names else str(client.client)
        is_worst = client.client == worst
        marks.append(Mark(label, cost, client.figure, interval_of(client), is_worst))
        cells.append([called, text(cost), *figure_cells(client, result)])
    if len({mark.x for mark in marks}) < 2:
        return None
    about = "A point a client"
    if len(marks) <= MOST_NAMED:
        about += ", with its 95 % interval"
    about += "; diamond: the worst."
    title = f"{metric.heading} against {what}"
    y_name = f"{metric.title}{metric.unit}"
    drawing = Scatter(
        key=f"against-{name}",
        title=title,
        about=about,
        marks=marks,
        x_name=what,
        y_name=y_name,
        x_text=text,
        y_text=metric.text,
        bounds=metric.bounds,
    )
    fallback = table(["client", what, *figure_columns(result)], cells, label=title)
    return figure(f"against-{name}", title, drawing.draw(), about, fallback)
