"""What was really sent and computed, per client and round.

Bytes are those of the encoded messages; MACs, seconds and memory come from the engine's meter (None
where it has none). In a clustered topology clients talk to their aggregator on the LAN and
aggregators to the server on the WAN; a flat one is all WAN. Evaluation is booked apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedloom.records.rows import LedgerLine
from fedloom.records.totals import Totals


@dataclass(frozen=True)
class Booking:
    """One exchange with one client."""

    line: LedgerLine
    group: int | None = None  # the client's cluster


def work_of(bookings: Iterable[Booking], *, lan: bool) -> Totals:
    """The sum of exchanges with clients.

    Hops of a cluster follow one another, clusters run side by side.
    """
    bookings = list(bookings)
    lines = [booking.line for booking in bookings]
    down = sum(line.down for line in lines)
    up = sum(line.up for line in lines)
    costs = Totals(
        macs=sum(line.macs or 0 for line in lines),
        seconds=sum(line.seconds or 0.0 for line in lines),
        clock=clock_of(bookings),
    )
    if lan:
        return replace(costs, lan_down=down, lan_up=up)
    return replace(costs, down=down, up=up)


def clock_of(bookings: Iterable[Booking]) -> float:
    """How long the exchanges take if all clients of a hop work at once."""
    slowest: dict[int | None, dict[int, float]] = {}  # by cluster and hop
    for booking in bookings:
        line = booking.line
        hops = slowest.setdefault(booking.group, {})
        hops[line.hop] = max(hops.get(line.hop, 0.0), line.seconds or 0.0)
    return max((sum(hops.values()) for hops in slowest.values()), default=0.0)


def evaluation_of(bookings: Iterable[Booking]) -> Totals:
    """The sum of exchanges in which clients were evaluated."""
    lines = [booking.line for booking in bookings]
    return Totals(
        evaluate_down=sum(line.down for line in lines),
        evaluate_up=sum(line.up for line in lines),
        evaluate_macs=sum(line.macs or 0 for line in lines),
    )
