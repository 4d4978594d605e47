"""Which client holds which classes, and which classes are taken for which."""

from __future__ import annotations

from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, tag
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story


def data(story: Story) -> Safe:
    return section("data", "Data and classes", grid(split(story), confusion(story)))


def split(story: Story) -> Safe | None:
    found = story.classes
    if found is None:
        return unknown_split(story)
    most = max((count for row in found.counts for count in row), default=0)
    names = [story.called(k) for k in range(len(found.counts))]
    drawn = Heat(
        "split", "samples of each class at each client", f"The largest count is {most}.", names, found.labels,
        [[count / most if most else 0.0 for count in row] for row in found.counts],
        [[str(count) if count else "" for count in row] for row in found.counts], "client", "class",
    ).draw()  # fmt: skip
    total = len(story.samples)
    some = f" The first {len(names)} of {total:,} clients." if len(names) < total else ""
    rows: list[list[Child]] = [[names[k], str(sum(row)), *map(str, row)] for k, row in enumerate(found.counts)]
    return figure(
        "split", "Who holds what", drawn, f"Samples of each class; the strongest shade is {most}.{some}",
        table(["client", "samples", *found.labels], rows, label="samples of each class"),
    )  # fmt: skip


def unknown_split(story: Story) -> Safe | None:
    """Of a federation only what its sites described; of other runs, that data or split are gone."""
    if not story.samples:
        return note("Who holds what is not known: the split file is missing or damaged.")
    told = (
        "A federation's sites tell how many samples they have, not of which classes."
        if story.federated
        else "Which classes clients hold is not known: the data is no longer where it was."
    )
    rows: list[list[Child]] = [[story.called(k), f"{count:,}"] for k, count in enumerate(story.samples[:1000])]
    return tag("div", note(told), table(["client", "samples"], rows, label="samples of each client"))


def confusion(story: Story) -> Safe | None:
    if story.result is None:
        return None
    matrix = story.result.confusion
    if matrix is None:
        return note(
            "There is no confusion matrix: the run is older than it, is of text or of more than 100 classes, or its "
            "sites keep it to themselves."
        )
    labels, counts = matrix.labels, matrix.counts
    totals = [sum(row) for row in counts]
    drawn = Heat(
        "confusion", "classes taken for classes", summary(labels, counts), labels, labels,
        [[count / max(1, total) for count in row] for row, total in zip(counts, totals, strict=True)],
        [[str(count) if count else "" for count in row] for row in counts], "true class", "taken for",
        framed=lambda row, column: row == column,
    ).draw()  # fmt: skip
    rows: list[list[Child]] = [[labels[k], *map(str, row)] for k, row in enumerate(counts)]
    return figure(
        "confusion", "What is taken for what", drawn, f"Test samples of {matrix.clients} clients, each by its own "
        f"model; shades are shares of a row. {summary(labels, counts)}",
        table(["true class", *(f"as {label}" for label in labels)], rows, label="confusion matrix"),
    )  # fmt: skip


def summary(labels: list[str], counts: list[list[int]]) -> str:
    """The most frequent mistakes, in words."""
    wrong = [
        (count, labels[i], labels[j]) for i, row in enumerate(counts) for j, count in enumerate(row) if i != j and count
    ]
    if not wrong:
        return "No sample is taken for another class."
    wrong.sort(key=lambda found: -found[0])
    told = ", ".join(f"{true} for {taken} ({count}×)" for count, true, taken in wrong[:3])
    return f"Most often taken for another: {told}."
