"""What comes back beside a reply, and the two kinds of orders that every site answers.

The envelope holds what an engine measured. It travels beside the reply and never in it: a client's
MACs would tell of its private architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedloom.federation.protocol.deaths import Death
from fedloom.types import Fields, Json

DESCRIPTION = dict.fromkeys(("shape", "labels", "samples", "extra", "histogram"), Any)
EVALUATION = dict.fromkeys(("personal", "shared", "confusion"), Any)
# What the orders of every method may bring back; admission has a schema of its own for each.
BASIC = {
    "describe": Fields(meta=DESCRIPTION, writes=False),
    "evaluate": Fields(meta=EVALUATION, writes=False),
}

FaultKind = Literal["raised", "lost", "store", "died", "late", "refused"]


@dataclass(frozen=True)
class Fault:
    """Why there is no reply.

    A "store" fault is the site's disk, not the client: the run must stop. "refused" is the site's
    own policy, or its device's limit.
    """

    kind: FaultKind
    text: str
    detail: str = ""  # a traceback, for the log of the machine it happened on


@dataclass(frozen=True)
class Envelope:
    """What the engine measured, beside the reply."""

    seconds: float = 0.0
    macs: int | None = 0  # None where a site does not tell
    # What the observer of a simulation may know of a network, or of a client's work.
    facts: Json = None
    fault: Fault | None = None
    # The most that its process held, in bytes; None where it is not known or not told.
    memory: int | None = None
    # How processes ended that had this order before; only an engine that starts them knows.
    deaths: tuple[Death, ...] = ()
    search_macs: int = 0  # of the MACs, those of searching: a clock may book the two side by side

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
        """What a site tells: it cannot tell of deaths."""
        fault = None
        if raw["fault"] is not None:
            fault = Fault(**raw["fault"])
        return cls(
            raw["seconds"],
            raw["macs"],
            raw["facts"],
            fault,
            raw["memory"],
            search_macs=raw.get("search_macs", 0),  # a site of an earlier version does not tell
        )
