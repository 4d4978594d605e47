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
    # Measured: rounds one after the other, each as long as its slowest client.
    measured_clock: Seconds = 0.0
    evaluate_down: Count = 0
    evaluate_up: Count = 0
    evaluate_macs: Count = 0
    wall: Seconds = 0.0  # seconds this machine really took
    server_macs: Count = 0  # of the server itself: planning, merging, scoring
    # Of `down` and `up`, what clients were described with.
    describe_down: Count = 0
    describe_up: Count = 0
    simulated: Seconds = 0.0  # what the simulated clock shows
    asked: Count = 0  # orders for work that were sent
    dropped: Count = 0  # of them, clients that left during their work, by the simulated clock
    late: Count = 0  # and those that came too late
    wasted_bytes: Count = 0  # of clients that left or came too late
    wasted_macs: Count = 0
    replaced: Count = 0  # aggregators

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(add, vars(self).values(), vars(other).values()))

    def spent(self, unit: str) -> float:
        """In the unit of a budget.

        MACs are the clients' and the server's own; bytes are everything a network carried for the
        work, LAN and WAN; seconds are simulated ones.
        """
        spent = {
            "rounds": self.rounds,
            "macs": self.macs + self.server_macs,
            "bytes": self.traffic,
            "wan": self.down + self.up,
            "seconds": self.simulated,
        }
        return spent[unit]

    @property
    def traffic(self) -> int:
        """All bytes that a network carried for the work; evaluation is booked apart."""
        return traffic_of(vars(self))

    def to_json(self) -> dict[str, Json]:
        """What later versions came to count is left out where there is nothing to count."""
        totals = {}
        for name, amount in vars(self).items():
            if amount or name in ALWAYS:
                totals[name] = amount
        return totals

    @classmethod
    def from_json(cls, raw: Json) -> Totals:
        """Raises Unreadable. What a later version counts beside these is ignored."""
        if not isinstance(raw, dict):
            raise Unreadable("its totals are not an object")
        if "clock" in raw and "measured_clock" not in raw:  # what earlier versions called it
            raw = {**raw, "measured_clock": raw["clock"]}
        for name in ALWAYS:
            if name not in raw:
                raise Unreadable(f"its totals lack `{name}`")
        try:
            return totals_checker().validate_python(raw)
        except ValidationError as error:
            raise Unreadable(first_mistake(error, "totals")) from None


NAMES = tuple(part.name for part in fields(Totals))
ALWAYS = NAMES[: NAMES.index("server_macs")]  # what every version tells


@cache
def totals_checker() -> TypeAdapter[Totals]:
    return TypeAdapter(Totals)


def traffic_of(sent: Mapping[str, int]) -> int:
    """All bytes that a network carried for the work, by the names that totals have."""
    return sent["down"] + sent["up"] + lan_traffic_of(sent)


def lan_traffic_of(sent: Mapping[str, int]) -> int:
    """Those of them that stayed between clients and their aggregators."""
    return sent["lan_down"] + sent["lan_up"]
