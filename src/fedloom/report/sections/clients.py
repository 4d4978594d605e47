"""Every client's figure with its interval, and all that is known of it in a table."""

from __future__ import annotations

from fedloom.report.figures.intervals import MOST_ROWS, Item, intervals
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, note, section, table
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story
from fedloom.report.tables import client_cells, client_columns
from fedloom.types import Json


def clients(story: Story) -> Safe:
    if not story.result:
        return section("clients", "Clients")
    return section("clients", "Clients", chart(story), rows_table(story), latencies(story), claims(story))


def items_of(story: Story) -> list[Item]:
    metric, worst = story.metric, worst_client(story)
    return [
        Item(
            story.called(row["client"]), row[metric.name], None if row["interval"] is None else tuple(row["interval"]),
            row.get(f"shared_{metric.name}") if personal(row, metric.name) else None, row["client"] == worst,
        )
        for row in story.clients
        if row[metric.name] is not None
    ]  # fmt: skip


def personal(row: Json, name: str) -> bool:
    """Whether the client's own model is another than the shared one, as far as figures tell."""
    return row.get(f"shared_{name}") not in (None, row[name])


def chart(story: Story) -> Safe | None:
    metric, items = story.metric, items_of(story)
    if not items:
        return None
    worst = next(item for item in items if item.worst)
    about = f"{len(items)} clients; the worst is {worst.name} with {story.figure(worst.value)}."
    drawn = intervals(
        "intervals", f"{metric.name} of each client", about, items, f"{metric.name}{metric.unit}", metric.text,
        metric.bounds,
    )  # fmt: skip
    lines = "lines" if len(items) <= MOST_ROWS else "the area"
    told = f"On each client's own test data; {lines}: 95 % interval. The diamond is the worst client, {worst.name}."
    if len(items) <= MOST_ROWS and any(item.other is not None for item in items):
        told += " A ring is the shared model at the same client, where it differs."
    return figure("intervals", f"{metric.name.capitalize()} of each client", drawn, told)


def rows_table(story: Story) -> Safe:
    """The same cells as in the terminal."""
    metric, worst = story.metric, worst_client(story)
    rows: list[list[Child]] = []
    for row in story.clients:
        cells: list[Child] = list(client_cells(row, metric))
        cells[0] = story.called(row["client"]) + (" (worst)" if row["client"] == worst else "")
        rows.append(cells)
    return table(client_columns(story.result or {}, metric), rows, label="all clients")


def latencies(story: Story) -> Safe | None:
    """What the milliseconds are of, where a profile was asked for."""
    told = (story.result or {}).get("latency")
    if told is None:
        return None
    machine = f"{told['processor']}, {told['system']}, torch {told['torch']} on {told['device']}"
    return note(f"ms: milliseconds a sample, added up from the profile {told['profile']} of {machine}.")


def claims(story: Story) -> Safe | None:
    """Sites that told of more than twice as many samples as in their last experiment."""
    told: list[str] = (story.result or {}).get("claims", [])
    if not told:
        return None
    return note(f"Ask before you trust their weight: {'; '.join(told)}.")
