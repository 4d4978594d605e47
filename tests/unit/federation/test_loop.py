"""The round loop's own decisions: when a stage ends, which rounds are evaluated, what is handed on.

Whole runs of the loop are in test_stages_and_budget.py and its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import ClientEvaluation, ModelEvaluation
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.budgets import Allowance, OverBudget
from fedloom.federation.server.checkpoint import Best, Checkpoint, TakenBack
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.evaluating import (
    evaluation_order,
    mean,
    means_beside,
    values_of,
    with_model,
)
from fedloom.federation.server.events import Notice
from fedloom.federation.server.loop import Loop, with_notes
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Receipt, Spool
from fedloom.federation.server.stage_checks import check_leaves, check_notes, check_stages
from fedloom.federation.server.topology import Flat
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import metric_of
from fedloom.records.rows import ClusterNote, ClusterRow, MetricsRow
from fedloom.records.totals import Totals
from fedloom.types import Fields, Order, State, Task

TASK = Task("toy", {}, "image", (1, 1, 1), ("no", "yes"), 7, (0.0,), (1.0,))
SETTINGS = Settings("toy", TASK, population=4, rounds=10)


@dataclass(frozen=True)
class Toy(Method):
    """Begins with the number that the stage before ended with, plus one."""

    rounds_told: list[float | None] = field(default_factory=list)

    fields = {"work": Fields(tensors=("*",))}

    def check_rounds(self, rounds):
        self.rounds_told.append(rounds)

    def init(self, setup, previous):
        number = 0.0
        if previous is not None:
            number = float(previous.tensors["w"]) + 1
        return State({"w": torch.tensor(number)})


def loop_in(folder, *stages: Stage, listen=None, holds_back=False, **settings) -> Loop:
    """A loop without clients: nothing that these tests call asks one."""
    return Loop(
        replace(SETTINGS, **settings),
        stages or (Stage("train", Toy()),),
        engine=None,
        spool=Spool(folder / "spool"),
        topology=Flat(),
        archive=Archive(folder),
        holds_back=holds_back,
        listen=listen or (lambda event: None),
    )


def saved(archive: Archive, *rounds: int, best: Best | None = None) -> Checkpoint:
    """Checkpoints of these rounds, whose states have the number of the round."""
    now = Checkpoint()
    for number in rounds:
        state = State({"w": torch.tensor(float(number))})
        now = replace(now, round=number, state=state, best=best, versions={0: f"{number}.0"})
        now = archive.save(now, MetricsRow("train", number, 0.0))
    return now


# Whether stages can run


def test_every_stage_with_a_share_needs_a_round():
    stages = (Stage("search", Toy(), 0.5), Stage("train", Toy()), Stage("tune", Toy(), None))
    check_stages(replace(SETTINGS, rounds=2), stages, Flat())
    with pytest.raises(FedloomError, match="--rounds must be at least 2 for a method of 2 stages"):
        check_stages(replace(SETTINGS, rounds=1), stages, Flat())
    check_stages(replace(SETTINGS, rounds=1, unit="macs", amount=5.0), stages, Flat())


def test_methods_are_told_how_many_rounds_their_stages_have():
    methods = [Toy(), Toy(), Toy()]
    search, train, tune = methods
    stages = (Stage("search", search, 0.3), Stage("train", train), Stage("tune", tune, None))
    check_stages(SETTINGS, stages, Flat())
    assert [method.rounds_told for method in methods] == [[3.0], [7.0], [None]]
    check_stages(replace(SETTINGS, unit="macs", amount=5.0), stages, Flat())
    assert [method.rounds_told[1] for method in methods] == [None, None, None]


def test_a_method_that_cannot_be_averaged_must_be_flat_in_clusters():
    with pytest.raises(FedloomError, match="must allow averaging inside a cluster"):
        check_stages(SETTINGS, [Stage("train", Toy())], Clustered(2))
    check_stages(SETTINGS, [Stage("train", Toy(), is_flat=True)], Clustered(2))


def test_clusters_cannot_be_overselected():
    stages = [Stage("train", Toy(), is_flat=True)]
    with pytest.raises(FedloomError, match=r"--overselect must be left out .* got 1\.5"):
        check_stages(replace(SETTINGS, overselect=1.5), stages, Clustered(2))


@pytest.mark.parametrize("names", [("supernet", "supernet"), ("init",), ("../up",), ("a b",)])
def test_stages_must_leave_their_states_under_names_of_their_own(names):
    stages = [Stage(f"stage {name}", Toy(), leaves=name) for name in names]
    with pytest.raises(FedloomError, match=f"stage {names[-1]} leaves '{names[-1]}'"):
        check_leaves([Stage("first", Toy()), *stages])
    check_leaves([Stage("one", Toy(), leaves="one"), Stage("two", Toy(), leaves="two")])


def test_a_note_may_not_hide_what_every_row_has():
    check_notes({"phase": "search"})
    with pytest.raises(FedloomError, match="it has 'totals'"):
        check_notes({"phase": "search", "totals": {}})


# When a stage ends


def at_budget(budget: float, spent: float, last_cost: float) -> Checkpoint:
    return Checkpoint(charged=3.0 + spent, began=3.0, budget=budget, last_cost=last_cost)


@pytest.mark.parametrize(
    ("spent", "last_cost", "unit"),
    [
        (80.0, 30.0, None),  # 110 is nearer to 100 than 80 is
        (80.0, 50.0, "macs"),  # 130 is not
        (100.0, 0.0, "macs"),
        (0.0, 0.0, None),
    ],
)
def test_a_stage_ends_where_it_is_nearest_to_its_budget(tmp_path, spent, last_cost, unit):
    loop = loop_in(tmp_path, unit="macs", amount=100.0)
    assert loop._stopped_by(at_budget(100.0, spent, last_cost)) == unit


def test_an_open_ended_stage_is_ended_by_limits_alone(tmp_path):
    loop = loop_in(tmp_path, Stage("tune", Toy(), None), limits={"macs": 50.0})
    over_budget = at_budget(10.0, 20.0, 0.0)
    allowance = Allowance(began={"macs": 0.0}, parts={"macs": 50.0}, dearest={"macs": 20.0})
    affordable = replace(over_budget, allowance=allowance, totals=Totals(macs=30))
    assert loop._stopped_by(affordable) is None
    assert loop._stopped_by(replace(affordable, totals=Totals(macs=31))) == "macs"


def test_the_share_that_is_spent_is_that_of_the_nearest_limit(tmp_path):
    loop = loop_in(tmp_path, limits={"macs": 100.0, "bytes": 100.0})
    at = Checkpoint(charged=2.0, totals=Totals(macs=10, down=30, up=25))
    assert loop._share_spent(at) == 0.55
    assert loop._share_spent(replace(at, charged=8.0)) == 0.8
    assert loop._share_spent(replace(at, charged=11.0)) == 1.0


# From one stage to the next


def test_a_stage_begins_with_the_best_round_of_the_one_before(tmp_path):
    loop = loop_in(tmp_path, Stage("search", Toy(), 0.5), Stage("train", Toy()))
    now = saved(loop.archive, 1, 2, best=Best(1, 0.9))
    entered = loop._enter(1, now)
    assert float(entered.state.tensors["w"]) == 2.0  # 1, of the best round, plus one
    assert entered.best is None and entered.last_cost == 0.0 and entered.norms == {}
    assert entered.round == 2 and entered.versions == {}


def test_clients_may_keep_their_states_from_the_stage_before(tmp_path):
    stages = (Stage("search", Toy(), 0.5), Stage("train", Toy(), keeps_own=True))
    loop = loop_in(tmp_path, *stages)
    now = saved(loop.archive, 1, 2, best=Best(1, 0.9))
    assert loop._enter(1, now).versions == {0: "1.0"}


def test_a_stage_gets_its_share_of_what_is_left(tmp_path):
    stages = (Stage("search", Toy(), 0.5), Stage("train", Toy(), 0.5), Stage("tune", Toy(), 1.0))
    loop = loop_in(tmp_path, *stages)
    entered = loop._enter(1, Checkpoint(charged=4.0, state=State({"w": torch.tensor(0.0)})))
    assert (entered.began, entered.budget) == (4.0, 3.0)  # half of the six rounds that are left


def test_what_a_stage_leaves_is_written_when_it_ends(tmp_path):
    stages = (Stage("search", Toy(), 0.5, leaves="supernet"), Stage("train", Toy()))
    loop = loop_in(tmp_path, *stages)
    now = saved(loop.archive, 1, 2, best=Best(1, 0.9))
    loop._enter(1, now)
    assert float(loop.archive.stage_state("supernet").tensors["w"]) == 1.0


def test_a_run_may_begin_with_given_weights(tmp_path):
    loop = loop_in(tmp_path)
    loop.start = State({"w": torch.tensor(8.0), "head": torch.tensor(1.0)})
    assert loop._enter(0, Checkpoint()).state.tensors == {"w": torch.tensor(8.0)}


def test_a_run_that_was_taken_back_to_its_beginning_remembers_only_that(tmp_path):
    """It has no stages here, so it ends where it begins."""
    loop = loop_in(tmp_path)
    loop.stages = ()
    loop._finish = lambda at: at
    steps = (TakenBack(5, 0),)
    loop._begin = lambda: Checkpoint(taken_back=steps, charged=5.0)
    at = loop.run()
    assert (at.taken_back, at.charged) == (steps, 0.0)


# Which rounds are evaluated, and by whom


@pytest.mark.parametrize(
    ("round_", "asks_nobody", "evaluated"),
    [(4, False, False), (5, False, True), (5, True, False)],
)
def test_every_few_rounds_are_evaluated(tmp_path, round_, asks_nobody, evaluated):
    loop = loop_in(tmp_path, evaluate_every=5)
    at = Checkpoint(round=round_, charged=float(round_), budget=10.0, last_cost=1.0)
    assert loop._is_evaluated(at, asks_nobody=asks_nobody) == evaluated


def test_the_last_round_of_a_stage_is_evaluated_if_another_one_follows(tmp_path):
    two = loop_in(tmp_path, Stage("search", Toy(), 0.5), Stage("train", Toy()), evaluate_every=50)
    over = Checkpoint(round=4, charged=5.0, budget=5.0)
    assert two._is_evaluated(over, asks_nobody=False)
    assert not two._is_evaluated(replace(over, stage=1), asks_nobody=False)  # the run ends


def test_rounds_that_may_be_the_last_are_evaluated_where_the_best_one_is_selected(tmp_path):
    stages = (Stage("train", Toy(), 0.5), Stage("tune", Toy(), None))
    loop = loop_in(tmp_path, *stages, evaluate_every=50, select="best", holds_back=True)
    in_time = Checkpoint(round=2, charged=2.0, budget=10.0, last_cost=1.0)
    assert not loop._is_evaluated(in_time, asks_nobody=False)
    assert loop._is_evaluated(replace(in_time, stage=1), asks_nobody=True)  # it may end any time


def test_selection_needs_a_validation_part(tmp_path):
    best = Stage("search", Toy(), select="best")
    assert loop_in(tmp_path, best, holds_back=True)._selects(0)
    assert not loop_in(tmp_path, best)._selects(0)
    assert not loop_in(tmp_path, holds_back=True)._selects(0)
    assert loop_in(tmp_path, holds_back=True, select="best")._selects(0)


def test_large_populations_are_sampled_by_the_seed(tmp_path):
    loop = loop_in(tmp_path, population=1000)
    assert loop._sample(1000) == range(1000)
    sample = loop._sample(30)
    assert sample == sorted(set(sample)) and len(sample) == 30
    assert sample == loop._sample(30)
    other_seed = replace(TASK, seed=8)
    assert sample != loop_in(tmp_path, population=1000, task=other_seed)._sample(30)


def test_an_order_to_evaluate_names_the_part():
    served = Order(3, "anything", {"w": torch.zeros(1)}, {"depth": 2})
    order = evaluation_order(served, "validation", final=False)
    assert (order.client, order.kind, order.tensors) == (3, "evaluate", served.tensors)
    assert order.meta == {"depth": 2, "part": "validation", "final": False}
    final = evaluation_order(served, "test", final=True, sends_confusion=False)
    assert final.meta == {"depth": 2, "part": "test", "final": True, "confusion": False}
    evaluation = evaluation_order(served, "test", final=True)
    assert "confusion" not in evaluation.meta  # sites send it unless they are told not to


# Figures


def figures(value: float | None, **beside: float | None) -> Figures:
    return Figures("accuracy", 4, 2, value, None, beside)


def test_means_are_over_the_clients_that_have_a_value():
    clients = [figures(0.5, auc=0.25), figures(None, auc=None), figures(1.0)]
    assert values_of(clients, "accuracy") == [0.5, 1.0]
    assert values_of(clients, "auc") == [0.25]
    assert mean([0.5, 1.0]) == 0.75
    assert mean([]) is None


@pytest.mark.parametrize(
    ("labels", "names"),
    [(("no", "yes"), {"balanced_accuracy", "auc"}), (("a", "b", "c"), {"balanced_accuracy"})],
)
def test_auc_is_reported_for_two_classes_alone(labels, names):
    clients = [figures(0.5, auc=0.25, balanced_accuracy=0.5)]
    means = means_beside(clients, metric_of("image"), labels)
    assert means.keys() == names and means["balanced_accuracy"] == 0.5


def test_a_model_that_the_method_names_joins_the_clients_evaluations():
    first = ClientEvaluation(0, ModelEvaluation(figures(0.5)), named={"small": ModelEvaluation()})
    second = ClientEvaluation(1, ModelEvaluation(reason="late"))
    of_model = [
        ClientEvaluation(0, ModelEvaluation(figures(0.75))),
        ClientEvaluation(1, ModelEvaluation(reason="died")),
    ]
    joined = with_model([first, second], "large", of_model)
    assert joined[0].named == {"small": ModelEvaluation(), "large": of_model[0].own}
    assert joined[0].own == first.own
    assert joined[1].named["large"].reason == "died"


def test_clusters_rows_get_the_methods_notes():
    rows = [ClusterRow(0, (1, 2), 1), ClusterRow(3, (4,), 4)]
    noted, plain = with_notes(rows, {0: ClusterNote(space="a", c=0.5)})
    assert (noted.space, noted.c, noted.members) == ("a", 0.5, (1, 2))
    assert plain == rows[1]


# Rounds that are dropped, and damage


def test_a_budget_that_does_not_allow_one_round_is_an_error(tmp_path):
    loop = loop_in(tmp_path, limits={"macs": 50.0})
    with pytest.raises(FedloomError, match="macs must allow one round, which needs 80, but got 50"):
        loop._drop(Checkpoint(), OverBudget(1, "macs", {"macs": 80.0}))


def test_nothing_stays_of_a_dropped_round(tmp_path):
    notices = []
    loop = loop_in(tmp_path, limits={"macs": 50.0}, listen=notices.append)
    loop.spool.record(Receipt(3, 0, 1, None, False, 1, 1, 1, 1.0))
    over = OverBudget(3, "macs", {"macs": 80.0})
    loop._drop(Checkpoint(round=2, totals=Totals(macs=35)), over)
    assert notices == [
        Notice("round 3 was dropped: it would have cost 80 macs, and 15 are left of the limit")
    ]
    assert loop.spool.receipts(3, 0) == {} and loop.over_budget == over


def test_a_run_goes_back_before_a_damaged_checkpoint_and_says_so(tmp_path):
    saved(Archive(tmp_path), 1, 2)
    notices = []
    loop = loop_in(tmp_path, listen=notices.append)
    loop.archive.path(2).write_bytes(b"damaged")
    at = loop._begin()
    assert at.round == 1
    assert notices == [
        Notice("the checkpoint of round 2 cannot be used: the run goes back to round 1")
    ]
    assert loop.needed_versions == {1: {0: "1.0"}}  # what orders must tell clients to keep


def test_a_run_without_a_usable_checkpoint_starts_again(tmp_path):
    saved(Archive(tmp_path), 1)
    notices = []
    loop = loop_in(tmp_path, listen=notices.append)
    loop.archive.path(1).write_bytes(b"damaged")
    assert loop._begin() is None
    assert notices == [Notice("no checkpoint can be used: the run starts again at round 0")]


def test_versions_of_deleted_checkpoints_are_forgotten(tmp_path):
    loop = loop_in(tmp_path)
    loop.needed_versions = {1: {0: "1.0"}, 2: {0: "2.0"}}
    now = saved(loop.archive, 2, 3)
    loop._forget(now)
    assert loop.needed_versions == {2: {0: "2.0"}, 3: {0: "3.0"}}
