"""What became of the orders of one round, and what they cost: its ledger, totals and row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fedloom.federation.server.clock import LostWork
from fedloom.federation.server.ledger import Booking, HopClient, Transfer, work_of
from fedloom.federation.server.spool import Receipt
from fedloom.records.rows import LedgerLine, MetricsRow, Refusal, WorkerDeath
from fedloom.records.totals import Totals
from fedloom.types import Json


@dataclass
class Accounts:
    """The receipts of one round, or of one evaluation."""

    stage: str
    round: int
    receipts: list[Receipt] = field(default_factory=list)
    # Attempts after which a client was asked again. They are booked, but are not refusals.
    failed_attempts: list[Receipt] = field(default_factory=list)
    # Receipts of this round from before it was resumed, kept for the deaths they record.
    forgotten: list[Receipt] = field(default_factory=list)
    clusters: dict[int, int | None] = field(default_factory=dict)  # by client
    lost_work: dict[HopClient, LostWork] = field(default_factory=dict)
    # In clusters, over which links the bytes of each client went.
    transfers: Mapping[HopClient, Transfer] = field(default_factory=dict)

    def bookings(self) -> list[Booking]:
        """A ledger entry for every receipt."""
        bookings = []
        for receipt in (*self.failed_attempts, *self.receipts):
            cluster = self.clusters.get(receipt.client)
            cluster_of_work = None
            if receipt.hop >= 0:
                cluster_of_work = cluster
            sent = self._sent(receipt)
            line = LedgerLine(
                receipt.client,
                receipt.hop,
                sent.down,
                sent.up,
                receipt.macs,
                receipt.seconds,
                receipt.memory,
                cluster_of_work,
                receipt.simulated,
            )
            bookings.append(Booking(line, cluster, sent))
        return bookings

    def _sent(self, receipt: Receipt) -> Transfer:
        """The bytes that were sent for an order.

        In clusters, they may have been sent twice or not at all.
        """
        transfer = self.transfers.get(HopClient(receipt.hop, receipt.client))
        if transfer is None:
            return Transfer(wan_down=receipt.down, wan_up=receipt.up)
        if receipt.asked_again:
            return transfer.same_way(receipt.down, receipt.up)
        return transfer

    def totals(self) -> Totals:
        asked = 0
        wasted_bytes = 0
        for receipt in self.receipts:
            if receipt.hop >= 0:
                asked += 1
            if HopClient(receipt.hop, receipt.client) in self.lost_work:
                sent = self._sent(receipt)
                wasted_bytes += sent.down + sent.up
        kinds = [lost.kind for lost in self.lost_work.values()]
        return replace(
            work_of(self.bookings()),
            asked=asked,
            dropped=kinds.count("dropped"),
            late=kinds.count("late"),
            wasted_bytes=wasted_bytes,
            wasted_macs=sum(lost.macs for lost in self.lost_work.values()),
        )

    def succeeded(self) -> bool:
        """Whether at least half of the clients that worked and answered in time were accepted."""
        worked = 0
        accepted = 0
        for receipt in self.receipts:
            if receipt.hop < 0 or HopClient(receipt.hop, receipt.client) in self.lost_work:
                continue
            worked += 1
            if receipt.reason is None:
                accepted += 1
        return 2 * accepted >= worked

    def row(self, progress: float, notes: Mapping[str, Json]) -> MetricsRow:
        """The round's row in metrics.jsonl, to which others add what they know."""
        accepted = self._accepted_work()
        refused = []
        for receipt in self.receipts:
            if receipt.reason is not None:
                refused.append(Refusal(receipt.client, receipt.reason))
        observed = {}
        for receipt in accepted:
            if receipt.facts is not None:
                observed[receipt.client] = receipt.facts
        lines = [booking.line for booking in self.bookings()]
        return MetricsRow(
            stage=self.stage,
            round=self.round,
            progress=progress,
            meta=means_of(receipt.plain for receipt in accepted),
            replies=len(accepted),
            refused=tuple(refused),
            ledger=tuple(sorted(lines, key=lambda line: (line.hop, line.client))),
            fresh=tuple(sorted(attempt.client for attempt in self.failed_attempts)),
            observed=observed,
            deaths=self.deaths(),
            macs_by_formula=any(receipt.macs_by_formula for receipt in self.receipts),
            notes=notes,
        )

    def deaths(self) -> tuple[WorkerDeath, ...]:
        """The deaths of processes that worked for this round, in client order.

        They count even if another process completed the work.
        """
        receipts = sorted([*self.forgotten, *self.receipts], key=lambda receipt: receipt.client)
        deaths = []
        for receipt in receipts:
            deaths += [death.at_work_for(receipt.client) for death in receipt.deaths]
        return tuple(deaths)

    def _accepted_work(self) -> list[Receipt]:
        """The receipts of accepted work, in the order of hops and clients."""
        accepted = []
        for receipt in self.receipts:
            if receipt.hop >= 0 and receipt.reason is None:
                accepted.append(receipt)
        return sorted(accepted, key=lambda receipt: (receipt.hop, receipt.client))


def means_of(replies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The plain numbers in accepted replies, such as a loss, averaged over clients for a curve."""
    by_name: dict[str, list[float]] = {}
    for numbers in replies:
        for name, value in numbers.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}
