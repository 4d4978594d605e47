"""Which client holds which classes, and which classes are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.records.classes import Classes
from fedloom.records.result import Confusion
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, tag
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story

MOST_LISTED = 1000  # clients in the table of samples
MOST_MISTAKES = 3  # in words


def data(story: Story) -> Safe:
    return section("data", "Data and classes", grid(split(story), confusion(story)))


def split(story: Story) -> Safe | None:
    if story.classes is None:
        return unknown_split(story)
    return known_split(story, story.classes)


def known_split(story: Story, classes: Classes) -> Safe:
    largest = 0
    for counts in classes.counts:
        largest = max([largest, *counts])
    names = [story.called(client) for client in range(len(classes.counts))]
    drawing = Heat(
        key="split",
        title="samples of each class at each client",
        about=f"The largest count is {largest}.",
        rows=names,
        columns=classes.labels,
        shares=[shares(counts, largest) for counts in classes.counts],
        texts=[texts(counts) for counts in classes.counts],
        row_name="client",
        column_name="class",
    )
    about = f"Samples of each class; the strongest shade is {largest}."
    total = len(story.samples)
    if len(names) < total:
        about += f" The first {len(names)} of {total:,} clients."
    rows: list[list[Child]] = []
    for name, counts in zip(names, classes.counts, strict=True):
        rows.append([name, str(sum(counts)), *map(str, counts)])
    head = ["client", "samples", *classes.labels]
    fallback = table(head, rows, label="samples of each class")
    return figure("split", "Who holds what", drawing.draw(), about, fallback)


def shares(counts: Sequence[int], total: int) -> list[float | None]:
    """Of each count in a total; of nothing, none."""
    return [count / max(1, total) for count in counts]


def texts(counts: Sequence[int]) -> list[str]:
    """Nothing is written where there is nothing."""
    return [str(count or "") for count in counts]


def unknown_split(story: Story) -> Safe:
    """Of a federation only what its sites described; of other runs, that data or split are gone."""
    if not story.samples:
        return note("Who holds what is not known: the split file is missing or damaged.")
    reason = "Which classes clients hold is not known: the data is no longer where it was."
    if story.federated:
        reason = "A federation's sites tell how many samples they have, not of which classes."
    rows: list[list[Child]] = []
    for client, count in enumerate(story.samples[:MOST_LISTED]):
        rows.append([story.called(client), f"{count:,}"])
    samples = table(["client", "samples"], rows, label="samples of each client")
    return tag("div", note(reason), samples)


def confusion(story: Story) -> Safe | None:
    if story.result is None:
        return None
    if story.result.confusion is None:
        return note(
            "There is no confusion matrix: the run is older than it, is of text or of more than "
            "100 classes, its sites keep it to themselves, or it would undo the noise of label "
            "counts."
        )
    return confusion_figure(story.result.confusion)


def confusion_figure(matrix: Confusion) -> Safe:
    """Shades are shares of a row, so that rare classes show too."""
    labels = matrix.labels
    mistakes = summary(labels, matrix.counts)
    drawing = Heat(
        key="confusion",
        title="classes taken for classes",
        about=mistakes,
        rows=labels,
        columns=labels,
        shares=[shares(counts, sum(counts)) for counts in matrix.counts],
        texts=[texts(counts) for counts in matrix.counts],
        row_name="true class",
        column_name="taken for",
        framed=lambda row, column: row == column,
    )
    samples = f"Test samples of {matrix.clients} clients, each by its own model"
    about = f"{samples}; shades are shares of a row. {mistakes}"
    rows: list[list[Child]] = []
    for label, counts in zip(labels, matrix.counts, strict=True):
        rows.append([label, *map(str, counts)])
    head = ["true class", *(f"as {label}" for label in labels)]
    fallback = table(head, rows, label="confusion matrix")
    return figure("confusion", "What is taken for what", drawing.draw(), about, fallback)


@dataclass(frozen=True)
class Mistake:
    """Samples of one class that were taken for another."""

    count: int
    true: str
    taken_for: str


def summary(labels: list[str], counts: list[list[int]]) -> str:
    """The most frequent mistakes, in words."""
    mistakes = mistakes_in(labels, counts)
    if not mistakes:
        return "No sample is taken for another class."
    mistakes.sort(key=lambda mistake: -mistake.count)
    parts = []
    for mistake in mistakes[:MOST_MISTAKES]:
        parts.append(f"{mistake.true} for {mistake.taken_for} ({mistake.count}×)")
    return f"Most often taken for another: {', '.join(parts)}."


def mistakes_in(labels: list[str], counts: list[list[int]]) -> list[Mistake]:
    mistakes = []
    for true, row in enumerate(counts):
        for taken_for, count in enumerate(row):
            if true != taken_for and count:
                mistakes.append(Mistake(count, labels[true], labels[taken_for]))
    return mistakes
