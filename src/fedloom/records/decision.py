"""What was decided on validation data.

That is what a whole run decided, as result.json has it, and what a search decided for a client, as
a client's state and a row of metrics.jsonl tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from fedloom.reading import Unreadable
from fedloom.records.record import Count, Figure, Record
from fedloom.types import Json


def numbers_alone(counts: Json) -> Json:
    """The same, if it is made of lists or objects that end in numbers; null is "not known"."""
    waiting = [counts]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, bool | str):
            raise PydanticCustomError("counts", "Input should hold numbers alone")
    return counts


class Decision(Record):
    """One choice of a run, with the sums over validation samples that it was made by."""

    decision: str  # what was decided
    options: list[str]  # what there was to choose from
    counts: Annotated[Json, AfterValidator(numbers_alone)]  # the sums, an entry an option
    chosen: str


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
