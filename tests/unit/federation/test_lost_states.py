"""`--lost-state fresh`: a client goes on without its state, and its failed attempt is booked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fedloom.errors import RunStopped
from fedloom.federation.protocol.envelope import Fault
from fedloom.federation.server.clustered import Clustered
from fedloom.testing import Toy, differences
from fedloom.testing.engines import Passing, Stop, Stopping, order_of, stamp_of

VICTIM = 1


@dataclass(frozen=True)
class Forgetful(Passing):
    """Empties a client's disk just before one hop of one round, but only once.

    It is not emptied again if that round is resumed.
    """

    states: Path
    round: int
    hop: int = 0
    emptied: list[Path] = field(default_factory=list)

    def ask(self, parcels, deadline):
        stamp = stamp_of(order_of(parcels[0]))
        if (stamp.round, stamp.hop) == (self.round, self.hop) and not self.emptied:
            self.emptied.append(self.states / str(VICTIM))
            shutil.rmtree(self.states / str(VICTIM))
        yield from self.inner.ask(parcels, deadline)


def toy(method, rounds=4, **options):
    return replace(Toy.of(method, options, rounds), lost_state="fresh", participation=1.0)


def forgetful(folder, at, hop=0):
    emptied = []
    return lambda inner: Forgetful(inner, folder / "clients", at, hop, emptied)


def test_the_exchange_in_which_the_loss_was_found_is_booked(tmp_path):
    trace = toy("local").run(tmp_path, engine=forgetful(tmp_path, at=2))
    exchanges = [e for e in trace.exchanges if e.order.kind == "train" and e.order.stamp.round == 2]
    mine = [e for e in exchanges if e.order.client == VICTIM]
    assert [e.envelope.fault for e in mine] == [
        Fault("lost", "client 1 no longer has version 1.0 of its state"), None,
    ]  # fmt: skip
    lines = [line for line in trace.rows[1].ledger if line.client == VICTIM]
    assert [(line.down, line.up, line.macs) for line in lines] == [
        (len(e.head) + len(e.body), len(e.answer or b""), e.envelope.macs) for e in mine
    ]
    before = trace.rows[0].totals
    after = trace.rows[1].totals
    assert after.down - before.down == sum(len(e.head) + len(e.body) for e in exchanges)
    assert after.seconds - before.seconds == pytest.approx(
        sum(e.envelope.seconds for e in exchanges)
    )
    assert (trace.rows[1].replies, trace.rows[1].refused) == (4, ())  # nobody was refused


@pytest.mark.parametrize(
    ("method", "options", "rounds", "at"),
    [
        ("local", {}, 4, 2),
        (
            "local-adaptation",
            {"adapt_share": 0.5},
            6,
            5,
        ),  # whose client answers that it has nothing, and writes nothing
    ],
)
def test_a_run_that_is_stopped_at_every_order_books_it_once(method, options, rounds, at, tmp_path):
    example = toy(method, rounds, **options)
    undisturbed = example.run(
        tmp_path / "undisturbed", engine=forgetful(tmp_path / "undisturbed", at)
    )
    forget = forgetful(tmp_path / "stopped", at)
    stops = set()
    out = tmp_path / "stopped"
    for _ in range(200):
        try:
            trace = example.run(out, engine=lambda inner: Stopping(forget(inner), stops))
            break
        except Stop:
            continue
    assert len(stops) == rounds * len(example.data)
    assert differences(undisturbed, trace) == []


@dataclass(frozen=True)
class StopsAfterTheAnswer(Passing):
    """Ends the process once, after the second answer of the client that lost its state."""

    stopped: list[int]

    def ask(self, parcels, deadline):
        yield from self.inner.ask(parcels, deadline)
        if [parcel.client for parcel in parcels] == [VICTIM] and not self.stopped:
            self.stopped.append(VICTIM)
            raise Stop


def test_a_resumed_round_knows_that_the_state_is_gone(tmp_path):
    """Local adaptation's client replies without a state and writes none, so it has no version."""
    example = toy("local-adaptation", 6, adapt_share=0.5)
    out = tmp_path / "stopped"
    stopped = []
    undisturbed = example.run(
        tmp_path / "undisturbed", engine=forgetful(tmp_path / "undisturbed", at=5)
    )
    forget = forgetful(out, at=5)
    with pytest.raises(Stop):
        example.run(out, engine=lambda inner: StopsAfterTheAnswer(forget(inner), stopped))
    trace = example.run(out, engine=lambda inner: StopsAfterTheAnswer(forget(inner), stopped))
    assert differences(undisturbed, trace) == []


def test_in_a_later_hop_of_a_cluster(tmp_path):
    example = replace(toy("ditto", rounds=3), topology=Clustered(2, 2))
    trace = example.run(tmp_path, engine=forgetful(tmp_path, at=2, hop=1))
    assert [line.hop for line in trace.rows[1].ledger if line.client == VICTIM] == [0, 1, 1]
    assert trace.rows[1].refused == ()


class AllMustReply(Toy):
    def loop(self, *arguments):
        loop = super().loop(*arguments)
        loop.settings = replace(loop.settings, min_replies=len(self.data))
        return loop


@dataclass(frozen=True)
class Unreachable(Passing):
    """Client 3 is not there when it is first asked in round 2."""

    missed: list[int]

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            asked = (stamp_of(order_of(parcel)).round, parcel.client) == (2, 3)
            if asked and not self.missed:
                self.missed.append(parcel.client)
                envelope = replace(envelope, fault=Fault("died", "out of reach"))
            yield parcel, envelope


def test_too_few_replies_do_not_forget_it(tmp_path):
    """The round stops because it has too few replies.

    When it is resumed, the client still continues with a fresh state, and is booked as before.
    """
    example = AllMustReply(**vars(toy("local")))
    undisturbed = example.run(
        tmp_path / "undisturbed", engine=forgetful(tmp_path / "undisturbed", at=2)
    )
    forget = forgetful(tmp_path / "stopped", at=2)
    missed = []
    out = tmp_path / "stopped"
    with pytest.raises(RunStopped, match="round 2 must get at least 4 replies"):
        example.run(out, engine=lambda inner: Unreachable(forget(inner), missed))
    trace = example.run(out, engine=lambda inner: Unreachable(forget(inner), missed))
    assert differences(undisturbed, trace) == []
