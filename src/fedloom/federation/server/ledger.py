"""What was really sent and computed, per client and round.

Bytes are those of the encoded messages; MACs, seconds and memory come from the engine's meter (None
where it has none). In a clustered topology clients talk to their aggregator on the LAN and
aggregators to the server on the WAN; a flat one is all WAN. What the server itself asks clients,
describing them, is WAN in any. Evaluation is booked apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fedloom.records.rows import LedgerLine
from fedloom.records.totals import Totals


class HopClient(NamedTuple):
    hop: int
    client: int


@dataclass(frozen=True)
class Transfer:
    """The bytes of a message and its answer, by the way they went.

    What an aggregator says to itself goes nowhere.
    """

    lan_down: int = 0
    lan_up: int = 0
    wan_down: int = 0
    wan_up: int = 0

    @property
    def down(self) -> int:
        return self.lan_down + self.wan_down

    @property
    def up(self) -> int:
        return self.lan_up + self.wan_up

    def plus(self, other: Transfer) -> Transfer:
        return Transfer(
            self.lan_down + other.lan_down,
            self.lan_up + other.lan_up,
            self.wan_down + other.wan_down,
            self.wan_up + other.wan_up,
        )

    def same_way(self, down: int, up: int) -> Transfer:
        """Other bytes between the same two."""
        if self.lan_down:
            return Transfer(lan_down=down, lan_up=up)
        if self.wan_down:
            return Transfer(wan_down=down, wan_up=up)
        return Transfer()


@dataclass(frozen=True)
class Booking:
    """One exchange with one client."""

    line: LedgerLine
    group: int | None = None  # the client's cluster
    transfer: Transfer | None = None  # by which way its bytes went; None: all over the WAN

    @property
    def sent(self) -> Transfer:
        if self.transfer is None:
            return Transfer(wan_down=self.line.down, wan_up=self.line.up)
        return self.transfer


def work_of(bookings: Iterable[Booking]) -> Totals:
    """The sum of exchanges with clients.

    Hops of a cluster follow one another, clusters run side by side.
    """
    bookings = list(bookings)
    describing = Sums.of(booking for booking in bookings if booking.line.hop < 0)
    sums = Sums.of(bookings)
    sent = Transfer()
    for booking in bookings:
        sent = sent.plus(booking.sent)
    return Totals(
        macs=sums.macs,
        seconds=sums.seconds,
        measured_clock=clock_of(bookings),
        describe_down=describing.down,
        describe_up=describing.up,
        down=sent.wan_down,
        up=sent.wan_up,
        lan_down=sent.lan_down,
        lan_up=sent.lan_up,
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
