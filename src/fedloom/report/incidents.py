"""What went wrong in a run and was dealt with, in sentences: a reader of its figures must know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.types import Json

MOST_NAMED = 5  # clients


def incidents(result: Mapping[str, Any]) -> list[str]:
    """Of result.json. Files of earlier versions tell of none."""
    sentences = [taken_back(step) for step in result.get("taken_back", [])]
    versions = result.get("versions", {}).get("took_part")
    if versions:
        several = ", ".join(versions)
        sentences.append(f"Several versions of fedloom took part ({several}): equal bits are promised within one.")
    lost = result.get("lost_states", [])
    for how, consequence in (("fresh", "went on with a fresh one"), ("refused", "were left out of the round")):
        events = [event for event in lost if event["how"] == how]
        if events:
            sentences.append(f"{losers(events)} lost their own state and {consequence}.")
    return sentences


def taken_back(step: Json) -> str:
    return f"The run had reached round {step['since']} and was taken back to round {step['to']} (resume --from)."


def losers(events: Sequence[Json]) -> str:
    """`Clients 3 (round 7) and 5 (round 8)`."""
    named = [f"{event['client']} (round {event['round']})" for event in events[:MOST_NAMED]]
    if len(events) > MOST_NAMED:
        named.append(f"{len(events) - MOST_NAMED} more")
    if len(named) == 1:
        return f"Clients {named[0]}"
    return f"Clients {', '.join(named[:-1])} and {named[-1]}"
