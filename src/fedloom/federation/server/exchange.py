"""The messages that a round exchanges with its clients.

An exchange describes clients, sends them orders, accepts or refuses their replies, and keeps track
of the versions of their private states. Its accounts have what became of every order.

The journal comes first: an order whose outcome is in the journal is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fedloom.errors import RunStopped, TooFewReplies
from fedloom.federation.protocol.deaths import Death, what_helps
from fedloom.federation.protocol.envelope import BASIC, Envelope
from fedloom.federation.protocol.evaluation import ClientEvaluation, EvaluationReply
from fedloom.federation.protocol.method import Method, Stage, fields_of
from fedloom.federation.protocol.parcels import Engine, content
from fedloom.federation.protocol.wire import read_reply
from fedloom.federation.server.accounts import Accounts
from fedloom.federation.server.clock import HopTimes
from fedloom.federation.server.cluster_round import Takeover
from fedloom.federation.server.events import ClientEvaluated, Listener, Replied
from fedloom.federation.server.ledger import HopClient, evaluation_of
from fedloom.federation.server.norms import UpdateBound
from fedloom.federation.server.parcels import encoded
from fedloom.federation.server.receiving import Judges, Received, receive
from fedloom.federation.server.reply_checks import ReplyCheck
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.shares import capped
from fedloom.federation.server.spool import DESCRIBE, EVALUATE, Place, Receipt, Spool, Spooled
from fedloom.federation.server.topology import HopResult, Timing
from fedloom.federation.server.work_times import HopWork
from fedloom.metrics.metric import metric_of
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.types import ClientDescription, Fields, Json, Order, Reply, Stamp, Weight

log = logging.getLogger("fedloom")

# Up to this many bytes of a hop's replies are kept in memory; the others are read again later.
MOST_KEPT = 1 << 24


class Answer(NamedTuple):
    """The outcome of an order."""

    order: Order
    receipt: Receipt
    envelope: Envelope
    reply: Reply | None  # None if it was refused


@dataclass
class Exchange:
    """The exchange of one round, or of one evaluation."""

    settings: Settings
    engine: Engine
    spool: Spool
    stage: Stage
    number: int  # of the round
    # The versions of client states that each checkpoint needs, by the checkpoint's round.
    needed_versions: Mapping[int, Mapping[int, str]]
    versions: dict[int, str]  # the current version of every client's state
    described: dict[int, ClientDescription]
    listen: Listener = lambda event: None
    bound: UpdateBound = field(default_factory=lambda: UpdateBound({}, None))
    # By client, the share of the total weight that a client with a lowered weight had claimed.
    capped: dict[int, float] = field(default_factory=dict)
    # Replies of the current hop, as they were read on arrival, up to `MOST_KEPT` bytes.
    kept_replies: dict[int, Reply] = field(default_factory=dict)
    kept_bytes: int = 0
    latest_stamp: Stamp | None = None
    # Whether losses left a hop with too few replies. Then the result of the round is discarded.
    is_lost: bool = False

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.stage.name, self.number)

    def describe(self, orders: Sequence[Order]) -> list[Order]:
        """Ask clients to describe themselves before their first work.

        Returns the orders without those of clients that do not fit the task.
        """
        self.accounts.forgotten = self.spool.forgotten(self.number)
        questions = []
        for order in orders:
            if order.client not in self.described:
                question = describe_order(order.client, self.stage.method, self.settings)
                questions.append(question)
        receipts = self._hop(questions, DESCRIBE)
        self.accounts.receipts += receipts
        for receipt in receipts:
            if receipt.reason is None:
                # Admission has checked that shape and labels are those of the task.
                description = ClientDescription.from_json(self.reply(receipt).meta)
                self.described[receipt.client] = description
        return [order for order in orders if order.client in self.described]

    def work(self, orders: Sequence[Order], hop: int, timing: Timing) -> HopResult:
        """One hop of work: the accepted replies, in client order, and the hop's simulated times."""
        self.kept_replies = {}
        self.kept_bytes = 0
        for order in orders:
            self.accounts.clusters[order.client] = order.group
        receipts = self._hop(orders, hop)
        works = tuple(work_in(receipt) for receipt in receipts)
        times = timing(works, {receipt.client for receipt in receipts if receipt.reason})
        receipts = self._bounded(orders, self._timed(receipts, times))
        self.accounts.receipts += receipts
        accepted = [receipt for receipt in receipts if receipt.reason is None]
        least = self.settings.min_replies
        if len(accepted) < least <= len(accepted) + len(times.lost_work):
            self.is_lost = True
            return HopResult(Spooled(()), works, times)
        for receipt in accepted:
            if receipt.wrote:
                self.versions[receipt.client] = f"{self.number}.{hop}"
        if len(accepted) < least:
            refused = [receipt.client for receipt in receipts if receipt.reason is not None]
            self.spool.forget(self.number, hop, refused)
            raise self._too_few(len(accepted))
        places = [Place(receipt.client, self._content(receipt)) for receipt in accepted]
        return HopResult(self._weighed(Spooled(tuple(places))), works, times)

    def _timed(self, receipts: Sequence[Receipt], times: HopTimes) -> list[Receipt]:
        """The receipts, with a refusal for clients that left during their work or came too late.

        This is not journaled, because it can be derived from the same receipts again.
        """
        timed = []
        for receipt in receipts:
            receipt = replace(receipt, simulated=times.of_client.get(receipt.client))
            lost = times.lost_work.get(receipt.client)
            if lost is not None:
                receipt = replace(receipt, reason=lost.reason, up=lost.up, macs=lost.macs)
                self.accounts.lost_work[HopClient(receipt.hop, receipt.client)] = lost
                name = self.settings.called(receipt.client)
                log.info("round %d: %s refused: %s", self.number, name, lost.reason)
            timed.append(receipt)
        return timed

    def _content(self, receipt: Receipt) -> Path | bytes | Reply:
        """Where an accepted reply is. One that was kept in memory need not be read again."""
        if receipt.client in self.kept_replies:
            return self.kept_replies[receipt.client]
        return self.spool.content(receipt)

    def _too_few(self, accepted: int) -> RunStopped:
        """The error for a round that cannot go on: who was refused, why, and what helps."""
        refused = [receipt for receipt in self.accounts.receipts if receipt.reason is not None]
        names_by_reason: dict[str | None, list[str]] = {}
        deaths: list[Death] = []
        for receipt in refused:
            names = names_by_reason.setdefault(receipt.reason, [])
            names.append(self.settings.called(receipt.client))
            deaths += receipt.deaths
        reasons = []
        for reason, names in names_by_reason.items():
            reasons.append(f"{', '.join(names)}: {reason}")
        others_refused = any(not receipt.deaths for receipt in refused)
        advice = what_helps(deaths, others_refused=others_refused)
        if any(reason.startswith("raised: ") for reason in names_by_reason if reason):
            advice += "; run.log has the tracebacks"
        if others_refused and accepted == 0 and self.number > 1:
            earlier_rounds = [number for number in self.needed_versions if number < self.number - 1]
            before = max(earlier_rounds, default=0)
            command = f"`fedloom resume RUN --from {before}`"
            advice += f"; if the model itself was spoiled, {command} goes back"
        least = f"{self.settings.min_replies} replies (--min-replies)"
        kind: type[RunStopped] = TooFewReplies
        if deaths:  # the processes may survive the next attempt
            kind = RunStopped
        return kind(
            f"round {self.number} must get at least {least}",
            f"got {accepted} ({'; '.join(reasons) or 'nobody was asked'})",
            advice,
        )

    def _weighed(self, replies: Spooled) -> Spooled:
        """The replies of a complete hop, with no client above --max-weight-share of their weight.

        The share refers to all clusters together.
        """
        largest_share = self.settings.max_weight_share
        if largest_share is None:
            return replies
        capping = capped(claimed_weights(replies), largest_share)
        for client, claimed in capping.shares.items():
            self.capped[client] = max(claimed, self.capped.get(client, 0.0))
        return replace(replies, weights=capping.weights)

    def _hop(self, orders: Sequence[Order], hop: int) -> list[Receipt]:
        """Send the orders that are not in the journal yet.

        Returns the receipts of all orders, in client order.
        """
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
        """Keep an accepted reply in memory if there is room for it."""
        size = answer.receipt.up
        if answer.reply is not None and self.kept_bytes + size <= MOST_KEPT:
            self.kept_replies[answer.order.client] = answer.reply
            self.kept_bytes += size

    def _may_begin_afresh(self, answer: Answer) -> bool:
        """Whether a client that lost its state is asked again, to go on without one."""
        fault = answer.envelope.fault
        if fault is None or fault.kind != "lost":
            return False
        return self.settings.lost_state == "fresh" and answer.order.client in self.versions

    def _ask(self, orders: Sequence[Order]) -> Iterator[Answer]:
        """Send orders, all of one hop, and yield the outcome of each as it arrives."""
        by_client = {order.client: order for order in orders}
        parcels = list(encoded(orders, self.spool))
        judges = Judges(self.fields)
        check = ReplyCheck(self.settings, self.stage.method, self.described)
        update_of = self.stage.method.update_of
        for parcel, envelope in self.engine.ask(parcels, self.settings.deadline):
            order = by_client[parcel.client]
            name = self.settings.called(order.client)
            judge = judges.of(parcel, order)
            received = receive(order, parcel, envelope, judge, check, update_of, name)
            receipt = self._computed(order, received)
            if receipt.reason is not None:
                self._warn_of_refusal(receipt)
            yield Answer(order, receipt, envelope, received.reply)

    def _computed(self, order: Order, received: Received) -> Receipt:
        """The receipt, with MACs by the method's formula where the client does not report them.

        The MACs behind a refused reply stay unknown.
        """
        receipt = received.receipt
        reply = received.reply
        if reply is None or receipt.hop < 0 or receipt.macs is not None:
            return receipt
        if not self.settings.macs_by_formula:
            return receipt
        macs = self.stage.method.macs_by_formula(self.settings.task, order, reply)
        return replace(receipt, macs=macs, macs_by_formula=True)

    def _warn_of_refusal(self, receipt: Receipt) -> None:
        name = self.settings.called(receipt.client)
        log.warning("round %d: %s refused: %s", receipt.round, name, receipt.reason)

    def _bounded(self, orders: Sequence[Order], receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts, with a refusal for clients whose updates are absurdly large.

        This is not journaled, because it can be derived from the same receipts again.
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

    def _begin_afresh(self, attempt: Receipt) -> None:
        """Let a client whose state was lost go on without one, and book its failed attempt."""
        log.warning("%s continues with a fresh state", self.settings.called(attempt.client))
        self.accounts.failed_attempts.append(attempt)
        self.versions.pop(attempt.client, None)

    def evaluate(self, orders: Sequence[Order]) -> list[ClientEvaluation]:
        """The evaluation by each client, in the order of the orders. It is not journaled."""
        evaluations: dict[int, ClientEvaluation] = {}
        stamped = [self.stamped(order, EVALUATE) for order in orders]
        for answer in self._ask(stamped):
            receipt = answer.receipt
            self.accounts.receipts.append(receipt)
            evaluations[receipt.client] = self._evaluation(answer)
            if receipt.held is None:
                self.spool.path(self.number, EVALUATE, receipt.client).unlink(missing_ok=True)
            self.listen(ClientEvaluated(receipt.client, len(orders), self.number))
        return [evaluations[order.client] for order in orders]

    def ask_beforehand(self, orders: Sequence[Order]) -> list[Reply]:
        """The clients' replies to questions that a method asks before it plans a round.

        Questions are like evaluations: they are not journaled, and they change no client's state.
        Clients are described first, because their replies are checked against their descriptions.
        Refused replies are left out.
        """
        replies = []
        stamped = [self.stamped(order, EVALUATE) for order in self.describe(orders)]
        for answer in self._ask(stamped):
            receipt = answer.receipt
            self.accounts.receipts.append(receipt)
            if receipt.reason is None:
                replies.append(self.reply(receipt))
            if receipt.held is None:
                self.spool.path(self.number, EVALUATE, receipt.client).unlink(missing_ok=True)
        return sorted(replies, key=lambda reply: reply.client)

    def take_questions(self) -> Totals:
        """The cost of the questions asked beforehand, which is booked separately from the round's.

        Their receipts are removed.
        """
        accounts = self.accounts
        questions = [booking for booking in accounts.bookings() if booking.line.hop == EVALUATE]
        accounts.receipts = [receipt for receipt in accounts.receipts if receipt.hop != EVALUATE]
        return evaluation_of(questions)

    def _evaluation(self, answer: Answer) -> ClientEvaluation:
        """A client's metrics, or the reason why there are none."""
        receipt = answer.receipt
        if receipt.reason is not None:
            return ClientEvaluation.unanswered(receipt.client, receipt.reason)
        metric = metric_of(self.settings.task.kind)
        reply = EvaluationReply.from_meta(self.reply(receipt).meta, metric.name)
        return ClientEvaluation.answered(receipt.client, reply, answer.envelope.facts)

    def stamped(self, order: Order, hop: int) -> Order:
        """An order with its stamp: its place in the run, and the client states that it touches.

        Orders of work, with hops from 0 on, are the only ones that write a state.
        """
        read = None
        if hop != DESCRIBE:
            read = self.versions.get(order.client)
        write = None
        if hop >= 0:
            write = f"{self.number}.{hop}"
        keep = set()
        for versions in self.needed_versions.values():
            if order.client in versions:
                keep.add(versions[order.client])
        # Until the round's checkpoint is written, any of its hops may have to be repeated, because
        # a power cut may destroy the last lines of the journal.
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
        """A stamp; orders with equal stamps share one object, so that it is encoded only once."""
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
        """What a reply to an order of this kind may hold."""
        if kind in BASIC:
            return BASIC[kind]
        return fields_of(self.stage.method, kind)

    def reply(self, receipt: Receipt) -> Reply:
        return read_reply(content(self.spool.content(receipt)))

    def note_takeover(self, takeover: Takeover) -> None:
        """Write a takeover into the journal, unless a round that was resumed has done so before."""
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

    def row(self, progress: float, notes: Mapping[str, Json]) -> MetricsRow:
        """The round's row in metrics.jsonl, to which the loop adds evaluation and totals."""
        capped = {client: round(share, 6) for client, share in sorted(self.capped.items())}
        row = self.accounts.row(progress, notes)
        return replace(row, capped=capped, updates=self.bound.updates)


def describe_order(client: int, method: Method, settings: Settings) -> Order:
    """The order that asks a client to describe itself.

    It contains the method's own question, and what the run asks whatever the method.
    """
    question: dict[str, Json] = {"ask": method.describe}
    if settings.histograms is not None:
        question["histograms"] = str(settings.histograms)
    return Order(client, "describe", meta=question)


def asks_everybody(method: Method, stage: int, settings: Settings) -> bool:
    """Whether all clients are described before this stage, rather than before their first work.

    Clusters by labels need the histograms of all clients, once per run.
    """
    if method.describe is not None:
        return True
    return settings.histograms is not None and stage == 0


def work_in(receipt: Receipt) -> HopWork:
    """A client's work as the clock needs it. MACs that no engine measured count as 0."""
    training = (receipt.macs or 0) - receipt.search_macs
    return HopWork(receipt.client, receipt.down, receipt.up, training, receipt.search_macs)


def claimed_weights(replies: Collection[Reply]) -> dict[int, Weight]:
    """The weights that clients claim, by client.

    If one client's weight is by key, all are returned by key: a single weight applies to every
    tensor of its reply.
    """
    weights: dict[int, Weight] = {}
    names: dict[int, tuple[str, ...]] = {}
    for reply in replies:  # in one pass, because each reply is read from its file
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
