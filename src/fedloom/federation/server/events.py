"""The events that a run reports to a listener while it runs.

The server of a deployment writes them as lines of JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fedloom.reading import Unreadable
from fedloom.records.rows import MetricsRow
from fedloom.types import Json


@dataclass(frozen=True)
class Replied:
    """A client's reply, or the reason why there is none, is in the journal."""

    client: int
    of: int  # the number of clients that were asked
    round: int

    def to_json(self) -> Json:
        return {"event": "reply", "client": self.client, "of": self.of, "number": self.round}


@dataclass(frozen=True)
class ClientEvaluated:
    """A client has evaluated the model, or has failed to."""

    client: int
    of: int  # the number of clients that are evaluated
    round: int

    def to_json(self) -> Json:
        return {"event": "evaluated", "client": self.client, "of": self.of, "number": self.round}


@dataclass(frozen=True)
class RoundEnded:
    """The round is saved."""

    row: MetricsRow
    share: float  # the share of the run's budget that is spent

    def to_json(self) -> Json:
        return {**self.row.to_json(), "event": "round", "share": self.share}


@dataclass(frozen=True)
class Notice:
    """Something the user must not miss, such as a damaged file or a change of version."""

    text: str
    once: bool = False  # if several runs of a command give it, it is shown for the first one

    def to_json(self) -> Json:
        return {"event": "notice", "text": self.text}


Event: TypeAlias = Replied | ClientEvaluated | RoundEnded | Notice
Listener: TypeAlias = Callable[[Event], None]


def event_from_json(raw: Json) -> Event | None:
    """The event that JSON describes; None if only deployments have it, or if it is unreadable."""
    kind = raw["event"]
    if kind == "reply":
        return Replied(raw["client"], raw["of"], raw["number"])
    if kind == "evaluated":
        return ClientEvaluated(raw["client"], raw["of"], raw["number"])
    if kind == "notice":
        return Notice(raw["text"])
    if kind == "round":
        row = {name: value for name, value in raw.items() if name not in ("event", "share", "as")}
        try:
            return RoundEnded(MetricsRow.from_json(row), raw["share"])
        except Unreadable:
            return None
    return None
