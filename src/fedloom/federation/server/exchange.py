"""A round's exchange of messages with its clients.

Who is described, asked and accepted, which versions of client state follow, and what it cost.

The journal comes first: an order that it knows of is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from fedloom.errors import RunStopped
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.deaths import what_helps
from fedloom.federation.protocol.envelope import BASIC, Envelope
from fedloom.federation.protocol.method import Stage, fields_of
from fedloom.federation.protocol.wire import read_reply
from fedloom.federation.server.ledger import Booking, Totals, work_of
from fedloom.federation.server.norms import UpdateBound
from fedloom.federation.server.parcels import Engine, encoded
from fedloom.federation.server.receiving import Rulers, receive
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.shares import capped
from fedloom.federation.server.spool import DESCRIBE, EVALUATE, Receipt, Spool, Spooled, content
from fedloom.metrics.metric import metric_of
from fedloom.types import Fields, Json, Order, Reply, Stamp, Weight

log = logging.getLogger("fedloom")


@dataclass
class Exchange:
    settings: Settings
    engine: Engine
    spool: Spool
    stage: Stage
    number: int  # the round
    named: Mapping[int, Mapping[int, str]]  # by round of a checkpoint, the versions of client state that it needs
    versions: dict[int, str]  # of every client's state, as it changes
    described: dict[int, Json]
    listen: Callable[[Json], None] = lambda event: None
    bound: UpdateBound = field(default_factory=lambda: UpdateBound({}, None))
    receipts: list[Receipt] = field(default_factory=list)
    failed_attempts: list[Receipt] = field(default_factory=list)  # booked, but nobody was refused for them
    groups: dict[int, int | None] = field(default_factory=dict)
    forgotten: list[Receipt] = field(default_factory=list)  # of this round, before it was resumed
    capped: dict[int, float] = field(default_factory=dict)  # clients and the share of the weight that they claimed

    def describe(self, orders: Sequence[Order]) -> list[Order]:
        """Describe clients before their first work, and leave out those that do not fit."""
        self.forgotten = self.spool.forgotten(self.number)
        new = [order.client for order in orders if order.client not in self.described]
        ask = {"ask": self.stage.method.describe}
        receipts = self._hop([Order(client, "describe", meta=ask) for client in new], DESCRIBE)
        self.receipts += receipts
        for receipt in receipts:
            if receipt.reason is None:
                meta = self.reply(receipt).meta  # its shape and labels are the task's: admission saw to it
                self.described[receipt.client] = {"samples": meta["samples"], "extra": meta["extra"]}
        return [order for order in orders if order.client in self.described]

    def work(self, orders: Sequence[Order], hop: int) -> Spooled:
        """One hop of work: the accepted replies, in client order."""
        self.groups.update({order.client: order.group for order in orders})
        receipts = self._bounded(orders, self._hop(orders, hop))
        self.receipts += receipts
        accepted = [receipt for receipt in receipts if receipt.reason is None]
        for receipt in accepted:
            if receipt.wrote:
                self.versions[receipt.client] = f"{self.number}.{hop}"
        least = self.settings.min_replies
        if len(accepted) < least:
            refused = [receipt for receipt in self.receipts if receipt.reason is not None]
            reasons = "; ".join(f"{self.settings.called(r.client)}: {r.reason}" for r in refused)
            deaths = [death for receipt in refused for death in receipt.deaths]
            others_refused = any(not receipt.deaths for receipt in refused)
            advice = what_helps(deaths, others_refused=others_refused)
            if others_refused and not accepted and self.number > 1:
                before = max((number for number in self.named if number < self.number - 1), default=0)
                advice += f"; if the model itself was spoiled, `fedloom resume RUN --from {before}` goes back"
            self.spool.forget(self.number, hop, [r.client for r in receipts if r.reason is not None])
            raise RunStopped(
                f"round {self.number} must get at least {least} replies (--min-replies)",
                f"got {len(accepted)} ({reasons or 'nobody was asked'})",
                advice,
            )
        return self._weighed(Spooled(tuple((receipt.client, self.spool.content(receipt)) for receipt in accepted)))

    def _weighed(self, replies: Spooled) -> Spooled:
        """The complete hop, of all clusters together, with nobody above --max-weight-share of its weight."""
        share = self.settings.max_weight_share
        if share is None:
            return replies
        found = capped(claimed_weights(replies), share)
        for client, claimed in found.shares.items():
            self.capped[client] = max(claimed, self.capped.get(client, 0.0))
        return replace(replies, weights=found.weights)

    def _hop(self, orders: Sequence[Order], hop: int) -> list[Receipt]:
        """Ask those the journal does not know yet."""
        journaled = self.spool.settled(self.number, hop)
        known = journaled.receipts
        for attempt in journaled.failed_attempts:
            self._begin_afresh(attempt)
        done = [known[order.client] for order in orders if order.client in known]
        todo = [self.stamped(order, hop) for order in orders if order.client not in known]
        while todo:
            again = []
            for order, receipt, envelope in self._ask(todo):
                lost = envelope.fault is not None and envelope.fault.kind == "lost"
                if lost and self.settings.lost_state == "fresh" and order.client in self.versions:
                    attempt = replace(receipt, asked_again=True)
                    self.spool.record(attempt)
                    self._begin_afresh(attempt)
                    again.append(self.stamped(order, hop))
                    continue
                self.spool.record(receipt)
                done.append(receipt)
                self.listen({"event": "reply", "client": order.client, "of": len(orders), "number": self.number})
            todo = again
        return sorted(done, key=lambda receipt: receipt.client)

    def _ask(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Receipt, Envelope]]:
        """Send orders, all of one hop, and yield what became of each, as it arrives."""
        by_client = {order.client: order for order in orders}
        rulers = Rulers()
        for parcel, envelope in self.engine.ask(list(encoded(orders, self.spool)), self.settings.deadline):
            order = by_client[parcel.client]
            name = self.settings.called(order.client)
            receipt = receive(order, parcel, envelope, self.fields(order.kind), self.check, rulers, name)
            if receipt.reason is not None:
                self._tell_refused(receipt)
            yield order, receipt, envelope

    def _tell_refused(self, receipt: Receipt) -> None:
        log.warning("round %d: %s refused: %s", receipt.round, self.settings.called(receipt.client), receipt.reason)

    def _bounded(self, orders: Sequence[Order], receipts: Sequence[Receipt]) -> list[Receipt]:
        """With those refused whose updates are absurdly large. Not journaled: the same receipts give it again."""
        norms = {r.client: r.norms for r in receipts if r.reason is None and r.norms is not None}
        reasons = self.bound.refuse(orders, norms)
        judged = []
        for receipt in receipts:
            if receipt.client in reasons:
                receipt = replace(receipt, reason=reasons[receipt.client])
                self._tell_refused(receipt)
            judged.append(receipt)
        return judged

    def succeeded(self) -> bool:
        """Whether at least half of those that worked were accepted."""
        worked = [receipt for receipt in self.receipts if receipt.hop >= 0]
        accepted = sum(receipt.reason is None for receipt in worked)
        return 2 * accepted >= len(worked)

    def _begin_afresh(self, attempt: Receipt) -> None:
        """A client whose state was lost goes on without one; the exchange in which it said so is booked too."""
        log.warning("%s goes on with a fresh state", self.settings.called(attempt.client))
        self.failed_attempts.append(attempt)
        self.versions.pop(attempt.client, None)

    def evaluate(self, orders: Sequence[Order]) -> list[Json]:
        """A row of figures for each client, null with a reason where there is no answer. Not journaled."""
        rows: dict[int, dict[str, Json]] = {
            order.client: {"client": order.client, "personal": None, "shared": None} for order in orders
        }
        stamped = [self.stamped(order, EVALUATE) for order in orders]
        for order, receipt, envelope in self._ask(stamped):
            self.receipts.append(receipt)
            if receipt.reason is not None:
                rows[order.client]["reason"] = receipt.reason
            else:
                rows[order.client].update(self.reply(receipt).meta, facts=envelope.facts)
            if receipt.held is None:
                self.spool.path(self.number, EVALUATE, order.client).unlink(missing_ok=True)
            self.listen({"event": "evaluated", "client": order.client, "of": len(orders), "number": self.number})
        return list(rows.values())

    def stamped(self, order: Order, hop: int) -> Order:
        """Only the loop writes a stamp: where the order stands, and the versions of client state it touches."""
        read = None if hop == DESCRIBE else self.versions.get(order.client)
        keep = {versions[order.client] for versions in self.named.values() if order.client in versions}
        # until the round's checkpoint is written, any of its hops may be asked for again: a power cut may cost the
        # journal's last lines
        keep |= {f"{self.number}.{earlier}" for earlier in range(hop)}
        write = f"{self.number}.{hop}" if hop >= 0 else None
        run, task = self.settings.experiment, self.settings.task
        return replace(
            order, stamp=Stamp(run, task, self.stage.name, self.number, hop, read, write, tuple(sorted(keep)))
        )

    def fields(self, kind: str) -> Fields:
        return BASIC[kind] if kind in BASIC else fields_of(self.stage.method, kind)

    def check(self, reply: Reply, order: Order) -> str | None:
        """Admission: why this reply may not be used, or None."""
        samples = self.described.get(order.client, {}).get("samples", {})
        method, trained = self.stage.method, samples.get("train", 0)
        most, steps = method.most_weight(order, trained), method.most_steps(order, trained)
        reason = admission.refuse(reply, order, self.fields(order.kind), most, steps)
        if reason is None and order.kind == "describe":
            return admission.refuse_description(reply.meta, self.settings.task) or self._refuse_counts(reply)
        if reason is None and order.kind == "evaluate":
            metric, most = metric_of(self.settings.task.kind), sum(samples.values()) if samples else inf
            return admission.refuse_evaluation(reply.meta, most, metric, len(self.settings.task.labels))
        return reason

    def _refuse_counts(self, reply: Reply) -> str | None:
        """A client may not describe more samples than it had when the run began: they bound its weight."""
        if not self.settings.registered:
            return None
        registered, samples = self.settings.registered[reply.client], reply.meta["samples"]
        if samples["train"] > registered.train or sum(samples.values()) > registered.total:
            return (
                f"it describes {samples['train']} samples to train on of {sum(samples.values())}; when the run began "
                f"it had {registered.train} of {registered.total}"
            )
        return None

    def reply(self, receipt: Receipt) -> Reply:
        return read_reply(content(self.spool.content(receipt)))

    # Figures

    def bookings(self) -> list[Booking]:
        return [
            Booking(r.client, r.hop, r.down, r.up, r.macs, r.seconds, self.groups.get(r.client), r.memory)
            for r in (*self.failed_attempts, *self.receipts)
        ]

    def totals(self, *, lan: bool) -> Totals:
        return work_of(self.bookings(), lan=lan)

    def row(self) -> dict[str, Json]:
        """What metrics.jsonl says of the round's exchanges."""
        refused = [{"client": r.client, "reason": r.reason} for r in self.receipts if r.reason is not None]
        replies = sum(r.reason is None and r.hop >= 0 for r in self.receipts)
        observed = {str(r.client): r.facts for r in self._work() if r.facts is not None}
        row: dict[str, Json] = {"meta": self._means(), "replies": replies, "refused": refused, "ledger": self._lines()}
        if self.failed_attempts:  # these clients lost their state, and went on with a fresh one
            row["fresh"] = sorted(attempt.client for attempt in self.failed_attempts)
        if self.capped:
            row["capped"] = {str(client): round(share, 6) for client, share in sorted(self.capped.items())}
        if self.bound.updates:
            row["updates"] = self.bound.updates
        if observed:
            row["observed"] = observed
        return with_deaths(row, self.deaths())

    def deaths(self) -> list[Json]:
        """Of processes that worked for this round, in client order, whether or not another one did the work."""
        receipts = sorted([*self.forgotten, *self.receipts], key=lambda receipt: receipt.client)
        return [{"client": r.client, **death.to_json()} for r in receipts for death in r.deaths]

    def _work(self) -> list[Receipt]:
        """Of accepted work, in order."""
        accepted = [receipt for receipt in self.receipts if receipt.reason is None and receipt.hop >= 0]
        return sorted(accepted, key=lambda receipt: (receipt.hop, receipt.client))

    def _means(self) -> dict[str, float]:
        """Plain numbers that accepted replies carry (a loss), averaged over clients, for the curve."""
        found: dict[str, list[float]] = {}
        for receipt in self._work():
            for name, value in receipt.plain.items():
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}

    def _lines(self) -> Json:
        """The ledger: [client, hop, bytes down, bytes up, MACs, seconds, memory], a line an exchange."""
        rows = sorted(self.bookings(), key=lambda row: (row.hop, row.client))
        return [[row.client, row.hop, row.down, row.up, row.macs, row.seconds, row.memory] for row in rows]


def with_deaths(row: dict[str, Json], deaths: list[Json]) -> dict[str, Json]:
    """A row of a round in which no process died does not speak of it."""
    if not deaths:
        return row
    return {**row, "deaths": [*row.get("deaths", []), *deaths]}


def claimed_weights(replies: Collection[Reply]) -> dict[int, Weight]:
    """By client. Where one weighs key by key, all do: a single weight is that of every tensor it brings."""
    claimed = {reply.client: (reply.weight, tuple(reply.tensors)) for reply in replies}
    if not any(isinstance(weight, Mapping) for weight, _ in claimed.values()):
        return {client: weight for client, (weight, _) in claimed.items()}
    by_key: dict[int, Weight] = {}
    for client, (weight, names) in claimed.items():
        by_key[client] = weight if isinstance(weight, Mapping) else dict.fromkeys(names, weight)
    return by_key
