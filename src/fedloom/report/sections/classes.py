"""Which client has samples of which classes, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.records.classes import Classes
from fedloom.records.result_parts import Confusion
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, tag
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story

MOST_LISTED = 1000  # clients in the table of samples
MOST_MISTAKES = 3  # that the caption names


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
    names = [story.client_name(client) for client in range(len(classes.counts))]
    drawing = Heat(
        key="split",
        title="samples of each class at each client",
        description=f"The largest count is {largest}.",
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
    return figure("split", "Classes of each client", drawing.draw(), about, fallback)


def shares(counts: Sequence[int], total: int) -> list[float | None]:
    """Return each count's share of a total; 0 if the total is 0."""
    return [count / max(1, total) for count in counts]


def texts(counts: Sequence[int]) -> list[str]:
    """Write counts; 0 is left blank."""
    return [str(count or "") for count in counts]


def unknown_split(story: Story) -> Safe:
    """Say why classes are not known, and list the clients' numbers of samples if they are."""
    if not story.samples:
        return note("The clients' samples are not known: the split file is missing or damaged.")
    reason = "The clients' classes are not known: the data is no longer where it was."
    if story.federated:
        reason = "A federation's sites report how many samples they have, not their classes."
    rows: list[list[Child]] = []
    for client, count in enumerate(story.samples[:MOST_LISTED]):
        rows.append([story.client_name(client), f"{count:,}"])
    samples = table(["client", "samples"], rows, label="samples of each client")
    return tag("div", note(reason), samples)


def confusion(story: Story) -> Safe | None:
    if story.result is None:
        return None
    if story.result.confusion is None:
        return note(
            "There is no confusion matrix. Possible reasons: the run is from a version without "
            "it, the data is text or has more than 100 classes, sites do not report it, or it "
            "would undo the noise of label counts."
        )
    return confusion_figure(story.result.confusion)


def confusion_figure(matrix: Confusion) -> Safe:
    """Draw the confusion matrix; shades are shares of a row, so that rare classes show too."""
    labels = matrix.labels
    mistakes = summary(labels, matrix.counts)
    drawing = Heat(
        key="confusion",
        title="true and predicted classes",
        description=mistakes,
        rows=labels,
        columns=labels,
        shares=[shares(counts, sum(counts)) for counts in matrix.counts],
        texts=[texts(counts) for counts in matrix.counts],
        row_name="true class",
        column_name="predicted class",
        framed=lambda row, column: row == column,
    )
    samples = f"Test samples of {matrix.clients} clients, each classified by its own model"
    about = f"{samples}; shades are shares of a row. {mistakes}"
    rows: list[list[Child]] = []
    for label, counts in zip(labels, matrix.counts, strict=True):
        rows.append([label, *map(str, counts)])
    head = ["true class", *(f"predicted {label}" for label in labels)]
    fallback = table(head, rows, label="confusion matrix")
    return figure("confusion", "Confusion matrix", drawing.draw(), about, fallback)


@dataclass(frozen=True)
class Mistake:
    """Samples of one class that were predicted as another."""

    count: int
    true: str
    predicted: str


def summary(labels: list[str], counts: list[list[int]]) -> str:
    """Name the most frequent mistakes."""
    mistakes = mistakes_in(labels, counts)
    if not mistakes:
        return "No sample is misclassified."
    mistakes.sort(key=lambda mistake: -mistake.count)
    parts = []
    for mistake in mistakes[:MOST_MISTAKES]:
        parts.append(f"{mistake.true} as {mistake.predicted} ({mistake.count}×)")
    return f"Most frequent mistakes: {', '.join(parts)}."


def mistakes_in(labels: list[str], counts: list[list[int]]) -> list[Mistake]:
    mistakes = []
    for true, row in enumerate(counts):
        for predicted, count in enumerate(row):
            if true != predicted and count:
                mistakes.append(Mistake(count, labels[true], labels[predicted]))
    return mistakes
