"""What a search decided for a client, as a client's state and a row of metrics.jsonl tell it."""

from __future__ import annotations

from collections.abc import Mapping

from fedloom.reading import Unreadable
from fedloom.records.record import Count, Figure, Record
from fedloom.types import Json


class NotedScore(Record):
    """Of a network without an operation, on validation data."""

    accuracy: Figure
    loss: Figure


class NotedDecision(Record):
    """What was kept in a slot, by names."""

    round: Count | None = None  # None: its method does not note it
    slot: str
    kept: list[str]  # operations; none: the slot is gone
    without: dict[str, NotedScore] = {}  # how the network did without each candidate


def decisions_in(facts: Json) -> list[NotedDecision]:
    """Of what an observer noted: what does not look like a decision is its method's own affair."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("decisions"), list):
        return []
    decisions = []
    for noted in facts["decisions"]:
        try:
            decisions.append(NotedDecision.checked(noted, {}))
        except Unreadable:
            continue
    return decisions
