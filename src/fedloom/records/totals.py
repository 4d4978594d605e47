"""The total cost of a run so far: bytes, MACs and seconds.

Rows of metrics.jsonl and checkpoints hold it.
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
    seconds: Seconds = 0.0  # of the clients' work, summed over clients
    # The sum over rounds of the measured time of the slowest client.
    measured_clock: Seconds = 0.0
    evaluate_down: Count = 0
    evaluate_up: Count = 0
    evaluate_macs: Count = 0
    wall: Seconds = 0.0  # wall-clock seconds on this machine
    server_macs: Count = 0  # of the server itself: planning, merging, scoring
    # The part of `down` and `up` that describing the clients took.
    describe_down: Count = 0
    describe_up: Count = 0
    simulated: Seconds = 0.0  # what the simulated clock shows
    asked: Count = 0  # orders for work that were sent
    dropped: Count = 0  # orders whose client left during its work, by the simulated clock
    late: Count = 0  # orders whose reply came too late
    wasted_bytes: Count = 0  # of clients that left or were too late
    wasted_macs: Count = 0
    replaced: Count = 0  # aggregators

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(add, vars(self).values(), vars(other).values()))

    def spent(self, unit: str) -> float:
        """What was spent, in the unit of a budget.

        MACs include the server's own. Bytes are the traffic of all links for the work, LAN and WAN.
        Seconds are simulated.
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
        """The bytes of all links for the work; evaluation is booked separately."""
        return traffic_of(vars(self))

    def to_json(self) -> dict[str, Json]:
        """The totals, without zeros in fields that were added by later versions."""
        totals = {}
        for name, amount in vars(self).items():
            if amount or name in ALWAYS:
                totals[name] = amount
        return totals

    @classmethod
    def from_json(cls, raw: Json) -> Totals:
        """Read totals. Raises Unreadable. Unknown fields, from a later version, are ignored."""
        if not isinstance(raw, dict):
            raise Unreadable("its totals are not an object")
        if "clock" in raw and "measured_clock" not in raw:  # its name in earlier versions
            raw = {**raw, "measured_clock": raw["clock"]}
        for name in ALWAYS:
            if name not in raw:
                raise Unreadable(f"its totals lack `{name}`")
        try:
            return totals_checker().validate_python(raw)
        except ValidationError as error:
            raise Unreadable(first_mistake(error, "totals")) from None


NAMES = tuple(part.name for part in fields(Totals))
ALWAYS = NAMES[: NAMES.index("server_macs")]  # the fields that every version writes


@cache
def totals_checker() -> TypeAdapter[Totals]:
    return TypeAdapter(Totals)


def traffic_of(sent: Mapping[str, int]) -> int:
    """The bytes of all links for the work; `sent` has the names of the totals."""
    return sent["down"] + sent["up"] + lan_traffic_of(sent)


def lan_traffic_of(sent: Mapping[str, int]) -> int:
    """The bytes between clients and their aggregators."""
    return sent["lan_down"] + sent["lan_up"]
