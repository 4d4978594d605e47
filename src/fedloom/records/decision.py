"""Decisions that were made on validation data.

There are decisions of a whole run, which result.json lists, and decisions of a search for one
client, which the client's state and the rows of metrics.jsonl hold.
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
    """The same value, if it is nested lists or objects of numbers; null stands for "unknown"."""
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
    """One choice of a run, with the sums over validation samples on which it is based."""

    decision: str  # what was decided
    options: list[str]  # the options to choose from
    counts: Annotated[Json, AfterValidator(numbers_alone)]  # the sums, one entry per option
    chosen: str


class NotedScore(Record):
    """The score of a network without an operation, on validation data."""

    accuracy: Figure
    loss: Figure


class NotedDecision(Record):
    """Which operations were kept in a slot, by their names."""

    round: Count | None = None  # None: the method does not record it
    slot: str
    kept: list[str]  # empty: the slot was removed
    without: dict[str, NotedScore] = {}  # the score of the network without each candidate


def decisions_in(facts: Json) -> list[NotedDecision]:
    """The decisions in what an observer noted.

    Entries that do not look like decisions are skipped: methods may note anything.
    """
    if not isinstance(facts, Mapping) or not isinstance(facts.get("decisions"), list):
        return []
    decisions = []
    for noted in facts["decisions"]:
        try:
            decisions.append(NotedDecision.checked(noted, {}))
        except Unreadable:
            continue
    return decisions
