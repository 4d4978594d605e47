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
    describing = Sums.of(booking for booking in bookings if booking.line.hop < 0)
    sums = Sums.of(bookings)
    costs = Totals(
        macs=sums.macs,
        seconds=sums.seconds,
        measured_clock=clock_of(bookings),
        describe_down=describing.down,
        describe_up=describing.up,
    )
    if not lan:
        return replace(costs, down=sums.down, up=sums.up)
    return replace(
        costs,
        down=describing.down,  # the server itself asks
        up=describing.up,
        lan_down=sums.down - describing.down,
        lan_up=sums.up - describing.up,
    )


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
    sums = Sums.of(bookings)
    return Totals(evaluate_down=sums.down, evaluate_up=sums.up, evaluate_macs=sums.macs)


@dataclass
class Sums:
    """Of the lines of a ledger; what an engine did not measure counts as nothing."""

    down: int = 0
    up: int = 0
    macs: int = 0
    seconds: float = 0

    @classmethod
    def of(cls, bookings: Iterable[Booking]) -> Sums:
        sums = cls()
        for booking in bookings:
            line = booking.line
            sums.down += line.down
            sums.up += line.up
            sums.macs += line.macs or 0
            sums.seconds += line.seconds or 0.0
        return sums
