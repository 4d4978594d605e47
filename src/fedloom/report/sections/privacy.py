"""Every field that left a client, and who could see it."""

from __future__ import annotations

from fedloom.report.html import Child, Safe
from fedloom.report.parts import note, section, table
from fedloom.report.story import Story

WHOLE = (
    "All that may leave a client is declared and checked; this is the whole list. Samples and their labels never left. "
    "There is no secure aggregation and no differential privacy: the server sees each client's reply."
)
MEANINGS = {
    "describe": "before its first work", "evaluate": "when figures were asked for",
}  # fmt: skip


def privacy(story: Story) -> Safe:
    if not story.result:
        return section("privacy", "Privacy")
    rows: list[list[Child]] = []
    for row in story.result.privacy.left_the_clients:
        values = words(row.fields.values)
        tensors = words([*row.fields.tensors, *row.fields.extra], "all tensors of the order")
        rows.append([row.stage, f"{row.order}{said(row.order)}", values, tensors, row.seen_by])
    head = ["stage", "in answer to", "values", "tensors", "seen by"]
    return section(
        "privacy", "Privacy",
        note(WHOLE),
        table(head, rows, words=head, label="fields that left the clients"),
        note(observer(story, story.result.privacy.observer)),
    )  # fmt: skip


def said(order: str) -> str:
    return f" ({MEANINGS[order]})" if order in MEANINGS else ""


def words(names: list[str], all_of_them: str = "everything") -> str:
    return ", ".join(all_of_them if name == "*" else name for name in names) or "none"


def observer(story: Story, told: str) -> str:
    if story.federated:
        return "This was a federation: nobody observed more than these fields."
    return (
        f"This was a simulation, and its observer saw more, to draw this report: {told}; and who holds which classes."
    )
