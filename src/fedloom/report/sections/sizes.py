"""The figure against the cost of a client's network.

Costs are parameters, MACs per sample, and with a profile also milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedloom.records.result import RunResult
from fedloom.report.figures.scatter import MOST_NAMED, Mark, Scatter
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import amount, milliseconds
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.run_table import figure_cells, figure_columns
from fedloom.report.sections.clients import interval_of
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story


def sizes(story: Story) -> Safe:
    result = story.result
    if result is None:
        return section("sizes", "Result against model size")
    clients = story.clients
    params = {client.client: client.params for client in clients}
    macs = {client.client: client.macs for client in clients}
    latencies = {client.client: client.latency_ms for client in clients}
    charts = (
        against(story, result, "params", "parameters", params, amount),
        against(story, result, "macs", "MACs per sample", macs, amount),
        against(story, result, "latency_ms", "milliseconds per sample", latencies, milliseconds),
    )
    if any(charts):
        return section("sizes", "Result against model size", grid(*charts))
    return section("sizes", "Result against model size", note(about_equal_sizes(story)))


def about_equal_sizes(story: Story) -> str:
    """Say why there is no chart: all networks have the same size, or sizes are unknown."""
    for client in story.clients:
        if client.params is not None:
            params = f"{amount(client.params)} parameters"
            return f"All networks have {params} and {amount(client.macs)}MACs per sample."
    return "Sizes are not known: sites do not report them."


def against(
    story: Story,
    result: RunResult,
    name: str,
    cost_name: str,
    costs: Mapping[int, float | None],
    text: Callable[[float], str],
) -> Safe | None:
    """Draw figures against `costs`, which are by client; None if all costs are equal."""
    metric = story.metric
    worst = worst_client(story)
    marks = []
    cells: list[list[Child]] = []
    for client in story.clients:
        cost = costs[client.client]
        if client.figure is None or cost is None:
            continue
        client_name = story.client_name(client.client)
        label = str(client.client)
        if story.names:
            label = client_name
        is_worst = client.client == worst
        marks.append(Mark(label, cost, client.figure, interval_of(client), is_worst))
        cells.append([client_name, text(cost), *figure_cells(client, result)])
    if len({mark.x for mark in marks}) < 2:
        return None
    about = "One point per client"
    if len(marks) <= MOST_NAMED:
        about += ", with its 95 % interval"
    about += "; the diamond is the worst client."
    title = f"{metric.heading} against {cost_name}"
    y_name = f"{metric.title}{metric.unit}"
    drawing = Scatter(
        key=f"against-{name}",
        title=title,
        description=about,
        marks=marks,
        x_name=cost_name,
        y_name=y_name,
        x_text=text,
        y_text=metric.text,
        bounds=metric.bounds,
    )
    fallback = table(["client", cost_name, *figure_columns(result)], cells, label=title)
    return figure(f"against-{name}", title, drawing.draw(), about, fallback)
