"""The list of every field that left a client, and who could see it."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.records.result_parts import ReportedHistograms
from fedloom.report.html import Child, Safe
from fedloom.report.parts import note, section, table
from fedloom.report.story import Story

WHOLE = (
    "Everything that may leave a client is declared and checked; this is the full list. Samples "
    "and their labels never left. There is no secure aggregation and no differential privacy: the "
    "server sees each client's reply."
)
MEANINGS = {  # of orders
    "describe": "before its first work",
    "evaluate": "when figures were asked for",
}


def privacy(story: Story) -> Safe:
    if story.result is None:
        return section("privacy", "Privacy")
    rows: list[list[Child]] = []
    for row in story.result.privacy.left_the_clients:
        values = field_names(row.fields.values, everything="everything")
        tensors = field_names(
            [*row.fields.tensors, *row.fields.optional, *row.fields.extra],
            everything="all tensors of the order",
        )
        rows.append([row.stage, order_name(row.order), values, tensors, row.seen_by])
    head = ["stage", "in answer to", "values", "tensors", "seen by"]
    return section(
        "privacy",
        "Privacy",
        note(WHOLE),
        table(head, rows, words=head, label="fields that left the clients"),
        label_counts(story.result.privacy.histograms),
        *[note(text) for text in story.result.privacy.notes],
        note(observer(story, story.result.privacy.observer)),
    )


def label_counts(report: ReportedHistograms | None) -> Safe | None:
    """Show how clients reported their label counts; None if they were not asked."""
    if report is None:
        return None
    epsilon = "no noise"
    if report.epsilon is not None:
        epsilon = f"{report.epsilon:g}"
    head = ["label counts", "E", "sensitivity", "asked per client", "noise from"]
    times = f"{report.asked} ×"
    row: list[Child] = [report.mechanism, epsilon, str(report.sensitivity), times, report.secret]
    return table(head, [row], words=head, label="how label counts left the clients")


def order_name(order: str) -> str:
    if order in MEANINGS:
        return f"{order} ({MEANINGS[order]})"
    return order


def field_names(names: Sequence[str], *, everything: str) -> str:
    """Join the names of fields; a `*` among them is written as `everything`."""
    if not names:
        return "none"
    shown = []
    for name in names:
        if name == "*":
            name = everything
        shown.append(name)
    return ", ".join(shown)


def observer(story: Story, seen: str) -> str:
    """Say what was seen beyond these fields; `seen` is what a simulation's observer saw."""
    if story.federated:
        return "This was a federation: nobody observed more than these fields."
    more = f"{seen}; and who holds which classes"
    return f"This was a simulation, and its observer saw more, to draw this report: {more}."
