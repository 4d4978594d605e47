"""A round's exchange of messages with its clients.

Who is described, asked and accepted, which versions of client state follow, and what it cost.

The journal comes first: an order that it knows of is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from fedloom.errors import RunStopped, TooFewReplies
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.deaths import Death, what_helps
from fedloom.federation.protocol.envelope import BASIC, Envelope
from fedloom.federation.protocol.evaluation import ClientEvaluation, EvaluationReply
from fedloom.federation.protocol.method import Method, Stage, fields_of
from fedloom.federation.protocol.parcels import Engine, content
from fedloom.federation.protocol.wire import read_reply
from fedloom.federation.server.clock import HopTimes, HopWork, Loss
from fedloom.federation.server.cluster_round import Takeover
from fedloom.federation.server.events import ClientEvaluated, Listener, Replied
from fedloom.federation.server.ledger import (
    Booking,
    HopClient,
    Transfer,
    evaluation_of,
    work_of,
)
from fedloom.federation.server.norms import UpdateBound
from fedloom.federation.server.parcels import encoded
from fedloom.federation.server.receiving import Judges, receive
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.shares import capped
from fedloom.federation.server.spool import DESCRIBE, EVALUATE, Place, Receipt, Spool, Spooled
from fedloom.federation.server.topology import Timing, Worked
from fedloom.metrics.metric import metric_of
from fedloom.records.rows import LedgerLine, MetricsRow, Refusal, WorkerDeath
from fedloom.records.totals import Totals
from fedloom.types import ClientDescription, Fields, Json, Order, Reply, Stamp, Weight

log = logging.getLogger("fedloom")

# Bytes of a hop's replies that stay as they were read on arrival; the others are read again.
MOST_KEPT = 1 << 24


class Answer(NamedTuple):
    """What became of an order."""

    order: Order
    receipt: Receipt
    envelope: Envelope
    reply: Reply | None  # if it was accepted


@dataclass
class Exchange:
    settings: Settings
    engine: Engine
    spool: Spool
    stage: Stage
    number: int  # the round
    # The client states that a checkpoint needs, by its round.
    named: Mapping[int, Mapping[int, str]]
    versions: dict[int, str]  # of every client's state, as it changes
    described: dict[int, ClientDescription]
    listen: Listener = lambda event: None
    bound: UpdateBound = field(default_factory=lambda: UpdateBound({}, None))
    receipts: list[Receipt] = field(default_factory=list)
    failed_attempts: list[Receipt] = field(default_factory=list)  # booked, but refused nobody
    groups: dict[int, int | None] = field(default_factory=dict)
    forgotten: list[Receipt] = field(default_factory=list)  # of this round, before it was resumed
    capped: dict[int, float] = field(default_factory=dict)  # the share of the weight they claimed
    # Replies of the hop as they were read on arrival, while there is room for them.
    kept_replies: dict[int, Reply] = field(default_factory=dict)
    kept_bytes: int = 0
    latest_stamp: Stamp | None = None
    losses: dict[tuple[int, int], Loss] = field(default_factory=dict)  # by hop and client
    # Whether a hop had too few replies because of these: then nothing of the round is taken.
    is_lost: bool = False
    # By which way the bytes of clients in clusters went.
    transfers: Mapping[HopClient, Transfer] = field(default_factory=dict)

    def describe(self, orders: Sequence[Order]) -> list[Order]:
        """Describe clients before their first work, and leave out those that do not fit."""
        self.forgotten = self.spool.forgotten(self.number)
        questions = []
        for order in orders:
            if order.client not in self.described:
                question = describe_order(order.client, self.stage.method, self.settings)
                questions.append(question)
        receipts = self._hop(questions, DESCRIBE)
        self.receipts += receipts
        for receipt in receipts:
            if receipt.reason is None:
                # Its shape and labels are the task's: admission saw to it.
                description = ClientDescription.from_json(self.reply(receipt).meta)
                self.described[receipt.client] = description
        return [order for order in orders if order.client in self.described]

    def work(self, orders: Sequence[Order], hop: int, timing: Timing) -> Worked:
        """One hop of work, judged by the simulated clock: the accepted replies, in client order."""
        self.kept_replies = {}
        self.kept_bytes = 0
        for order in orders:
            self.groups[order.client] = order.group
        receipts = self._hop(orders, hop)
        works = tuple(work_in(receipt) for receipt in receipts)
        times = timing(works, {receipt.client for receipt in receipts if receipt.reason})
        receipts = self._bounded(orders, self._timed(receipts, times))
        self.receipts += receipts
        accepted = [receipt for receipt in receipts if receipt.reason is None]
        least = self.settings.min_replies
        if len(accepted) < least <= len(accepted) + len(times.losses):
            self.is_lost = True
            return Worked(Spooled(()), works, times)
        for receipt in accepted:
            if receipt.wrote:
                self.versions[receipt.client] = f"{self.number}.{hop}"
        if len(accepted) < least:
            refused = [receipt.client for receipt in receipts if receipt.reason is not None]
            self.spool.forget(self.number, hop, refused)
            raise self._too_few(len(accepted))
        places = [Place(receipt.client, self._content(receipt)) for receipt in accepted]
        return Worked(self._weighed(Spooled(tuple(places))), works, times)

    def _timed(self, receipts: Sequence[Receipt], times: HopTimes) -> list[Receipt]:
        """With those refused who left during their work, or came too late.

        Not journaled: the same receipts give it again.
        """
        timed = []
        for receipt in receipts:
            receipt = replace(receipt, simulated=times.of_client.get(receipt.client))
            loss = times.losses.get(receipt.client)
            if loss is not None:
                receipt = replace(receipt, reason=loss.reason, up=loss.up, macs=loss.macs)
                self.losses[receipt.hop, receipt.client] = loss
                name = self.settings.called(receipt.client)
                log.info("round %d: %s refused: %s", self.number, name, loss.reason)
            timed.append(receipt)
        return timed

    def _content(self, receipt: Receipt) -> Path | bytes | Reply:
        """Where an accepted reply is found: one that was kept need not be read again."""
        if receipt.client in self.kept_replies:
            return self.kept_replies[receipt.client]
        return self.spool.content(receipt)

    def _too_few(self, accepted: int) -> RunStopped:
        """The round cannot go on: who was refused, why, and what helps."""
        refused = [receipt for receipt in self.receipts if receipt.reason is not None]
        reasons = []
        deaths: list[Death] = []
        for receipt in refused:
            reasons.append(f"{self.settings.called(receipt.client)}: {receipt.reason}")
            deaths += receipt.deaths
        others_refused = any(not receipt.deaths for receipt in refused)
        advice = what_helps(deaths, others_refused=others_refused)
        if others_refused and accepted == 0 and self.number > 1:
            earlier_rounds = [number for number in self.named if number < self.number - 1]
            before = max(earlier_rounds, default=0)
            command = f"`fedloom resume RUN --from {before}`"
            advice += f"; if the model itself was spoiled, {command} goes back"
        least = f"{self.settings.min_replies} replies (--min-replies)"
        kind: type[RunStopped] = TooFewReplies
        if deaths:  # a process may live longer the next time
            kind = RunStopped
        return kind(
            f"round {self.number} must get at least {least}",
            f"got {accepted} ({'; '.join(reasons) or 'nobody was asked'})",
            advice,
        )

    def _weighed(self, replies: Spooled) -> Spooled:
        """The complete hop, with nobody above --max-weight-share of its weight.

        The share is of all clusters together.
        """
        largest_share = self.settings.max_weight_share
        if largest_share is None:
            return replies
        capping = capped(claimed_weights(replies), largest_share)
        for client, claimed in capping.shares.items():
            self.capped[client] = max(claimed, self.capped.get(client, 0.0))
        return replace(replies, weights=capping.weights)

    def _hop(self, orders: Sequence[Order], hop: int) -> list[Receipt]:
        """Ask those the journal does not know yet; the receipts of all, in client order."""
        journal = self.spool.settled(self.number, hop)
        for attempt in journal.failed_attempts:
            self._begin_afresh(attempt)
        receipts = []
        unanswered = []
        for order in orders:
            if order.client in journal.receipts:
                receipts.append(journal.receipts[order.client])
            else:
                unanswered.append(order)
        while unanswered:
            stamped = [self.stamped(order, hop) for order in unanswered]
            unanswered = []
            for answer in self._ask(stamped):
                if self._may_begin_afresh(answer):
                    attempt = replace(answer.receipt, asked_again=True)
                    self.spool.record(attempt)
                    self._begin_afresh(attempt)
                    unanswered.append(answer.order)
                    continue
                self.spool.record(answer.receipt)
                receipts.append(answer.receipt)
                self._keep(answer)
                self.listen(Replied(answer.order.client, len(orders), self.number))
        return sorted(receipts, key=lambda receipt: receipt.client)

    def _keep(self, answer: Answer) -> None:
        size = answer.receipt.up
        if answer.reply is not None and self.kept_bytes + size <= MOST_KEPT:
            self.kept_replies[answer.order.client] = answer.reply
            self.kept_bytes += size

    def _may_begin_afresh(self, answer: Answer) -> bool:
        """Whether a client that lost its state is asked once more, to go on without one."""
        fault = answer.envelope.fault
        if fault is None or fault.kind != "lost":
            return False
        return self.settings.lost_state == "fresh" and answer.order.client in self.versions

    def _ask(self, orders: Sequence[Order]) -> Iterator[Answer]:
        """Send orders, all of one hop, and yield what became of each, as it arrives."""
        by_client = {order.client: order for order in orders}
        parcels = list(encoded(orders, self.spool))
        judges = Judges(self.fields)
        update_of = self.stage.method.update_of
        for parcel, envelope in self.engine.ask(parcels, self.settings.deadline):
            order = by_client[parcel.client]
            name = self.settings.called(order.client)
            judge = judges.of(parcel, order)
            received = receive(order, parcel, envelope, judge, self.check, update_of, name)
            receipt = received.receipt
            if receipt.reason is not None:
                self._warn_of_refusal(receipt)
            yield Answer(order, receipt, envelope, received.reply)

    def _warn_of_refusal(self, receipt: Receipt) -> None:
        name = self.settings.called(receipt.client)
        log.warning("round %d: %s refused: %s", receipt.round, name, receipt.reason)

    def _bounded(self, orders: Sequence[Order], receipts: Sequence[Receipt]) -> list[Receipt]:
        """With those refused whose updates are absurdly large.

        Not journaled: the same receipts give it again.
        """
        norms = {}
        for receipt in receipts:
            if receipt.reason is None and receipt.norms is not None:
                norms[receipt.client] = receipt.norms
        reasons = self.bound.refuse(orders, norms)
        judged = []
        for receipt in receipts:
            if receipt.client in reasons:
                receipt = replace(receipt, reason=reasons[receipt.client])
                self._warn_of_refusal(receipt)
            judged.append(receipt)
        return judged

    def succeeded(self) -> bool:
        """Whether at least half of those that worked, and came in time, were accepted."""
        worked = 0
        accepted = 0
        for receipt in self.receipts:
            if receipt.hop < 0 or (receipt.hop, receipt.client) in self.losses:
                continue
            worked += 1
            if receipt.reason is None:
                accepted += 1
        return 2 * accepted >= worked

    def _begin_afresh(self, attempt: Receipt) -> None:
        """A client whose state was lost goes on without one; that it said so is booked too."""
        log.warning("%s goes on with a fresh state", self.settings.called(attempt.client))
        self.failed_attempts.append(attempt)
        self.versions.pop(attempt.client, None)

    def evaluate(self, orders: Sequence[Order]) -> list[ClientEvaluation]:
        """What each client answered, in the order of the orders. Not journaled."""
        evaluations: dict[int, ClientEvaluation] = {}
        stamped = [self.stamped(order, EVALUATE) for order in orders]
        for answer in self._ask(stamped):
            receipt = answer.receipt
            self.receipts.append(receipt)
            evaluations[receipt.client] = self._evaluation(answer)
            if receipt.held is None:
                self.spool.path(self.number, EVALUATE, receipt.client).unlink(missing_ok=True)
            self.listen(ClientEvaluated(receipt.client, len(orders), self.number))
        return [evaluations[order.client] for order in orders]

    def ask_beforehand(self, orders: Sequence[Order]) -> list[Reply]:
        """What clients answer to a method's own questions before a round is planned.

        They are as evaluations are: not journaled, and no client's state changes. Clients are
        described first, which is what their answers are held against. Who is refused is left out.
        """
        replies = []
        stamped = [self.stamped(order, EVALUATE) for order in self.describe(orders)]
        for answer in self._ask(stamped):
            receipt = answer.receipt
            self.receipts.append(receipt)
            if receipt.reason is None:
                replies.append(self.reply(receipt))
            if receipt.held is None:
                self.spool.path(self.number, EVALUATE, receipt.client).unlink(missing_ok=True)
        return sorted(replies, key=lambda reply: reply.client)

    def take_questions(self) -> Totals:
        """What was asked beforehand, which is booked apart from the round's own exchanges."""
        questions = [booking for booking in self.bookings() if booking.line.hop == EVALUATE]
        self.receipts = [receipt for receipt in self.receipts if receipt.hop != EVALUATE]
        return evaluation_of(questions)

    def _evaluation(self, answer: Answer) -> ClientEvaluation:
        """Figures, or the reason why there are none."""
        receipt = answer.receipt
        if receipt.reason is not None:
            return ClientEvaluation.unanswered(receipt.client, receipt.reason)
        metric = metric_of(self.settings.task.kind)
        reply = EvaluationReply.from_meta(self.reply(receipt).meta, metric.name)
        return ClientEvaluation.answered(receipt.client, reply, answer.envelope.facts)

    def stamped(self, order: Order, hop: int) -> Order:
        """An order with its stamp: where it stands, and which client states it touches.

        Only the loop writes one.
        """
        read = None
        if hop != DESCRIBE:
            read = self.versions.get(order.client)
        write = None
        if hop >= 0:
            write = f"{self.number}.{hop}"
        keep = set()
        for versions in self.named.values():
            if order.client in versions:
                keep.add(versions[order.client])
        # Until the round's checkpoint is written, any of its hops may be asked for again: a power
        # cut may cost the journal's last lines.
        keep |= {f"{self.number}.{earlier}" for earlier in range(hop)}
        return Order(
            order.client,
            order.kind,
            order.tensors,
            order.meta,
            order.region,
            order.group,
            self._stamp(hop, read, write, tuple(sorted(keep))),
        )

    def _stamp(
        self,
        hop: int,
        read: str | None,
        write: str | None,
        keep: tuple[str, ...],
    ) -> Stamp:
        """The same object for orders with the same stamp, so that it is encoded once for them."""
        latest = self.latest_stamp
        if latest is not None and (latest.hop, latest.read, latest.keep) == (hop, read, keep):
            return latest
        stamp = Stamp(
            experiment=self.settings.experiment,
            task=self.settings.task,
            stage=self.stage.name,
            round=self.number,
            hop=hop,
            read=read,
            write=write,
            keep=keep,
        )
        self.latest_stamp = stamp
        return stamp

    def fields(self, kind: str) -> Fields:
        if kind in BASIC:
            return BASIC[kind]
        return fields_of(self.stage.method, kind)

    def check(self, reply: Reply, order: Order, expected: admission.Expected) -> str | None:
        """Admission: why this reply may not be used, or None."""
        trained_on = 0
        most_samples: float = inf
        if order.client in self.described:
            samples = self.described[order.client].samples
            trained_on = samples.train
            most_samples = samples.total
        method = self.stage.method
        reason = admission.refuse(
            reply,
            order,
            expected,
            method.most_weight(order, trained_on),
            method.most_steps(order, trained_on),
        )
        if reason is not None:
            return reason
        task = self.settings.task
        if order.kind == "describe":
            reason = admission.refuse_description(reply.meta, task, self.settings.histograms)
            if reason is not None:
                return reason
            return self._refuse_counts(reply)
        if order.kind == "evaluate":
            metric = metric_of(task.kind)
            return admission.refuse_evaluation(reply.meta, most_samples, metric, len(task.labels))
        return admission.refuse_by_method(method, order, reply, trained_on)

    def _refuse_counts(self, reply: Reply) -> str | None:
        """A client may not describe more samples than it had when the run began.

        They bound the weight that it may claim.
        """
        if not self.settings.registered:
            return None
        registered = self.settings.registered[reply.client]
        samples = ClientDescription.from_json(reply.meta).samples
        if samples.train <= registered.train and samples.total <= registered.total:
            return None
        described = f"it describes {samples.train} samples to train on of {samples.total}"
        before = f"when the run began it had {registered.train} of {registered.total}"
        return f"{described}; {before}"

    def reply(self, receipt: Receipt) -> Reply:
        return read_reply(content(self.spool.content(receipt)))

    # Figures

    def bookings(self) -> list[Booking]:
        bookings = []
        for receipt in (*self.failed_attempts, *self.receipts):
            group = self.groups.get(receipt.client)
            cluster = None
            if receipt.hop >= 0:
                cluster = group
            sent = self._sent(receipt)
            line = LedgerLine(
                receipt.client,
                receipt.hop,
                sent.down,
                sent.up,
                receipt.macs,
                receipt.seconds,
                receipt.memory,
                cluster,
                receipt.simulated,
            )
            bookings.append(Booking(line, group, sent))
        return bookings

    def _sent(self, receipt: Receipt) -> Transfer:
        """Where there are clusters, a hop's bytes may have gone twice, or nowhere."""
        transfer = self.transfers.get(HopClient(receipt.hop, receipt.client))
        if transfer is None:
            return Transfer(wan_down=receipt.down, wan_up=receipt.up)
        if receipt.asked_again:
            return transfer.same_way(receipt.down, receipt.up)
        return transfer

    def note_takeover(self, takeover: Takeover) -> None:
        """Into the journal, once: a resumed round comes to the same again."""
        log.warning("round %d: %s", self.number, takeover.text)
        lost = self.spool.receipts(self.number, takeover.place)
        if takeover.lost not in lost:
            self.spool.record(
                Receipt(
                    round=self.number,
                    hop=takeover.place,
                    client=takeover.lost,
                    reason=takeover.text,
                    wrote=False,
                    down=0,
                    up=0,
                    macs=None,
                    seconds=None,
                )
            )

    def totals(self) -> Totals:
        asked = 0
        wasted_bytes = 0
        for receipt in self.receipts:
            if receipt.hop >= 0:
                asked += 1
            if (receipt.hop, receipt.client) in self.losses:
                sent = self._sent(receipt)
                wasted_bytes += sent.down + sent.up
        kinds = [loss.kind for loss in self.losses.values()]
        return replace(
            work_of(self.bookings()),
            asked=asked,
            dropped=kinds.count("dropped"),
            late=kinds.count("late"),
            wasted_bytes=wasted_bytes,
            wasted_macs=sum(loss.macs for loss in self.losses.values()),
        )

    def row(self, progress: float, notes: Mapping[str, Json]) -> MetricsRow:
        """What metrics.jsonl says of the round.

        Its evaluation and the run's totals are the loop's.
        """
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
            stage=self.stage.name,
            round=self.number,
            progress=progress,
            meta=means_of(receipt.plain for receipt in accepted),
            replies=len(accepted),
            refused=tuple(refused),
            ledger=tuple(sorted(lines, key=lambda line: (line.hop, line.client))),
            fresh=tuple(sorted(attempt.client for attempt in self.failed_attempts)),
            capped={client: round(share, 6) for client, share in sorted(self.capped.items())},
            updates=self.bound.updates,
            observed=observed,
            deaths=self.deaths(),
            notes=notes,
        )

    def deaths(self) -> tuple[WorkerDeath, ...]:
        """Deaths of processes that worked for this round, in client order.

        They count even if another process did the work in the end.
        """
        receipts = sorted([*self.forgotten, *self.receipts], key=lambda receipt: receipt.client)
        deaths = []
        for receipt in receipts:
            deaths += [death.at_work_for(receipt.client) for death in receipt.deaths]
        return tuple(deaths)

    def _accepted_work(self) -> list[Receipt]:
        """The receipts of work that was accepted, in order."""
        accepted = []
        for receipt in self.receipts:
            if receipt.hop >= 0 and receipt.reason is None:
                accepted.append(receipt)
        return sorted(accepted, key=lambda receipt: (receipt.hop, receipt.client))


