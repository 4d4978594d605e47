"""What was actually sent and computed, per client and round.

Bytes are those of the encoded messages. MACs, seconds and memory come from the engine's meter, and
are None where it has none. In a clustered topology clients talk to their aggregator over the LAN,
and aggregators talk to the server over the WAN. In a flat topology all messages use the WAN. When
the server asks clients to describe themselves, it uses the WAN in every topology. Evaluation is
booked separately.
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
    """The bytes of a message and its answer, by the links over which they were sent.

    An aggregator's messages to itself are not sent at all.
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
        """Another message and its answer, sent over the same link."""
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
    transfer: Transfer | None = None  # the links that its bytes used; None: the WAN for all

    @property
    def sent(self) -> Transfer:
        if self.transfer is None:
            return Transfer(wan_down=self.line.down, wan_up=self.line.up)
        return self.transfer


def work_of(bookings: Iterable[Booking]) -> Totals:
    """The totals of exchanges with clients.

    The hops of a cluster follow one another. Clusters run in parallel.
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
    """How long the exchanges take if all clients of a hop work in parallel."""
    slowest: dict[int | None, dict[int, float]] = {}  # by cluster and hop
    for booking in bookings:
        line = booking.line
        hops = slowest.setdefault(booking.group, {})
        hops[line.hop] = max(hops.get(line.hop, 0.0), line.seconds or 0.0)
    return max((sum(hops.values()) for hops in slowest.values()), default=0.0)


def evaluation_of(bookings: Iterable[Booking]) -> Totals:
    """The totals of exchanges in which clients were evaluated."""
    sums = Sums.of(bookings)
    return Totals(evaluate_down=sums.down, evaluate_up=sums.up, evaluate_macs=sums.macs)


@dataclass
class Sums:
    """Sums over the lines of a ledger. What an engine did not measure counts as 0."""

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
