"""A round that asks nobody: a generation that the server scores on its own data."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedloom.data.samples import ClientData, Samples
from fedloom.errors import FedloomError, TooFewReplies
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.events import RoundEnded
from fedloom.federation.server.loop import Loop
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.stage_checks import check_change
from fedloom.federation.server.topology import Flat
from fedloom.types import Fields, Order, Reply, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("scored", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))
SAMPLES = Samples(torch.arange(4.0).view(-1, *SHAPE), torch.tensor([0, 1, 0, 1]))
# MACs
PLANNED = 100  # of a plan
SCORED = 4 * 700  # of a generation
TRAINED = 1000  # of a client's work
CLIENTS = 2


class Kill(Exception):
    pass


class Training(Method):
    """Adds what r.key draws to a weight, by way of the clients."""

    fields = {"train": Fields(tensors=("w",))}

    def init(self, setup, previous):
        return previous or State({"w": torch.zeros(3)}, {"scores": []})

    def plan(self, state, r):
        meta = {"step": r.key("step") % 97}
        return state, [Order(client, "train", state.tensors, meta) for client in r.clients]

    def client(self, order, data, own, run):
        nn.Linear(TRAINED, 1)(torch.zeros(1, TRAINED))
        return Reply(
            order.client, {"w": order.tensors["w"] + order.meta["step"] + order.client}, len(data)
        ), None

    def network(self, order, data, own, run):
        return nn.Sequential(nn.Flatten(), nn.Linear(1, len(LABELS)))


@dataclass(frozen=True)
class Scoring(Training):
    """Scores something on the server's data, generation by generation."""

    generations: int = 3
    does_nothing: bool = False

    def init(self, setup, previous):
        return State(previous.tensors, {"scores": []})

    def plan(self, state, r):
        if len(state.meta["scores"]) == self.generations:
            return None
        with torch.no_grad():
            nn.Linear(PLANNED, 1)(torch.zeros(1, PLANNED))
        return state, []

    def merge(self, state, orders, replies, r):
        assert list(orders) == [] and list(replies) == []
        if self.does_nothing:
            return super().merge(state, orders, replies, r)
        with torch.no_grad():
            nn.Linear(700, 1)(r.server_data.x.view(4, 1).expand(4, 700))
        score = float(state.tensors["w"].sum()) + r.key("score") % 89
        return State(state.tensors, {"scores": [*state.meta["scores"], score]})

    def note(self, state, r):
        return {"generation": len(state.meta["scores"]) + 1}


THREE = Scoring()


def stages(scoring=THREE):
    return (
        Stage("supernet", Training(), 0.5),
        Stage("search", scoring, None),
        Stage("tune", Training()),
    )


def loop_in(folder, run_stages, listen=lambda event: None, labels=LABELS, **changes):
    data = ClientData(SAMPLES, SAMPLES, SAMPLES)
    site = Site(
        lambda client: data, ClientStore(folder / "clients"), lambda task: run_stages, SHAPE, labels
    )
    settings = {
        "experiment": "scored",
        "task": TASK,
        "population": CLIENTS,
        "rounds": 4,
        "min_replies": CLIENTS,
    }
    return Loop(
        Settings(**{**settings, **changes}),
        run_stages,
        InlineEngine(site),
        Spool(folder / "spool"),
        Flat(),
        Archive(folder),
        server_data=SAMPLES,
        listen=listen,
    )


