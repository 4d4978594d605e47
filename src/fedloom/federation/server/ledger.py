"""What was really sent and computed, per client and round.

Bytes are those of the encoded messages; MACs, seconds and memory come from the engine's meter (None where it has none).
In a clustered topology clients talk to their aggregator on the LAN and aggregators to the server on the WAN;
a flat one is all WAN. Evaluation is booked apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from fedloom.types import Json


@dataclass(frozen=True)
class Booking:
    """One exchange with one client."""

    client: int
    hop: int
    down: int  # bytes
    up: int
    macs: int | None
    seconds: float | None
    group: int | None = None
    memory: int | None = None  # bytes that its process held at most


@dataclass(frozen=True)
class Totals:
    rounds: int = 0
    down: int = 0  # between server and clients (or aggregators): WAN
    up: int = 0
    lan_down: int = 0  # between aggregators and clients
    lan_up: int = 0
    macs: int = 0
    seconds: float = 0.0  # of clients' work, added up
    clock: float = 0.0  # rounds one after the other, each as long as its slowest client
    evaluate_down: int = 0
    evaluate_up: int = 0
    evaluate_macs: int = 0
    wall: float = 0.0  # seconds this machine really took

    def plus(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def spent(self, unit: str) -> float:
        """In the unit of a budget; bytes are everything a network carried for the work, LAN and WAN."""
        return {"rounds": self.rounds, "macs": self.macs, "bytes": traffic_of(vars(self))}[unit]

    def to_json(self) -> Json:
        return dict(vars(self))

    @classmethod
    def from_json(cls, raw: Json) -> Totals:
        return cls(**raw)


def traffic_of(sent: Mapping[str, int]) -> int:
    """All bytes that a network carried for the work, by the names that totals have; evaluation is booked apart."""
    return sent["down"] + sent["up"] + lan_traffic_of(sent)


def lan_traffic_of(sent: Mapping[str, int]) -> int:
    """Those of them that stayed between clients and their aggregators."""
    return sent["lan_down"] + sent["lan_up"]


def work_of(bookings: Iterable[Booking], *, lan: bool) -> Totals:
    """The sum of exchanges with clients. Hops of a cluster follow one another, clusters run side by side."""
    rows, slowest = list(bookings), dict[int | None, dict[int, float]]()
    for row in rows:
        hops = slowest.setdefault(row.group, {})
        hops[row.hop] = max(hops.get(row.hop, 0.0), row.seconds or 0.0)
    down, up = sum(row.down for row in rows), sum(row.up for row in rows)
    wan, near = ((0, 0), (down, up)) if lan else ((down, up), (0, 0))
    macs, seconds = sum(row.macs or 0 for row in rows), sum(row.seconds or 0.0 for row in rows)
    clock = max((sum(hops.values()) for hops in slowest.values()), default=0.0)
    return Totals(0, *wan, *near, macs, seconds, clock)


def evaluation(bookings: Iterable[Booking]) -> Totals:
    rows = list(bookings)
    return Totals(
        evaluate_down=sum(row.down for row in rows),
        evaluate_up=sum(row.up for row in rows),
        evaluate_macs=sum(row.macs or 0 for row in rows),
    )
