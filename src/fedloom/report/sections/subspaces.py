"""A search in sub-spaces: which sub-space each cluster got, and the final group of cells."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.evaluate.summary import without_none
from fedloom.records.rows import ClusterRow, MetricsRow
from fedloom.report.architectures import in_words
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, tag
from fedloom.report.numbers import amount, counted, percent
from fedloom.report.parts import figure, note, table
from fedloom.report.story import Story

MOST_ROUNDS = 30  # that are drawn: the last ones


def allotment(story: Story) -> Safe | None:
    """Draw clusters × rounds: the worth of each cluster's sub-space (FINCH, Algorithm 3)."""
    rows = [row for row in story.rows if allots_spaces(row)]
    if not rows:
        return None
    shown = rows[-MOST_ROUNDS:]
    numbers = cluster_numbers(shown)
    worths = []
    texts = []
    for number in numbers:
        worths_of_cluster = [worth_of(of_cluster(row, number)) for row in shown]
        worths.append(worths_of_cluster)
        texts.append(list(map(worth_in_words, worths_of_cluster)))
    shares = shades(worths)
    about = (
        "The worth of each cluster's sub-space when it was assigned: c/R, its accuracy before the "
        "round divided by its cost (Eq. 12); in the first round 1/R, as nothing had been scored "
        "yet. The largest worth of a round is the darkest. By Algorithm 3 the sub-space of least "
        "worth goes to the cluster whose labels are farthest from those of all clients."
    )
    if len(rows) > len(shown):
        about += f" The last {len(shown)} of {len(rows)} rounds are drawn; the table has all."
    drawing = Heat(
        key="allotment",
        title="worth of the sub-spaces of clusters",
        description=f"{len(numbers)} clusters, rounds {shown[0].round} to {shown[-1].round}",
        rows=[f"cluster {number}" for number in numbers],
        columns=[str(row.round) for row in shown],
        shares=shares,
        texts=texts,
        row_name="cluster",
        column_name="round",
    )
    heading = "Sub-space of each cluster"
    return figure("allotment", heading, drawing.draw(), about, subspace_table(rows))


def allots_spaces(row: MetricsRow) -> bool:
    return any(has_space(cluster) for cluster in row.clusters)


def cluster_numbers(rows: Sequence[MetricsRow]) -> list[int]:
    """Return the numbers of all clusters of these rounds."""
    numbers = set()
    for row in rows:
        for cluster in row.clusters:
            numbers.add(cluster.cluster)
    return sorted(numbers)


def has_space(cluster: ClusterRow) -> bool:
    return cluster.space is not None


def of_cluster(row: MetricsRow, number: int) -> ClusterRow | None:
    for cluster in row.clusters:
        if cluster.cluster == number:
            return cluster
    return None


def worth_of(cluster: ClusterRow | None) -> float | None:
    if cluster is None:
        return None
    return cluster.worth


def worth_in_words(worth: float | None) -> str:
    if worth is None:
        return ""
    return f"{worth:.2g}"


def shades(worths: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Return shades; each round's largest is the darkest, as worths compare within a round."""
    shares: list[list[float | None]] = [[] for _ in worths]
    for column in zip(*worths, strict=True):
        largest = max(without_none(column), default=0.0)
        for row, worth in zip(shares, column, strict=True):
            if worth is None or largest <= 0:
                row.append(None)
            else:
                row.append(worth / largest)
    return shares


def subspace_table(rows: Sequence[MetricsRow]) -> Safe:
    lines: list[list[Child]] = []
    for row in rows:
        for cluster in row.clusters:
            if has_space(cluster):
                lines.append(line_of(row.round, cluster))
    head = ["round", "cluster", "distance of labels", "c %", "R", "worth", "operations"]
    return table(head, lines, label="sub-spaces of clusters", words=("operations",))


def line_of(number: int, cluster: ClusterRow) -> list[Child]:
    return [
        str(number),
        str(cluster.cluster),
        decimal(cluster.level),
        percent(cluster.c),
        decimal(cluster.R),
        decimal(cluster.worth),
        in_words(cluster.space),
    ]


def decimal(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}"


def final_group(story: Story) -> Safe | None:
    """Show the candidate groups of cells, and the network that was built from the chosen one."""
    if story.result is None or story.result.final is None:
        return None
    final = story.result.final
    reducing = " and ".join(str(cell) for cell in final.reductions)
    sentence = note(
        f"The network repeats a group of {counted(final.group, 'cell')} {final.stack} times: "
        f"{counted(final.cells, 'cell')}, "
        f"of which {reducing} halve the feature map; {amount(final.params)} parameters, "
        f"{amount(final.macs)} MACs."
    )
    lines: list[list[Child]] = []
    for place, candidate in enumerate(final.candidates):
        chosen = ""
        if candidate.chosen:
            chosen = "chosen"
        lines.append(
            [
                str(place + 1),
                percent(candidate.validation),
                chosen,
                in_words(candidate.architecture),
            ]
        )
    head = ["candidate", "validation %", "", "operations"]
    candidates = table(head, lines, label="groups of cells", words=("", "operations"))
    caption = (
        "The candidates are the group of the global α, and those of the clusters in the last "
        "round of the search, evaluated with the supernet's weights on samples that are not test "
        "data."
    )
    return tag("div", tag("h3", "Final group of cells"), sentence, candidates, note(caption))