def rows_in(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def run(folder, run_stages=None, **changes):
    outcome = loop_in(folder, run_stages or stages(), **changes).run()
    return outcome, rows_in(folder)


def test_it_needs_no_replies_and_is_no_round_of_the_budget(tmp_path):
    outcome, rows = run(tmp_path)
    assert [row["stage"] for row in rows] == ["supernet"] * 2 + ["search"] * 3 + ["tune"] * 2
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["totals"]["rounds"] for row in rows] == [1, 2, 2, 2, 2, 3, 4]
    assert [row["progress"] for row in rows] == [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert [row["replies"] for row in rows] == [2, 2, 0, 0, 0, 2, 2]
    assert [row.get("generation") for row in rows] == [None, None, 1, 2, 3, None, None]
    assert all(row["ledger"] == [] and row["refused"] == [] for row in rows[2:5])
    assert len(outcome.state.meta["scores"]) == 3


def test_it_is_not_evaluated(tmp_path):
    _, rows = run(tmp_path, evaluate_every=1)
    assert ["evaluation" in row for row in rows] == [True, True, False, False, False, True, True]


def test_what_the_server_computes_is_booked_apart(tmp_path):
    outcome, rows = run(tmp_path)
    own = PLANNED + SCORED
    assert [row.get("server_macs") for row in rows] == [None, None, own, own, own, None, None]
    assert [row["totals"].get("server_macs", 0) for row in rows] == [
        0,
        0,
        own,
        2 * own,
        3 * own,
        3 * own,
        3 * own,
    ]
    assert outcome.totals.server_macs == 3 * own
    assert [row["totals"]["macs"] for row in rows] == [TRAINED * n for n in (2, 4, 4, 4, 4, 6, 8)]


def test_at_equal_macs_the_servers_are_charged(tmp_path):
    """The budget is 10 rounds of 2,000 MACs.

    The first stage gets half of it, three generations take 8,700, and what remains is one round.
    """
    outcome, rows = run(tmp_path, unit="macs", amount=20_000, rounds=10)
    assert [row["stage"] for row in rows] == ["supernet"] * 5 + ["search"] * 3 + ["tune"]
    assert outcome.totals.spent("macs") == 5 * 2000 + 3 * (PLANNED + SCORED) + 2000


def test_the_least_that_a_round_costs_is_not_charged(tmp_path):
    """Of a budget of 16 such costs, 30 generations take nothing that the later stage would miss."""
    changes = {"unit": "bytes", "amount": 1e9, "rounds": 4, "evaluate_every": 100}
    _, rows = run(tmp_path, stages(Scoring(generations=30)), **changes)
    names = [row["stage"] for row in rows]
    assert (names.count("supernet"), names.count("search"), names.count("tune")) == (8, 30, 8)


def test_a_round_whose_clients_do_not_fit_is_another_matter(tmp_path):
    with pytest.raises(TooFewReplies, match="its labels are"):
        run(tmp_path, labels=("yes", "no"))


def test_a_plan_that_never_asks_anybody_and_changes_nothing_is_named(tmp_path):
    with pytest.raises(FedloomError, match="asks no client must change"):
        run(tmp_path, stages(Scoring(does_nothing=True)))


def test_what_a_change_is():
    old = State({"w": torch.tensor([1.0, 2.0])}, {"a": 1})
    with pytest.raises(FedloomError):
        check_change(old, State({"w": torch.tensor([1.0, 2.0])}, {"a": 1}))
    check_change(old, replace(old, meta={"a": 2}))
    check_change(old, State({"w": torch.tensor([1.0, 3.0])}, {"a": 1}))
    check_change(old, State({}, {"a": 1}))


def test_checkpoints_that_are_held_stay_held(tmp_path):
    loop = loop_in(tmp_path, stages())
    at = Checkpoint(stage=1, round=9, held=(4, 5))
    exchange = loop._exchange(loop.stages[1], 10, at)
    assert loop._held(at, exchange, asks_nobody=True) == (4, 5)
    assert loop._held(at, exchange, asks_nobody=False) == ()


# Killed and resumed


def timeless(rows):
    for row in rows:
        row["ledger"] = [line[:5] for line in row["ledger"]]
        row["totals"] = {**row["totals"], "seconds": 0, "measured_clock": 0, "wall": 0}
    return rows


@pytest.mark.parametrize(
    "when", ["planning", "before merging", "after merging", "at the end of a round"]
)
@pytest.mark.parametrize("unit", ["rounds", "macs"])
def test_killed_around_every_such_round_the_run_ends_with_the_same_bits(when, unit, tmp_path):
    changes = {"unit": unit, "amount": 20_000.0}
    undisturbed, rows = run(tmp_path / "undisturbed", **changes)
    killed = set()

    def kill(moment, number):
        if moment == when and number not in killed:
            killed.add(number)
            raise Kill

    class Dying(Scoring):
        def plan(self, state, r):
            kill("planning", r.number)
            return super().plan(state, r)

        def merge(self, state, orders, replies, r):
            kill("before merging", r.number)
            merged = super().merge(state, orders, replies, r)
            kill("after merging", r.number)
            return merged

    def listen(event):
        if isinstance(event, RoundEnded):
            kill("at the end of a round", event.row.round)

    outcome = None
    folder = tmp_path / "killed"
    while outcome is None:
        try:
            outcome = loop_in(folder, stages(Dying()), listen, **changes).run()
        except Kill:
            continue
    assert len(killed) >= 3
    assert torch.equal(outcome.state.tensors["w"], undisturbed.state.tensors["w"])
    assert outcome.state.meta == undisturbed.state.meta
    assert timeless(rows_in(folder)) == timeless(rows)
    before = replace(undisturbed.totals, seconds=0.0, measured_clock=0.0, wall=0.0)
    assert replace(outcome.totals, seconds=0.0, measured_clock=0.0, wall=0.0) == before
