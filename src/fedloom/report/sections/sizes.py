"""The figure against what a network costs: parameters, and MACs (with a profile, milliseconds) of one sample."""

from __future__ import annotations

from fedloom.report.figures.scatter import MOST_NAMED, Mark, scatter
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story
from fedloom.report.tables import amount, milliseconds

AXES = {"params": "parameters", "macs": "MACs of a sample", "latency_ms": "milliseconds of a sample"}


def sizes(story: Story) -> Safe:
    drawn = [against(story, name) for name in AXES]
    if any(drawn) or not story.result:
        return section("sizes", "Figure against size", grid(*drawn))
    return section("sizes", "Figure against size", note(alike(story)))


def alike(story: Story) -> str:
    known = [row for row in story.clients if row["params"] is not None]
    if not known:
        return "Sizes are not known: sites keep them to themselves."
    row = known[0]
    return f"All networks have {amount(row['params'])} parameters and {amount(row['macs'])}MACs a sample."


def against(story: Story, name: str) -> Safe | None:
    """Nothing where all networks are of one size."""
    metric, worst = story.metric, worst_client(story)
    rows = [row for row in story.clients if row[metric.name] is not None and row.get(name) is not None]
    if len({row[name] for row in rows}) < 2:
        return None
    marks = [
        Mark(
            str(row["client"]) if not story.names else story.called(row["client"]), row[name], row[metric.name],
            None if row["interval"] is None else tuple(row["interval"]), row["client"] == worst,
        )
        for row in rows
    ]  # fmt: skip
    what, text = AXES[name], milliseconds if name == "latency_ms" else amount
    title = f"{metric.name.capitalize()} against {what}"
    told = (
        "A point a client" + (", with its 95 % interval" if len(marks) <= MOST_NAMED else "") + "; diamond: the worst."
    )
    drawn = scatter(
        f"against-{name}", title, told, marks, what, f"{metric.name}{metric.unit}", text, metric.text, metric.bounds
    )
    cells: list[list[Child]] = [
        [story.called(row["client"]), text(row[name]), metric.text(row[metric.name])] for row in rows
    ]
    fallback = table(["client", what, f"{metric.name}{metric.unit}"], cells, label=title)
    return figure(f"against-{name}", title, drawn, told, fallback)