def describe_order(client: int, method: Method, settings: Settings) -> Order:
    """What the method asks, and what the run asks beside it, whatever the method."""
    question: dict[str, Json] = {"ask": method.describe}
    if settings.histograms is not None:
        question["histograms"] = str(settings.histograms)
    return Order(client, "describe", meta=question)


def asks_everybody(method: Method, stage: int, settings: Settings) -> bool:
    """Whether all clients are described before this stage, and not at their first work.

    Clusters by labels need everybody's histogram, once a run.
    """
    if method.describe is not None:
        return True
    return settings.histograms is not None and stage == 0


def work_in(receipt: Receipt) -> HopWork:
    """What the clock must know of an exchange; what an engine did not measure took no time."""
    training = (receipt.macs or 0) - receipt.search_macs
    return HopWork(receipt.client, receipt.down, receipt.up, training, receipt.search_macs)


def means_of(replies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Plain numbers that accepted replies carry (a loss), averaged over clients, for the curve."""
    by_name: dict[str, list[float]] = {}
    for numbers in replies:
        for name, value in numbers.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}


def claimed_weights(replies: Collection[Reply]) -> dict[int, Weight]:
    """By client.

    Where one weighs key by key, all do: a single weight is that of every tensor it brings.
    """
    weights: dict[int, Weight] = {}
    names: dict[int, tuple[str, ...]] = {}
    for reply in replies:  # each is read from its file: once is enough
        weights[reply.client] = reply.weight
        names[reply.client] = tuple(reply.tensors)
    if not any(isinstance(weight, Mapping) for weight in weights.values()):
        return weights
    by_key: dict[int, Weight] = {}
    for client, weight in weights.items():
        if isinstance(weight, Mapping):
            by_key[client] = weight
        else:
            by_key[client] = dict.fromkeys(names[client], weight)
    return by_key
