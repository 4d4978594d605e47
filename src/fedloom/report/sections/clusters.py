"""Clusters of clients: the labels of each beside those of all clients, as the server saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.config.histograms import HistogramRule
from fedloom.evaluate.summary import without_none
from fedloom.federation.protocol.clustering import distance, sum_of
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.stacked import Bar, Stacked
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import counted
from fedloom.report.parts import figure, note, section, table
from fedloom.report.story import Story

MOST_BARS = 40  # clusters that are drawn: those farthest from the population
MOST_NAMED = 12  # members in a cell


@dataclass(frozen=True)
class ShownCluster:
    """One cluster of the last clustering."""

    number: int
    members: tuple[int, ...]
    aggregator: int | None
    level: float | None  # distance of its labels to the population's
    histogram: tuple[int, ...] | None  # as the server saw it


def clusters(story: Story) -> Safe:
    last = last_clustering(story)
    heading = "Clusters"
    if not last:
        return section("clusters", heading)
    return section(
        "clusters",
        heading,
        labels(story, last),
        listing(story, last),
        place_note(story),
    )


def last_clustering(story: Story) -> list[ShownCluster]:
    """Read the last clustering from result.json, or from the rows of a run that goes on."""
    if story.result is not None and story.result.clusters:
        shown = []
        for cluster in story.result.clusters:
            histogram = None
            if cluster.histogram is not None:
                histogram = tuple(cluster.histogram)
            members = tuple(cluster.members)
            shown.append(
                ShownCluster(cluster.cluster, members, cluster.aggregator, cluster.level, histogram)
            )
        return shown
    clustered = [row for row in story.rows if row.clusters]
    if not clustered:
        return []
    last_row = row_with_labels(story.rows) or clustered[-1]
    shown = []
    for row in last_row.clusters:
        shown.append(
            ShownCluster(row.cluster, row.members, row.aggregator, row.level, row.histogram)
        )
    return shown


def row_with_labels(rows: Sequence[MetricsRow]) -> MetricsRow | None:
    """Return the first round of the latest clustering: only that row has label counts."""
    for row in reversed(rows):
        if row.population is not None:
            return row
    return None


def population_of(story: Story, last: Sequence[ShownCluster]) -> tuple[int, ...] | None:
    """Return the label counts of all clients that reported them; None: not known."""
    row = row_with_labels(story.rows)
    if row is not None:
        return row.population
    histograms = without_none(cluster.histogram for cluster in last)
    lengths = {len(histogram) for histogram in histograms}
    members = sum(len(cluster.members) for cluster in last)
    is_whole = len(histograms) == len(last) and members == len(story.samples)
    if not is_whole or len(lengths) != 1:
        return None
    return sum_of(histograms)


def labels(story: Story, last: Sequence[ShownCluster]) -> Safe | None:
    population = population_of(story, last)
    if not population:
        return None
    histograms = {}
    distances = {}
    for cluster in last:
        # In a file that was edited, the number of labels may differ.
        if cluster.histogram is not None and len(cluster.histogram) == len(population):
            histograms[cluster.number] = cluster.histogram
            distances[cluster.number] = distance(cluster.histogram, population)
    if not distances:
        return None
    farthest = sorted(distances, key=lambda number: -distances[number])[:MOST_BARS]
    pieces = label_names(story, len(population))
    bars = [Bar("overall", population, "")]
    cells: list[list[Child]] = [["overall", *map(str, population), "–"]]
    for number in sorted(farthest):
        name = f"cluster {number}"
        text = f"{distances[number]:.3f}"
        bars.append(Bar(name, histograms[number], text))
        cells.append([name, *map(str, histograms[number]), text])
    drawing = Stacked(
        key="cluster-labels",
        title="labels of each cluster beside those of all clients",
        description=spoken(distances),
        bars=bars,
        pieces=pieces,
        text_name="distance",
    )
    head = ["", *pieces, "distance"]
    fallback = table(head, cells, label="labels of clusters")
    about = caption(story, len(farthest), len(distances))
    return figure("cluster-labels", "Labels of each cluster", drawing.draw(), about, fallback)


def label_names(story: Story, count: int) -> list[str]:
    if story.classes is not None and len(story.classes.labels) == count:
        return list(story.classes.labels)
    described = None
    if story.result is not None:
        described = story.result.input
    if described is not None and len(described.labels) == count:
        return list(described.labels)
    return [str(number) for number in range(count)]


def spoken(distances: dict[int, float]) -> str:
    largest = max(distances, key=lambda number: distances[number])
    mean = sum(distances.values()) / len(distances)
    farthest = f"cluster {largest} is farthest with {distances[largest]:.3f}"
    return f"Distances to all clients' labels: {mean:.3f} on average; {farthest}."


def caption(story: Story, shown: int, total: int) -> str:
    sentences = [
        "Shares of labels, in the same order in every bar. The distance is to the labels of all "
        "clients: the sum of absolute differences of shares, from 0 (equal) to 2 (FINCH, Eq. 6)."
    ]
    if shown < total:
        sentences.append(f"The {shown} of {total} clusters that are farthest are shown.")
    sentences.append(about_noise(story))
    return " ".join(sentences)


def about_noise(story: Story) -> str:
    """Say whether the server saw exact counts or noisy ones."""
    rule: HistogramRule | None = None
    if story.config is not None:
        rule = story.config.topology.histogram_rule
    if rule is None:
        return "Counts are those that the server saw."
    if rule.epsilon is None:
        return "Counts are exact, as clients reported them."
    return (
        f"Counts are those that the server saw, with discrete Laplace noise (E = {rule.epsilon:g}) "
        "on each client's counts: the true counts differ."
    )


def listing(story: Story, last: Sequence[ShownCluster]) -> Safe:
    rows: list[list[Child]] = []
    for cluster in last:
        aggregator = "the server"
        if cluster.aggregator is not None:
            aggregator = story.client_name(cluster.aggregator)
        level = "–"
        if cluster.level is not None:
            level = f"{cluster.level:.3f}"
        members = counted(len(cluster.members), "client")
        names = member_names(story, cluster.members)
        rows.append([f"cluster {cluster.number}", aggregator, level, members, names])
    head = ["last clustering", "aggregator", "distance", "size", "members, in order of joining"]
    words = ("aggregator", "members, in order of joining")
    return table(head, rows, words=words, label="clusters")


def member_names(story: Story, members: Sequence[int]) -> str:
    names = [str(client) for client in members]
    if story.names:
        names = [story.client_name(client) for client in members]
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return ", ".join(names)


def place_note(story: Story) -> Safe | None:
    """Explain which messages are LAN by the clock; without places, that flatters clusters."""
    if story.config is None:
        return None
    devices = story.config.devices.rows or []
    if any(device.place for device in devices):
        return note(
            "The table of devices gives clients a place: messages between places are WAN, at WAN "
            "speed."
        )
    return note(
        "Note: the table of devices has no column `place`, so a whole cluster counts as one place "
        "and its messages use the LAN. Clients with complementary labels are rarely neighbours."
    )
