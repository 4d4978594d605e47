"""Which versions of a client's state an order names, and which versions a refused reply wrote."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fedloom.federation.server.clustered import Clustered
from fedloom.testing import Toy, differences
from fedloom.testing.engines import Absent, Spoiling, Stop, Stopping


@pytest.fixture
def clustered():
    """Two clusters that average twice a round; every client keeps a personal model."""
    return replace(Toy.of("ditto", rounds=2), participation=1.0, topology=Clustered(2, 2))


def test_an_order_of_any_hop_can_be_sent_again(clustered, tmp_path):
    """The client has saved its new state, but its reply was lost.

    The state from which it started must still exist.
    """
    once = replace(clustered, rounds=1)
    undisturbed = once.run(tmp_path / "undisturbed")
    stops: set[tuple[int, int, int]] = set()
    for _ in range(100):
        try:
            stopped = once.run(tmp_path / "stopped", engine=lambda inner: Stopping(inner, stops))
            break
        except Stop:
            continue
    assert stops == set(product([1], (0, 1), range(4)))  # round, hop and client
    assert differences(undisturbed, stopped) == []


def test_an_order_names_what_it_reads_what_it_writes_and_what_must_stay(clustered, tmp_path):
    trace = clustered.run(tmp_path)
    stamps = [
        e.order.stamp for e in trace.exchanges if e.order.client == 1 and e.order.kind == "train"
    ]
    assert [(stamp.read, stamp.write, stamp.keep) for stamp in stamps] == [
        (None, "1.0", ()),
        ("1.0", "1.1", ("1.0",)),
        ("1.1", "2.0", ("1.1",)),
        ("2.0", "2.1", ("1.1", "2.0")),  # a resume would begin at the checkpoint of round 1
    ]


@pytest.mark.parametrize("fails", [Spoiling, Absent])
def test_a_state_that_a_refused_reply_wrote_never_happened(fails, tmp_path):
    """In round 2, client 2 works or cannot be reached, and is refused.

    In round 3 it reads the state that it wrote in round 1.
    """
    toy = replace(Toy.of("ditto", rounds=3), participation=1.0)
    trace = toy.run(tmp_path, engine=fails)
    refused = []
    for row in trace.rows:
        refused.append([refusal.client for refusal in row.refused])
    assert refused == [[1], [2], [3]]
    reads = {}
    for exchange in trace.exchanges:
        order = exchange.order
        if order.kind == "train":
            reads[order.stamp.round, order.client] = order.stamp.read
    assert (reads[2, 1], reads[3, 1]) == (None, "2.0")
    assert (reads[2, 2], reads[3, 2]) == ("1.0", "1.0")
