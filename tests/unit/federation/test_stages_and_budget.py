"""The loop by itself, with a method that only costs MACs and whose metrics are fixed beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from fedloom.data.samples import ClientData, Samples
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.loop import Loop
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat
from fedloom.types import Fields, Order, Reply, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("scripted", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))
TRUTH = torch.tensor([0, 1, 0, 1])
OF_TEST = 10  # added to the inputs of the test part, so that a predictor can tell the parts apart


def part(offset: int) -> Samples:
    """Each input is its own label."""
    return Samples((TRUTH + offset).float().view(-1, *SHAPE), TRUTH)


@dataclass(frozen=True)
class Script(Method):
    """After round n of its stage, `validation[n]` and `test[n]` of four samples are correct."""

    validation: tuple[int, ...] = (0,) * 20
    test: tuple[int, ...] = (0,) * 20
    macs: int = 1000  # of a client's work
    moves: float = 0.0  # every element of the model, a round

    fields = {"work": Fields(tensors=("w",))}

    def init(self, setup, previous):
        began_with = None if previous is None else previous.meta["rounds"]
        return State({}, {"rounds": 0, "began_with": began_with})

    def plan(self, state, r):
        return state, [Order(client, "work", {"w": torch.zeros(4)}) for client in r.clients]

    def client(self, order, data, own, run):
        if self.macs:
            nn.Linear(self.macs, 1)(torch.zeros(1, self.macs))
        return Reply(order.client, {"w": order.tensors["w"] + self.moves}, len(data)), None

    def merge(self, state, orders, replies, r):
        return State({}, {**state.meta, "rounds": state.meta["rounds"] + 1})

    def serve(self, state, client):
        done = state.meta["rounds"] - 1
        return Order(
            client,
            "evaluate",
            meta={"right": self.validation[done], "right_of_test": self.test[done]},
        )

    def predictor(self, order, data, own, run):
        def answer(x: torch.Tensor) -> torch.Tensor:
            is_test = bool(x.max() >= OF_TEST)
            right = order.meta["right_of_test" if is_test else "right"]
            label = x.flatten().long() - (OF_TEST if is_test else 0)
            chosen = torch.where(torch.arange(len(label)) < right, label, 1 - label)
            return nn.functional.one_hot(chosen, len(LABELS)).float()

        return answer

    def network(self, order, data, own, run):
        return nn.Sequential(nn.Flatten(), nn.Linear(1, len(LABELS)))


def run(folder, stages, **changes):
    """The outcome, and the rows of metrics.jsonl."""
    data = ClientData(part(0), part(0), part(OF_TEST))
    site = Site(
        lambda client: data, ClientStore(folder / "clients"), lambda task: stages, SHAPE, LABELS
    )
    settings = Settings(
        **{"experiment": "script", "task": TASK, "population": 2, "rounds": 4, **changes}
    )
    loop = Loop(
        settings,
        stages,
        InlineEngine(site),
        Spool(folder / "spool"),
        Flat(),
        Archive(folder),
        holds_back=True,
    )
    outcome = loop.run()
    return outcome, [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


# Selection


def test_the_best_round_is_one_of_the_last_stage(tmp_path):
    """The run's first round is better than all of the second stage, but has another network."""
    stages = (Stage("search", Script((4, 2)), 0.5), Stage("train", Script((2, 1))))
    outcome, _ = run(tmp_path, stages, select="best")
    assert (outcome.rounds, outcome.selected, outcome.validation) == (4, 3, 0.5)
    assert outcome.state.meta == {
        "rounds": 1,
        "began_with": 1,
    }  # and it began with the best of the first stage


def test_rounds_are_selected_on_validation_and_reported_on_test(tmp_path):
    """The figures on test say the opposite."""
    outcome, rows = run(
        tmp_path, (Stage("train", Script((1, 4, 2, 3), (4, 1, 3, 2))),), select="best"
    )
    assert (outcome.selected, outcome.validation) == (2, 1.0)
    assert [row["evaluation"]["part"] for row in rows] == ["validation"] * 4
    assert [row["evaluation"]["accuracy"] for row in rows] == [0.25, 1.0, 0.5, 0.75]
    assert [client.own.figures.value for client in outcome.clients] == [0.25, 0.25]


