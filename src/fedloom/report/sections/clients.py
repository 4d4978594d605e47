"""Every client's figure with its interval, and a table of everything known about clients."""

from __future__ import annotations

from collections.abc import Mapping

from fedloom.records.result import ClientResult, RunResult
from fedloom.report.figures.intervals import MOST_ROWS, Intervals, Item
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, note, section, table
from fedloom.report.run_table import client_cells, client_columns
from fedloom.report.sections.headline import worst_client
from fedloom.report.story import Story


def clients(story: Story) -> Safe:
    result = story.result
    if result is None:
        return section("clients", "Clients")
    return section(
        "clients",
        "Clients",
        chart(story),
        rows_table(story, result),
        latencies(result),
        claims(result.claims),
        own_tests(result.site_tests),
    )


def chart(story: Story) -> Safe | None:
    metric = story.metric
    items = items_of(story)
    if not items:
        return None
    worst = next(item for item in items if item.worst)
    worst_text = f"the worst is {worst.name} with {story.figure(worst.value)}"
    drawing = Intervals(
        key="intervals",
        title=f"{metric.title} of each client",
        description=f"{len(items)} clients; {worst_text}.",
        items=items,
        name=f"{metric.title}{metric.unit}",
        text=metric.text,
        bounds=metric.bounds,
    )
    heading = f"{metric.heading} of each client"
    return figure("intervals", heading, drawing.draw(), caption(items, worst))


def items_of(story: Story) -> list[Item]:
    """Return the clients that have a figure; those with a personal model also get a ring."""
    worst = worst_client(story)
    items = []
    for client in story.clients:
        if client.figure is None:
            continue
        shared = None
        if client.is_personal:
            shared = client.shared_figure
        item = Item(
            name=name_of(story, client),
            value=client.figure,
            interval=interval_of(client),
            other=shared,
            worst=client.client == worst,
        )
        items.append(item)
    return items


def name_of(story: Story, client: ClientResult) -> str:
    """Return a client's name, and how the partition transforms its samples."""
    name = story.client_name(client.client)
    if client.transform is None:
        return name
    return f"{name}, {client.transform_text}"


def interval_of(client: ClientResult) -> tuple[float, float] | None:
    if client.interval is None:
        return None
    low, high = client.interval
    return low, high


def caption(items: list[Item], worst: Item) -> str:
    has_rows = len(items) <= MOST_ROWS
    lines = "the area"
    if has_rows:
        lines = "lines"
    sentences = [
        f"On each client's own test data; {lines}: 95 % interval.",
        f"The diamond is the worst client, {worst.name}.",
    ]
    if has_rows and any(item.other is not None for item in items):
        sentences.append("A ring is the shared model at the same client, where it differs.")
    return " ".join(sentences)


def rows_table(story: Story, result: RunResult) -> Safe:
    """Return a table with the same cells as in the terminal."""
    worst = worst_client(story)
    rows: list[list[Child]] = []
    for client in result.clients:
        name = name_of(story, client)
        if client.client == worst:
            name += " (worst)"
        if client.has_one_answer and client.has_one_class:
            name += " (one answer, test part of one class)"
        elif client.has_one_answer:
            name += " (one answer)"
        cells = client_cells(client, result)
        rows.append([name, *cells[1:]])
    return table(client_columns(result), rows, label="all clients")


def latencies(result: RunResult) -> Safe | None:
    """Explain the milliseconds, if latencies were estimated from a profile."""
    latency = result.latency
    if latency is None:
        return None
    machine = f"{latency.processor}, {latency.system}, torch {latency.torch} on {latency.device}"
    profile = f"the profile {latency.profile} of {machine}"
    sentence = f"ms: milliseconds per sample, added up from {profile}."
    if any(client.latency_p95_ms is not None for client in result.clients):
        sentence += (
            " Over the client's test samples: mean / 95th percentile / worst, without samplers and "
            "dispatch."
        )
    return note(sentence)


def claims(sentences: list[str]) -> Safe | None:
    """Name sites that claim more than twice as many samples as in their last experiment."""
    if not sentences:
        return None
    return note(f"Ask before you trust their weight: {'; '.join(sentences)}.")


def own_tests(shares: Mapping[str, float]) -> Safe | None:
    """Name sites whose policy chose the share of samples that they test on."""
    if not shares:
        return None
    sites = []
    for site, share in shares.items():
        sites.append(f"{site}: {share:g}")
    sentence = "Sites whose policy chose another share of test samples than the run"
    return note(f"{sentence}: {', '.join(sites)}.")
