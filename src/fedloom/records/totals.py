"""What a run has cost so far: bytes, MACs, seconds.

Rows of metrics.jsonl and checkpoints keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from operator import add

from pydantic import TypeAdapter, ValidationError

from fedloom.reading import Unreadable
from fedloom.records.mistakes import first_mistake
from fedloom.records.record import Count, Seconds
from fedloom.types import Json


@dataclass(frozen=True)
class Totals:
    rounds: Count = 0
    down: Count = 0  # bytes between server and clients (or aggregators): WAN
    up: Count = 0
    lan_down: Count = 0  # between aggregators and clients
    lan_up: Count = 0
    macs: Count = 0
    seconds: Seconds = 0.0  # of clients' work, added up
    clock: Seconds = 0.0  # rounds one after the other, each as long as its slowest client
    evaluate_down: Count = 0
    evaluate_up: Count = 0
    evaluate_macs: Count = 0
    wall: Seconds = 0.0  # seconds this machine really took
    server_macs: Count = 0  # of the server itself, in rounds that asked nobody

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(add, vars(self).values(), vars(other).values()))

    def spent(self, unit: str) -> float:
        """In the unit of a budget.

        MACs are the clients' and the server's own; bytes are everything a network carried for the
        work, LAN and WAN.
        """
        macs = self.macs + self.server_macs
        return {"rounds": self.rounds, "macs": macs, "bytes": self.traffic}[unit]

    @property
    def traffic(self) -> int:
        """All bytes that a network carried for the work; evaluation is booked apart."""
        return traffic_of(vars(self))

    def to_json(self) -> dict[str, Json]:
        """What the server computed is left out where it computed nothing."""
        totals = dict(vars(self))
        if not self.server_macs:
            del totals["server_macs"]
        return totals

    @classmethod
    def from_json(cls, raw: Json) -> Totals:
        """Raises Unreadable. What a later version counts beside these is ignored."""
        if not isinstance(raw, dict):
            raise Unreadable("its totals are not an object")
        for name in NAMES:
            if name not in raw and name != "server_macs":
                raise Unreadable(f"its totals lack `{name}`")
        try:
            return totals_checker().validate_python(raw)
        except ValidationError as error:
            raise Unreadable(first_mistake(error, "totals")) from None


NAMES = tuple(part.name for part in fields(Totals))


@cache
def totals_checker() -> TypeAdapter[Totals]:
    return TypeAdapter(Totals)


def traffic_of(sent: Mapping[str, int]) -> int:
    """All bytes that a network carried for the work, by the names that totals have."""
    return sent["down"] + sent["up"] + lan_traffic_of(sent)


def lan_traffic_of(sent: Mapping[str, int]) -> int:
    """Those of them that stayed between clients and their aggregators."""
    return sent["lan_down"] + sent["lan_up"]
