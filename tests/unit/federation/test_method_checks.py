"""What a method has against a reply beyond its declared fields: `Method.check_reply`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import read_reply
from fedloom.testing import Toy
from fedloom.testing.engines import Passing, Stop, encoded, order_of
from fedloom.testing.toy import differences
from fedloom.testing.watch import ServerLog, watched

LIAR = 2  # it has 8 samples to train on
SIZES = {0: 7, 1: 5, LIAR: 8, 3: 6}


class Choosy(Method):
    """Finds no loss above 100 credible, and stumbles over one of exactly 13."""

    asked: list[tuple[int, str, int]] = []

    def check_reply(self, order, reply, samples):
        self.asked.append((order.client, order.kind, samples))
        if reply.meta["loss"] == 13:
            raise IndexError("list index out of range")
        if reply.meta["loss"] > 100:
            return f"its loss {reply.meta['loss']:g} is above 100"
        return None


@dataclass(frozen=True)
class Claiming(Passing):
    """One client claims this loss, and the process may end once everybody has answered."""

    loss: float
    stops: list[int]

    def ask(self, parcels, deadline):
        is_work = order_of(parcels[0]).kind == "train"
        for parcel, envelope in self.inner.ask(parcels, deadline):
            if is_work and parcel.client == LIAR:
                reply = read_reply(parcel.reply.read_bytes())
                parcel.reply.put([encoded(replace(reply, meta={"loss": self.loss}))])
            yield parcel, envelope
        if is_work and self.stops:
            self.stops.pop()
            raise Stop


@pytest.fixture
def toy():
    return replace(Toy.of("fedavg", rounds=2), participation=1.0)


def run(toy, folder, loss, stops=0):
    """The trace, and the clients that each merge saw."""
    log = ServerLog()
    attempts = [1] * stops

    def watch(method):
        return log.watch(watched(method, Choosy))

    while True:
        try:
            trace = toy.run(
                folder, engine=lambda inner: Claiming(inner, loss, attempts), server=watch
            )
        except Stop:
            continue
        clients_of_merges = []
        for merge in log.merges:
            clients_of_merges.append([reply.client for reply in merge.replies])
        return trace, clients_of_merges


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (100.5, "its loss 100.5 is above 100"),
        (13, "it could not be checked (IndexError: list index out of range)"),
    ],
)
def test_a_reply_that_the_method_refuses_never_reaches_merge(toy, loss, reason, tmp_path):
    trace, merged = run(toy, tmp_path, loss)
    for row in trace.rows:
        assert [(refusal.client, refusal.reason) for refusal in row.refused] == [(LIAR, reason)]
        assert row.replies == 3
    assert merged == [[0, 1, 3], [0, 1, 3]]


def test_a_reply_that_the_method_accepts(toy, tmp_path):
    trace, merged = run(toy, tmp_path, 99.5)
    assert [row.refused for row in trace.rows] == [(), ()]
    assert merged == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_the_method_is_asked_of_work_alone_and_told_the_described_samples(toy, tmp_path):
    Choosy.asked.clear()
    run(toy, tmp_path, 1.0)
    assert sorted(Choosy.asked) == sorted(
        [(client, "train", samples) for client, samples in SIZES.items()] * 2
    )


def test_a_resumed_round_still_knows_that_the_reply_was_refused(toy, tmp_path):
    """The process ends when the refusal stands in the journal; nobody is asked or checked again."""
    undisturbed, _ = run(toy, tmp_path / "undisturbed", 100.5)
    Choosy.asked.clear()
    resumed, merged = run(toy, tmp_path / "stopped", 100.5, stops=2)
    assert merged == [[0, 1, 3], [0, 1, 3]]
    assert [row.refused[0].reason for row in resumed.rows] == ["its loss 100.5 is above 100"] * 2
    assert len(Choosy.asked) == 8
    assert differences(undisturbed, resumed) == []
