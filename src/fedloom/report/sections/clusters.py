"""Who is together: the labels of each cluster beside those of everybody, as the server saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.config.histograms import HistogramRule
from fedloom.federation.protocol.clustering import distance, sum_of
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.stacked import Bar, Stacked
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, note, section, table
from fedloom.report.story import Story
from fedloom.report.tables import counted

MOST_BARS = 40  # those farthest from the population
MOST_NAMED = 12  # members in a cell


@dataclass(frozen=True)
class Shown:
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


def last_clustering(story: Story) -> list[Shown]:
    """As result.json has it; of a run that goes on, as its rows tell."""
    if story.result is not None and story.result.clusters:
        shown = []
        for cluster in story.result.clusters:
            histogram = None
            if cluster.histogram is not None:
                histogram = tuple(cluster.histogram)
            members = tuple(cluster.members)
            shown.append(
                Shown(cluster.cluster, members, cluster.aggregator, cluster.level, histogram)
            )
        return shown
    clustered = [row for row in story.rows if row.clusters]
    if not clustered:
        return []
    told = row_with_labels(story.rows)
    shown = []
    for row in (told or clustered[-1]).clusters:
        shown.append(Shown(row.cluster, row.members, row.aggregator, row.level, row.histogram))
    return shown


def row_with_labels(rows: Sequence[MetricsRow]) -> MetricsRow | None:
    """The last first round of a clustering."""
    for row in reversed(rows):
        if row.population is not None:
            return row
    return None


def population_of(story: Story, last: Sequence[Shown]) -> tuple[int, ...] | None:
    """Labels of everybody who told; None: not known."""
    told = row_with_labels(story.rows)
    if told is not None:
        return told.population
    histograms = [cluster.histogram for cluster in last if cluster.histogram is not None]
    lengths = {len(histogram) for histogram in histograms}
    together = sum(len(cluster.members) for cluster in last)
    is_whole = len(histograms) == len(last) and together == len(story.samples)
    if not is_whole or len(lengths) != 1:
        return None
    return sum_of(histograms)


def labels(story: Story, last: Sequence[Shown]) -> Safe | None:
    population = population_of(story, last)
    if not population:
        return None
    histograms = {}
    distances = {}
    for cluster in last:
        # A file that was edited may have another number of labels.
        if cluster.histogram is not None and len(cluster.histogram) == len(population):
            histograms[cluster.number] = cluster.histogram
            distances[cluster.number] = distance(cluster.histogram, population)
    if not distances:
        return None
    told = sorted(distances, key=lambda number: -distances[number])[:MOST_BARS]
    pieces = label_names(story, len(population))
    bars = [Bar("everybody", population, "")]
    cells: list[list[Child]] = [["everybody", *map(str, population), "–"]]
    for number in sorted(told):
        name = f"cluster {number}"
        text = f"{distances[number]:.3f}"
        bars.append(Bar(name, histograms[number], text))
        cells.append([name, *map(str, histograms[number]), text])
    drawing = Stacked(
        key="cluster-labels",
        title="labels of each cluster beside those of everybody",
        about=spoken(distances),
        bars=bars,
        pieces=pieces,
        text_name="distance",
    )
    head = ["", *pieces, "distance"]
    fallback = table(head, cells, label="labels of clusters")
    about = caption(story, len(told), len(distances))
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
    return f"Distances to everybody's labels: {mean:.3f} on average; {farthest}."


def caption(story: Story, shown: int, total: int) -> str:
    sentences = [
        "Shares of labels, in the same order in every bar. Behind it the distance to everybody's: "
        "the sum of absolute differences of shares, from 0 (the same) to 2 (FINCH, Eq. 6)."
    ]
    if shown < total:
        sentences.append(f"The {shown} of {total} clusters that are farthest.")
    sentences.append(about_noise(story))
    return " ".join(sentences)


def about_noise(story: Story) -> str:
    """How the server came to know these counts."""
    rule: HistogramRule | None = None
    if story.config is not None:
        rule = story.config.topology.histogram_rule
    if rule is None:
        return "Counts are those that the server saw."
    if rule.epsilon is None:
        return "Counts are exact, as clients told them."
    return (
        f"Counts are those that the server saw, with discrete Laplace noise (E = {rule.epsilon:g}) "
        "on each client's: what clients really hold differs."
    )


def listing(story: Story, last: Sequence[Shown]) -> Safe:
    rows: list[list[Child]] = []
    for cluster in last:
        aggregator = "the server"
        if cluster.aggregator is not None:
            aggregator = story.called(cluster.aggregator)
        level = "–"
        if cluster.level is not None:
            level = f"{cluster.level:.3f}"
        members = counted(len(cluster.members), "client")
        names = member_names(story, cluster.members)
        rows.append([f"cluster {cluster.number}", aggregator, level, members, names])
    head = ["last clustering", "aggregator", "distance", "size", "members, as they joined"]
    words = ("aggregator", "members, as they joined")
    return table(head, rows, words=words, label="clusters")


def member_names(story: Story, members: Sequence[int]) -> str:
    names = [str(client) for client in members]
    if story.names:
        names = [story.called(client) for client in members]
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return ", ".join(names)


def place_note(story: Story) -> Safe | None:
    """What the clock takes for near, which flatters clusters by labels."""
    if story.config is None:
        return None
    devices = story.config.devices.rows or []
    if any(device.place for device in devices):
        return note(
            "The table of devices gives clients a place: messages between places are WAN, at WAN "
            "speed."
        )
    return note(
        "Small print: the table of devices has no column `place`, so all of a cluster is one place "
        "and its messages are LAN. Clients whose labels complete each other are rarely neighbours."
    )
