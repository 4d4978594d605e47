"""The envelope that comes back with a reply, and the two kinds of orders that every site answers.

The envelope holds what an engine measured. It travels beside the reply and never in it, because a
client's MACs would reveal its private architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedloom.federation.protocol.deaths import Death
from fedloom.types import Fields, Json

DESCRIPTION = dict.fromkeys(("shape", "labels", "samples", "extra", "histogram"), Any)
EVALUATION = dict.fromkeys(("personal", "shared", "confusion"), Any)
# What replies to these orders may hold, for every method. Admission has its own schema for each.
BASIC = {
    "describe": Fields(meta=DESCRIPTION, writes=False),
    "evaluate": Fields(meta=EVALUATION, writes=False),
}

FaultKind = Literal[
    "raised",
    "lost",
    "store",
    "died",
    "late",
    "refused",
    "few",
    "data",
    "memory",
    "method",
]


@dataclass(frozen=True)
class Fault:
    """Why there is no reply.

    A "store" fault comes from the site's disk rather than the client, so the run must stop. A
    "refused" fault comes from the site's own policy or its device's limit, and a "few" fault from
    its least number of samples in a part. Real sites send a code instead of an error's text:
    "data", "memory" or "method" (`deploy/failures.py`).
    """

    kind: FaultKind
    text: str
    detail: str = ""  # a traceback, for the log of the machine it happened on


@dataclass(frozen=True)
class Envelope:
    """What the engine measured while a client worked."""

    seconds: float = 0.0
    macs: int | None = 0  # None if a site does not report them
    # What the observer of a simulation may know about a network or a client's work.
    facts: Json = None
    fault: Fault | None = None
    # The peak memory of the process, in bytes; None if it is unknown or not reported.
    memory: int | None = None
    # How earlier processes with this order died, which only an engine that starts them knows.
    deaths: tuple[Death, ...] = ()
    search_macs: int = 0  # the part of the MACs spent on searching; a clock may run it in parallel

    def to_json(self) -> Json:
        fault = None
        if self.fault is not None:
            fault = vars(self.fault)
        return {
            "seconds": self.seconds,
            "macs": self.macs,
            "facts": self.facts,
            "fault": fault,
            "memory": self.memory,
            "search_macs": self.search_macs,
        }

    @classmethod
    def from_json(cls, raw: Json) -> Envelope:
        """The envelope that a site sent, which cannot report deaths."""
        fault = None
        if raw["fault"] is not None:
            fault = Fault(**raw["fault"])
        return cls(
            raw["seconds"],
            raw["macs"],
            raw["facts"],
            fault,
            raw["memory"],
            search_macs=raw.get("search_macs", 0),  # sites of earlier versions do not send it
        )
