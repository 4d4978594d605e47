"""The exchange of one round: whom it asks, which replies it accepts, and what it books."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

import pytest
import torch

from fedloom.config.histograms import HistogramRule
from fedloom.errors import RunStopped, TooFewReplies
from fedloom.federation.protocol.deaths import Death
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.accounts import means_of
from fedloom.federation.server.clock import HopTimes, LostWork
from fedloom.federation.server.cluster_round import Takeover
from fedloom.federation.server.events import ClientEvaluated, Replied
from fedloom.federation.server.exchange import (
    Exchange,
    asks_everybody,
    claimed_weights,
    describe_order,
    work_in,
)
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.settings import Registered, Settings
from fedloom.federation.server.spool import DESCRIBE, EVALUATE, Receipt, Spool
from fedloom.federation.server.work_times import HopWork
from fedloom.records.rows import Refusal, WorkerDeath
from fedloom.testing.engines import encoded, order_of
from fedloom.types import ClientDescription, Fields, Order, Reply, SampleCounts, Task

TASK = Task("adding", {}, "image", (1, 1, 1), ("no", "yes"), 7, (0.0,), (1.0,))
SAMPLES = SampleCounts(10, 2, 3)
ROUND = 4
START = {"w": torch.zeros(2)}


class Adding(Method):
    fields = {
        "work": Fields(tensors=("w",), meta=("loss",)),
        "ask": Fields(meta=("answer",), beforehand=True),
    }


def worked(order: Order) -> Reply:
    """What an honest client replies: it adds one, and keeps a new state."""
    tensors = {"w": order.tensors["w"] + 1}
    return Reply(order.client, tensors, 5.0, {"loss": float(order.client)}, wrote=True)


def described(order: Order) -> Reply:
    description = ClientDescription(SAMPLES, {}).to_json()
    return Reply(order.client, meta={"shape": [1, 1, 1], "labels": ["no", "yes"], **description})


def evaluated(order: Order) -> Reply:
    figures = {"samples": 2, "correct": 1, "accuracy": 0.5, "interval": [0.0, 1.0]}
    figures |= {"balanced_accuracy": 0.5, "f1": 0.5, "auc": 0.5}
    return Reply(order.client, meta={"personal": figures, "shared": None})


def answered(order: Order) -> Reply:
    return Reply(order.client, meta={"answer": order.client})


HONEST = {"work": worked, "describe": described, "evaluate": evaluated, "ask": answered}


@dataclass
class Scripted:
    """An engine whose clients answer honestly, but for those in `others`; the last comes first.

    `others` are replies, or envelopes with a fault, by client. An envelope is used once.
    """

    others: dict[int, Callable[[Order], Reply] | Envelope] = field(default_factory=dict)
    asked: list[Order] = field(default_factory=list)

    def ask(self, parcels, deadline):
        for parcel in reversed(list(parcels)):
            order = order_of(parcel)
            self.asked.append(order)
            answer = self.others.get(parcel.client, HONEST[order.kind])
            if isinstance(answer, Envelope):
                del self.others[parcel.client]
                yield parcel, answer
                continue
            parcel.reply.put([encoded(answer(order))])
            yield parcel, Envelope(seconds=1.0, macs=100, memory=2000)

    @property
    def clients(self) -> list[int]:
        return [order.client for order in self.asked]


def exchange_in(folder, engine, named=None, versions=None, listen=None, **settings) -> Exchange:
    """An exchange of round 4, all of whose clients have been described."""
    return Exchange(
        Settings("toy", TASK, population=4, rounds=9, **settings),
        engine,
        Spool(folder / "spool"),
        Stage("train", Adding()),
        ROUND,
        named or {},
        versions=versions or {},
        described=dict.fromkeys(range(4), ClientDescription(SAMPLES, {})),
        listen=listen or (lambda event: None),
    )


def orders(*clients: int, kind: str = "work") -> list[Order]:
    return [Order(client, kind, START if kind == "work" else {}) for client in clients]


def on_time(works, refused) -> HopTimes:
    return HopTimes()


def not_a_number(order: Order) -> Reply:
    reply = worked(order)
    return replace(reply, tensors={"w": torch.tensor([1.0, inf])})


# Describing


def test_only_clients_without_a_description_are_described(tmp_path):
    engine = Scripted()
    exchange = exchange_in(tmp_path, engine)
    exchange.described = {1: ClientDescription(SampleCounts(1, 1, 1), {})}
    asked = orders(0, 1)
    assert exchange.describe(asked) == asked
    assert engine.clients == [0]
    assert exchange.described[0].samples == SAMPLES
    assert exchange.described[1].samples == SampleCounts(1, 1, 1)
    assert [(receipt.client, receipt.hop) for receipt in exchange.accounts.receipts] == [
        (0, DESCRIBE)
    ]


def test_a_client_that_does_not_fit_the_task_gets_no_work(tmp_path):
    def of_another_shape(order):
        reply = described(order)
        return replace(reply, meta={**reply.meta, "shape": [3, 1, 1]})

    exchange = exchange_in(tmp_path, Scripted({2: of_another_shape}))
    exchange.described = {}
    assert [order.client for order in exchange.describe(orders(1, 2))] == [1]
    assert "shape" in exchange.accounts.receipts[1].reason


def test_a_client_may_not_describe_more_samples_than_were_registered(tmp_path):
    fewer = [Registered(SAMPLES.train, SAMPLES.total)] * 3 + [Registered(9, SAMPLES.total)]
    exchange = exchange_in(tmp_path, Scripted(), registered=fewer)
    exchange.described = {}
    assert [order.client for order in exchange.describe(orders(2, 3))] == [2]
    assert exchange.accounts.receipts[1].reason == (
        "it describes 10 samples to train on of 15; when the run began it had 9 of 15"
    )


def test_what_clients_are_asked_to_describe():
    noisy = HistogramRule.parse("laplace:1.0")
    settings = Settings("toy", TASK, population=4, rounds=9)
    assert describe_order(3, Adding(), settings).meta == {"ask": None}
    asked = describe_order(3, Adding(), replace(settings, histograms=noisy))
    assert asked.meta == {"ask": None, "histograms": str(noisy)}


def test_when_all_clients_are_described_before_a_stage():
    class Asking(Adding):
        describe = "classes"

    settings = Settings("toy", TASK, population=4, rounds=9)
    with_histograms = replace(settings, histograms=HistogramRule.parse("exact"))
    assert not asks_everybody(Adding(), 0, settings)
    assert asks_everybody(Asking(), 1, settings)
    assert asks_everybody(Adding(), 0, with_histograms)
    assert not asks_everybody(Adding(), 1, with_histograms)  # they were asked once


# Work


def test_accepted_replies_are_in_client_order_and_their_states_become_current(tmp_path):
    events = []
    engine = Scripted()
    exchange = exchange_in(tmp_path, engine, versions={0: "3.0", 3: "2.0"}, listen=events.append)
    replies = exchange.work(orders(2, 0, 1), 0, on_time).replies
    assert engine.clients == [1, 0, 2]  # as they arrived
    assert [reply.client for reply in replies] == [0, 1, 2]
    assert [reply.tensors["w"].tolist() for reply in replies] == [[1.0, 1.0]] * 3
    assert exchange.versions == {0: "4.0", 1: "4.0", 2: "4.0", 3: "2.0"}
    assert events == [Replied(1, 3, ROUND), Replied(0, 3, ROUND), Replied(2, 3, ROUND)]


def test_what_the_journal_has_is_not_asked_for_again(tmp_path):
    exchange_in(tmp_path, Scripted()).work(orders(0, 2), 0, on_time)
    engine = Scripted()
    resumed = exchange_in(tmp_path, engine)
    replies = resumed.work(orders(0, 1, 2), 0, on_time).replies
    assert engine.clients == [1]
    assert [reply.client for reply in replies] == [0, 1, 2]
    assert resumed.versions == {0: "4.0", 1: "4.0", 2: "4.0"}


def test_a_refused_reply_leaves_the_clients_state_as_it_was(tmp_path):
    exchange = exchange_in(tmp_path, Scripted({1: not_a_number}), versions={1: "3.0"})
    hop = exchange.work(orders(0, 1), 0, on_time)
    assert [reply.client for reply in hop.replies] == [0]
    assert exchange.versions == {0: "4.0", 1: "3.0"}
    assert exchange.accounts.receipts[1].reason == "tensor 'w' holds a NaN or Inf"


def test_a_round_succeeds_if_half_of_its_clients_are_accepted(tmp_path):
    half = exchange_in(tmp_path / "half", Scripted({1: not_a_number}))
    half.work(orders(0, 1), 0, on_time)
    assert half.accounts.succeeded()
    fewer = exchange_in(tmp_path / "fewer", Scripted({1: not_a_number, 2: not_a_number}))
    fewer.work(orders(0, 1, 2), 0, on_time)
    assert not fewer.accounts.succeeded()


def test_too_few_replies_stop_the_round_and_those_refused_are_asked_again(tmp_path):
    exchange = exchange_in(tmp_path, Scripted({1: not_a_number}), min_replies=2)
    with pytest.raises(TooFewReplies, match=r"at least 2 replies .*got 1 \(client 1: tensor 'w'"):
        exchange.work(orders(0, 1), 0, on_time)
    engine = Scripted()
    resumed = exchange_in(tmp_path, engine, min_replies=2)
    assert len(resumed.work(orders(0, 1), 0, on_time).replies) == 2
    assert engine.clients == [1]


def test_a_dead_process_stops_the_run_in_a_way_that_can_be_tried_again(tmp_path):
    """Unlike too few replies of clients, which would be refused for the same reasons."""
    died = Envelope(fault=Fault("died", "twice"), deaths=(Death(-9), Death(-9)))
    exchange = exchange_in(tmp_path, Scripted({0: died}))
    with pytest.raises(RunStopped, match="memory may have run out") as stopped:
        exchange.work(orders(0), 0, on_time)
    assert not isinstance(stopped.value, TooFewReplies)
    assert exchange.accounts.deaths() == (WorkerDeath(0, signal="SIGKILL"),) * 2


def test_replies_that_the_clock_loses_are_refused(tmp_path):
    def one_leaves(works, refused):
        assert refused == {2}
        assert [work.client for work in works] == [0, 1, 2]
        losses = {1: LostWork("dropped", "left: it went away", 7, 0)}
        return HopTimes(2.5, {0: 1.0, 1: 2.0, 2: 2.5}, losses)

    exchange = exchange_in(tmp_path, Scripted({2: not_a_number}))
    hop = exchange.work(orders(0, 1, 2), 0, one_leaves)
    assert [reply.client for reply in hop.replies] == [0] and hop.times.seconds == 2.5
    assert exchange.versions == {0: "4.0"}
    assert [receipt.simulated for receipt in exchange.accounts.receipts] == [1.0, 2.0, 2.5]
    assert exchange.accounts.receipts[1].reason == "left: it went away"
    assert exchange.accounts.succeeded()  # one of the two that came in time was accepted
    totals = exchange.accounts.totals()
    assert (totals.asked, totals.dropped, totals.late, totals.wasted_macs) == (3, 1, 0, 7)
    assert totals.wasted_bytes == exchange.accounts.receipts[1].down  # its reply never came


def test_a_round_without_enough_replies_by_the_clock_is_lost(tmp_path):
    def late(works, refused):
        return HopTimes(1.0, {0: 1.0}, {0: LostWork("late", "late: by a second", 100, 9)})

    exchange = exchange_in(tmp_path, Scripted())
    assert len(exchange.work(orders(0), 0, late).replies) == 0
    assert exchange.is_lost and exchange.versions == {}


def test_a_client_that_lost_its_state_goes_on_without_one_if_the_run_allows(tmp_path):
    lost = Envelope(fault=Fault("lost", "it is gone"), macs=0)
    engine = Scripted({0: lost})
    exchange = exchange_in(tmp_path, engine, versions={0: "3.0"}, lost_state="fresh")
    assert len(exchange.work(orders(0), 0, on_time).replies) == 1
    assert [order.stamp.read for order in engine.asked] == ["3.0", None]
    assert [attempt.client for attempt in exchange.accounts.failed_attempts] == [0]
    assert exchange.row(0.5, {}).fresh == (0,)
    assert len(exchange.accounts.bookings()) == 2  # the failed attempt cost something too


def test_a_client_that_lost_its_state_is_refused_otherwise(tmp_path):
    lost = Envelope(fault=Fault("lost", "it is gone"))
    exchange = exchange_in(tmp_path, Scripted({0: lost}), versions={0: "3.0", 1: "3.0"})
    exchange.work(orders(0, 1), 0, on_time)
    assert exchange.accounts.receipts[0].reason == "lost: it is gone"
    assert exchange.versions == {0: "3.0", 1: "4.0"}


def test_no_client_has_more_than_its_share_of_the_weight(tmp_path):
    def heavy(order):
        return replace(worked(order), weight=10.0)

    exchange = exchange_in(tmp_path, Scripted({1: heavy}), max_weight_share=0.4)
    replies = exchange.work(orders(0, 1, 2), 0, on_time).replies
    assert [reply.weight for reply in replies] == [5.0, pytest.approx(20 / 3), 5.0]
    assert exchange.row(0.5, {}).capped == {1: 0.5}


# Stamps


def test_an_order_of_work_reads_the_current_version_and_keeps_those_of_checkpoints(tmp_path):
    named = {2: {0: "2.0"}, 3: {0: "3.1", 1: "3.0"}}
    exchange = exchange_in(tmp_path, Scripted(), named=named, versions={0: "3.1"})
    stamp = exchange.stamped(Order(0, "work"), 2).stamp
    assert (stamp.round, stamp.hop, stamp.stage) == (ROUND, 2, "train")
    assert (stamp.read, stamp.write) == ("3.1", "4.2")
    assert stamp.keep == ("2.0", "3.1", "4.0", "4.1")


@pytest.mark.parametrize(("hop", "read"), [(DESCRIBE, None), (EVALUATE, "3.1")])
def test_only_work_writes_a_state(tmp_path, hop, read):
    exchange = exchange_in(tmp_path, Scripted(), versions={0: "3.1"})
    stamp = exchange.stamped(Order(0, "evaluate"), hop).stamp
    assert (stamp.read, stamp.write) == (read, None)


def test_equal_stamps_are_one_object(tmp_path):
    exchange = exchange_in(tmp_path, Scripted(), versions={2: "3.0"})
    first, second, other = (exchange.stamped(Order(client, "work"), 0) for client in range(3))
    assert first.stamp is second.stamp
    assert other.stamp != first.stamp


# Evaluation and questions


def test_evaluations_are_in_the_order_of_the_orders_and_not_journaled(tmp_path):
    events = []
    failed = Envelope(fault=Fault("late", "no reply"))
    exchange = exchange_in(tmp_path, Scripted({1: failed}), listen=events.append)
    evaluations = exchange.evaluate(orders(2, 1, 0, kind="evaluate"))
    assert [evaluation.client for evaluation in evaluations] == [2, 1, 0]
    assert [evaluation.own.reason for evaluation in evaluations] == [None, "late: no reply", None]
    assert evaluations[0].own.figures.value == 0.5
    assert events[0] == ClientEvaluated(0, 3, ROUND)
    assert Spool(tmp_path / "spool").receipts(ROUND, EVALUATE) == {}


def test_questions_before_a_plan_are_booked_apart_from_the_round(tmp_path):
    def forged(order):
        return Reply(order.client, meta={"more": 1})

    exchange = exchange_in(tmp_path, Scripted({1: forged}))
    replies = exchange.ask_beforehand(orders(2, 1, 0, kind="ask"))
    assert [reply.meta for reply in replies] == [{"answer": 0}, {"answer": 2}]  # 1 is refused
    spent = exchange.take_questions()
    assert spent.evaluate_down > 0 and spent.evaluate_up > 0 and spent.down == 0
    assert exchange.accounts.receipts == [] and exchange.versions == {}


# Costs and rows


def test_a_row_has_means_refusals_and_the_ledger_in_order(tmp_path):
    exchange = exchange_in(tmp_path, Scripted({1: not_a_number}))
    exchange.work(orders(2, 1, 0), 0, on_time)
    row = exchange.row(0.25, {"phase": "search"})
    assert (row.stage, row.round, row.progress, row.replies) == ("train", ROUND, 0.25, 2)
    assert row.meta == {"loss": 1.0}  # the mean of 0 and 2
    assert row.refused == (Refusal(1, "tensor 'w' holds a NaN or Inf"),)
    assert [(line.hop, line.client, line.macs) for line in row.ledger] == [
        (0, 0, 100),
        (0, 1, 100),
        (0, 2, 100),
    ]
    assert row.notes == {"phase": "search"}


def test_in_clusters_bytes_are_booked_by_the_links_that_they_took(tmp_path):
    exchange = exchange_in(tmp_path, Scripted())
    exchange.work(orders(0, 1), 0, on_time)
    exchange.accounts.transfers = {HopClient(0, 1): Transfer(lan_down=30, lan_up=40)}
    totals = exchange.accounts.totals()
    assert (totals.lan_down, totals.lan_up) == (30, 40)
    receipt = exchange.accounts.receipts[0]
    assert (totals.down, totals.up) == (receipt.down, receipt.up)


def test_a_takeover_is_journaled_once(tmp_path):
    exchange = exchange_in(tmp_path, Scripted())
    takeover = Takeover(hop=1, cluster=0, lost=2, client=3)
    exchange.note_takeover(takeover)
    exchange.note_takeover(takeover)
    assert list(exchange.spool.receipts(ROUND, takeover.place)) == [2]
    assert len((tmp_path / "spool" / "journal.jsonl").read_text().splitlines()) == 1


def test_the_clock_sees_training_and_searching_apart():
    receipt = Receipt(ROUND, 0, 2, None, False, 10, 20, 100, 1.0, search_macs=30)
    assert work_in(receipt) == HopWork(2, 10, 20, 70, 30)
    assert work_in(replace(receipt, macs=None, search_macs=0)) == HopWork(2, 10, 20, 0)


def test_means_are_over_the_replies_that_have_a_number():
    assert means_of([{"loss": 1.0, "accuracy": 0.5}, {"loss": 3.0}, {}]) == {
        "loss": 2.0,
        "accuracy": 0.5,
    }
    assert means_of([]) == {}


def test_weights_by_key_make_all_weights_be_by_key():
    plain = Reply(0, {"a": torch.zeros(1), "b": torch.zeros(1)}, 2.0)
    by_key = Reply(1, {"a": torch.zeros(1)}, {"a": 3.0})
    assert claimed_weights([plain]) == {0: 2.0}
    assert claimed_weights([plain, by_key]) == {0: {"a": 2.0, "b": 2.0}, 1: {"a": 3.0}}