def test_without_selection_the_last_round_is_reported(tmp_path):
    outcome, _ = run(tmp_path, (Stage("train", Script((1, 4, 2, 3), (4, 1, 3, 2))),))
    assert (outcome.selected, outcome.validation) == (4, None)
    assert [client.own.figures.value for client in outcome.clients] == [0.5, 0.5]


def test_the_last_round_of_an_earlier_stage_is_evaluated_whatever_the_rhythm(tmp_path):
    stages = (
        Stage("one", Script((1, 2)), 0.5),
        Stage("two", Script((3,)), 0.5),
        Stage("three", Script((4,))),
    )
    _, rows = run(tmp_path, stages, rounds=4, evaluate_every=100)
    evaluated = [
        (row["stage"], row["evaluation"]["accuracy"]) for row in rows if "evaluation" in row
    ]
    assert evaluated == [("one", 0.5), ("two", 0.75)]


# Bounds


@pytest.mark.parametrize("population", [2, 4])
def test_what_is_usual_in_one_stage_says_nothing_of_the_next(population, tmp_path):
    """A search moves its weights by a millionth. The training that follows moves them by 1."""
    stages = (Stage("search", Script(moves=1e-6), 0.5), Stage("train", Script(moves=1.0)))
    _, rows = run(tmp_path, stages, population=population, norm_bound=100.0)
    assert [(row["replies"], row["refused"]) for row in rows] == [(population, [])] * 4


# Budgets


@pytest.mark.parametrize("unit", ["macs", "bytes"])
def test_a_budget_ends_at_the_round_that_is_nearest_to_it(unit, tmp_path):
    stages = (Stage("train", Script()),)
    _, rows = run(tmp_path / "measured", stages)
    costs = {
        "macs": lambda totals: totals["macs"],
        "bytes": lambda totals: totals["down"] + totals["up"],
    }
    spent = [costs[unit](row["totals"]) for row in rows]
    halfway = (spent[1] + spent[2]) / 2
    below, _ = run(tmp_path / "below", stages, unit=unit, amount=halfway - 1)
    above, _ = run(tmp_path / "above", stages, unit=unit, amount=halfway + 1)
    assert (below.rounds, above.rounds) == (2, 3)


def test_a_method_that_spends_nothing_ends_too(tmp_path):
    """At equal MACs it gets at most four times the rounds that were asked for."""
    outcome, _ = run(
        tmp_path,
        (Stage("train", Script(macs=0)),),
        unit="macs",
        amount=1e9,
        rounds=4,
        evaluate_every=100,
    )
    assert (outcome.rounds, outcome.totals.macs) == (16, 0)


def test_a_stage_has_its_share_of_what_is_left_when_it_begins(tmp_path):
    stages = (Stage("one", Script(), 0.5), Stage("two", Script(), 0.5), Stage("three", Script()))
    _, rows = run(tmp_path, stages, rounds=8)
    assert [row["stage"] for row in rows] == ["one"] * 4 + ["two"] * 2 + ["three"] * 2


def test_macs_are_those_of_the_clients_work(tmp_path):
    _, rows = run(tmp_path, (Stage("train", Script()),))
    assert [row["totals"]["macs"] for row in rows] == [2000, 4000, 6000, 8000]


def test_evaluation_is_booked_apart(tmp_path):
    """Bytes down and up are those of the ledger's lines, though every round was evaluated."""
    outcome, rows = run(tmp_path, (Stage("train", Script()),))
    down = 0
    up = 0
    for row in rows:
        down += sum(line[2] for line in row["ledger"])
        up += sum(line[3] for line in row["ledger"])
        assert (row["totals"]["down"], row["totals"]["up"]) == (down, up)
        assert row["totals"]["evaluate_down"] > 0
    assert (outcome.totals.down, outcome.totals.up) == (down, up)
    assert outcome.totals.evaluate_down > rows[-1]["totals"]["evaluate_down"]  # the final one
