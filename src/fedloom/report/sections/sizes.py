"""The figure against what a network costs: parameters, and MACs (with a profile, milliseconds) of one sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedloom.report.figures.scatter import MOST_NAMED, Mark, scatter
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.sections.clients import interval_of
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story
from fedloom.report.tables import amount, milliseconds


def sizes(story: Story) -> Safe:
    clients = story.clients
    params = {client.client: client.params for client in clients}
    macs = {client.client: client.macs for client in clients}
    latencies = {client.client: client.latency_ms for client in clients}
    drawn = (
        against(story, "params", "parameters", params, amount),
        against(story, "macs", "MACs of a sample", macs, amount),
        against(story, "latency_ms", "milliseconds of a sample", latencies, milliseconds),
    )
    if any(drawn) or story.result is None:
        return section("sizes", "Figure against size", grid(*drawn))
    return section("sizes", "Figure against size", note(alike(story)))


def alike(story: Story) -> str:
    for client in story.clients:
        if client.params is not None:
            return f"All networks have {amount(client.params)} parameters and {amount(client.macs)}MACs a sample."
    return "Sizes are not known: sites keep them to themselves."


def against(
    story: Story, name: str, what: str, costs: Mapping[int, float | None], text: Callable[[float], str]
) -> Safe | None:
    """`costs` by clients. Nothing where all networks are of one size."""
    metric, worst = story.metric, worst_client(story)
    marks = []
    cells: list[list[Child]] = []
    for client in story.clients:
        cost = costs[client.client]
        if client.figure is None or cost is None:
            continue
        called = story.called(client.client)
        label = called if story.names else str(client.client)
        marks.append(Mark(label, cost, client.figure, interval_of(client), client.client == worst))
        cells.append([called, text(cost), metric.text(client.figure)])
    if len({mark.x for mark in marks}) < 2:
        return None
    title = f"{metric.name.capitalize()} against {what}"
    told = (
        "A point a client" + (", with its 95 % interval" if len(marks) <= MOST_NAMED else "") + "; diamond: the worst."
    )
    drawn = scatter(
        f"against-{name}", title, told, marks, what, f"{metric.name}{metric.unit}", text, metric.text, metric.bounds
    )
    fallback = table(["client", what, f"{metric.name}{metric.unit}"], cells, label=title)
    return figure(f"against-{name}", title, drawn, told, fallback)
