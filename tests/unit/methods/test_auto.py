"""auto against docs/auto.md: what its server asks, and what it makes of the answers."""

from dataclasses import replace
from math import log2

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.admission import Expected, refuse
from fedloom.methods.auto import Auto
from fedloom.methods.auto_client import AutoClient
from fedloom.methods.auto_networks import cost_of, network_with_prior, sizes_within, weights_of_size
from fedloom.methods.auto_options import AutoOptions
from fedloom.methods.auto_tune import Tune
from fedloom.stages.decisions import changes_for
from fedloom.stages.phases import cooled, with_meta
from fedloom.testing import Toy
from fedloom.testing.subject import posted
from fedloom.types import Order, Reply, Round, Setup, State, Task

TASK = Task("auto", {}, "image", (1, 8, 8), ("a", "b", "c"), 0, (0.5,), (0.3,))
CLIENTS = 4


def at(progress, number=1, budget=1000.0):
    return Round(number, progress * budget, budget, range(CLIENTS), 1.0, 0)


def plan_at(method, state, progress):
    """The plan of a round before which another one cost a thousandth of the budget."""
    return method.plan(with_meta(state, spent=1000 * progress - 1), at(progress))


def made(**options):
    method = Auto(AutoOptions(**options))
    return method, method.init(Setup(TASK, CLIENTS), None)


def as_it_was(order, **meta):
    """A reply that brings the weights back as they came."""
    return Reply(
        order.client,
        order.tensors,
        10,
        {"loss": 1.0, "nll": 0.0, "correct": 0, "samples": 0, **meta},
    )


def judgement(order, nll, samples=20):
    return Reply(
        order.client, weight=10, meta={"nll": nll, "correct": [0] * len(nll), "samples": samples}
    )


def trained(method, state, r):
    """One round in which clients bring back what they got."""
    state, orders = method.plan(state, r)
    return method.merge(state, orders, [as_it_was(order) for order in orders], r), orders


def raced(method, state, progress):
    """All rounds of a slice, which is over at this progress: the size that each trained."""
    sizes = []
    for number in range(200):
        planned, orders = method.plan(state, at(progress if number else 0.0, number))
        if orders[0].kind == "judge":
            return state, sizes
        sizes.append(orders[0].meta["size"])
        state = method.merge(
            planned, orders, [as_it_was(order) for order in orders], at(0.0, number)
        )
    raise AssertionError("the slice never ended")


def after_race(**options):
    """One size; if it is to say which changes it bears, it has been trained for a round."""
    method, state = made(sizes=[1.0], **options)
    if method.options.decides_changes:
        state = trained_once(method, state)
    return method, state


def trained_once(method, state):
    state, orders = method.plan(state, at(0.0))
    return method.merge(state, orders, [as_it_was(order) for order in orders], at(0.0))


# The race


def test_every_size_starts_from_the_seed_and_is_trained_in_turn():
    method, state = made()
    assert state.meta["live"] == ["0.35", "0.5", "0.7", "1"]
    _, orders = method.plan(state, at(0.0))
    assert {order.meta["size"] for order in orders} == {"0.35"}
    assert [order.client for order in orders] == list(range(CLIENTS))
    assert not any(
        "/" in name for name in orders[0].tensors
    )  # of one size alone, by the network's names


def test_sizes_race_at_equal_macs():
    method, state = made()
    costs = {size: cost_of(TASK, method.options, size).macs for size in state.meta["live"]}
    work = dict.fromkeys(costs, 0)
    for number in range(60):
        state, orders = trained(method, state, at(0.0, number))
        work[orders[0].meta["size"]] += costs[orders[0].meta["size"]] * 10 * CLIENTS
    assert work == state.meta["work"]
    assert max(work.values()) - min(work.values()) <= max(costs.values()) * 10 * CLIENTS


def test_a_slice_ends_when_its_share_is_spent_and_every_size_was_trained():
    method, state = made()
    state, sizes = raced(method, state, 0.025)
    assert set(sizes) == {"0.35", "0.5", "0.7", "1"}
    _, orders = method.plan(state, at(0.024))
    assert orders[0].kind == "train"
    state, orders = method.plan(state, at(0.025))  # the first look: none is dropped
    assert orders[0].kind == "judge"
    assert orders[0].meta["sizes"] == ["0.35", "0.5", "0.7", "1"]
    replies = [judgement(order, [1.0, 2.0, 3.0, 4.0]) for order in orders]
    state = method.merge(state, orders, replies, at(0.025))
    assert state.meta["live"] == ["0.35", "0.5", "0.7", "1"]
    assert not state.meta["decisions"]
    state, sizes = raced(method, state, 0.05)
    assert set(sizes) == {"0.35", "0.5", "0.7", "1"}
    _, orders = method.plan(state, at(0.049))
    assert orders[0].kind == "train"
    _, orders = method.plan(state, at(0.05))
    assert orders[0].kind == "judge"
    assert orders[0].meta["sizes"] == ["0.35", "0.5", "0.7", "1"]


def test_the_size_goes_on_that_is_expected_to_be_better_at_the_end():
    """Powers of work: with the rest of the budget, 2 → 1 falls below 1 → 0.9, down to its half."""
    method, state = made(sizes=[0.5, 1.0])
    state = with_meta(
        state,
        phase="judge",
        curves={"0.5": [[1.0, 1.0]], "1": [[1.0, 2.0]]},
        work={"0.5": 2.0, "1": 2.0},
        spent=50.0,
        budget=1000.0,
    )
    orders = [Order(0, "judge", {}, {"sizes": ["0.5", "1"]})]
    after = method.merge(state, orders, [judgement(orders[0], [18.0, 20.0])], at(0.05))
    assert after.meta["live"] == ["1"]
    counts = after.meta["decisions"][0]["counts"]
    doublings = log2(2.0 + 4.0 * 19)  # the work of each, if the rest of the budget is its own
    assert counts["0.5"]["expected nll"] == pytest.approx(0.9**doublings)
    assert counts["1"]["expected nll"] == 0.5


def test_what_is_left_of_the_budget_decides_between_sizes():
    """With little left, the size that is ahead now is ahead at the end, too."""
    method, state = made(sizes=[0.5, 1.0])
    state = with_meta(
        state,
        phase="judge",
        curves={"0.5": [[1.0, 1.0]], "1": [[1.0, 1.2]]},
        work={"0.5": 2.0, "1": 2.0},
        budget=1000.0,
    )
    orders = [Order(0, "judge", {}, {"sizes": ["0.5", "1"]})]
    replies = [judgement(orders[0], [18.0, 20.0])]
    for spent, size in ((50.0, "1"), (900.0, "0.5")):
        after = method.merge(with_meta(state, spent=spent), orders, replies, at(0.05))
        assert after.meta["live"] == [size], spent


def test_the_better_half_goes_on_with_its_weights_then_the_best():
    method, state = made()
    state, _ = raced(method, state, 0.05)
    state, orders = method.plan(state, at(0.05))
    replies = [judgement(order, [40.0, 10.0, 30.0, 20.0]) for order in orders]
    before = state
    state = method.merge(state, orders, replies, at(0.05))
    assert state.meta["live"] == ["0.5", "1"]
    for size in ("0.5", "1"):
        for name, tensor in weights_of_size(size, before.tensors).items():
            assert torch.equal(state.tensors[f"{size}/{name}"], tensor)
    assert not weights_of_size("0.7", state.tensors)
    assert state.meta["decisions"][0] == {
        "decision": "size, slice 1",
        "options": ["0.35", "0.5", "0.7", "1"],
        "counts": {
            "0.35": {"nll": 160.0, "correct": 0, "samples": 80, "expected nll": 2.0},
            "0.5": {"nll": 40.0, "correct": 0, "samples": 80, "expected nll": 0.5},
            "0.7": {"nll": 120.0, "correct": 0, "samples": 80, "expected nll": 1.5},
            "1": {"nll": 80.0, "correct": 0, "samples": 80, "expected nll": 1.0},
        },
        "chosen": "0.5, 1",
    }
    state, sizes = raced(method, state, 0.1)
    assert set(sizes) == {"0.5", "1"}
    state, orders = method.plan(state, at(0.1))
    state = method.merge(state, orders, [judgement(order, [2.0, 1.0]) for order in orders], at(0.1))
    assert state.meta["live"] == ["1"]
    assert state.meta["decisions"][1]["chosen"] == "1"


def test_two_sizes_need_one_slice():
    method, state = made(sizes=[0.5, 1.0])
    state, _ = raced(method, state, 0.05)
    state, orders = method.plan(state, at(0.05))
    state = method.merge(
        state, orders, [judgement(order, [1.0, 2.0]) for order in orders], at(0.05)
    )
    assert state.meta["live"] == ["0.5"]
    _, orders = method.plan(state, at(0.06))
    assert orders[0].kind == "train"


def test_what_other_sizes_took_does_not_count_as_training_of_the_winner():
    method, state = made(sizes=[0.5, 1.0])
    state = with_meta(state, live=["0.5"], work={"0.5": 60.0, "1": 20.0})
    _, orders = method.plan(state, at(0.33))  # three quarters of it: less than a quarter
    assert orders[0].kind == "train"
    _, orders = method.plan(state, at(0.34))
    assert orders[0].kind == "invariance"


def test_a_winner_of_a_dear_race_is_asked_while_it_can_be_trained_with_the_answer():
    method, state = made(sizes=[0.5, 1.0], tune="never")
    state = with_meta(state, live=["0.5"], work={"0.5": 10.0, "1": 90.0})
    state = with_meta(state, paid={"0.5": 100.0}, phase="begin")
    _, orders = method.plan(state, at(0.5))
    assert orders[0].kind == "train"
    _, orders = method.plan(state, at(0.6))  # one more round would be the last before cooling
    assert orders[0].kind == "invariance"


def test_one_size_is_trained_before_it_is_asked_what_it_bears():
    """A network that has learnt nothing answers changed samples as well as plain ones."""
    method, state = made(sizes=[1.0])
    state, orders = method.plan(state, at(0.0))
    assert orders[0].kind == "train" and orders[0].meta["augment"] == "none"
    _, unheard = method.plan(state, at(0.25))  # nobody has replied yet
    assert unheard[0].kind == "train"
    state = trained_once(method, state)
    _, orders = plan_at(method, state, 0.24)
    assert orders[0].kind == "train"
    _, orders = plan_at(method, state, 0.25)
    assert orders[0].kind == "invariance"
    method, state = made(sizes=[1.0], changes="none")
    assert method.ready(state, at(0.0)).meta["phase"] == "train"
    method, state = after_race(changes_after=0.5)
    _, orders = plan_at(method, state, 0.49)
    assert orders[0].kind == "train"


def test_clients_are_weighed_by_their_samples():
    """A sum over all samples, not a mean of means: the client with many decides."""
    method, state = made(sizes=[0.5, 1.0])
    state, _ = raced(method, state, 0.05)
    state, orders = method.plan(state, at(0.05))
    replies = [
        judgement(orders[0], [100.0, 50.0], samples=100),
        judgement(orders[1], [1.0, 9.0], samples=5),
    ]
    assert method.merge(state, orders, replies, at(0.05)).meta["live"] == ["1"]


def test_limits_leave_sizes_out():
    options = AutoOptions()
    half = cost_of(TASK, options, "0.5")
    assert sizes_within(TASK, AutoOptions(limit_macs=half.macs)) == ["0.35", "0.5"]
    assert sizes_within(TASK, AutoOptions(limit_params=half.params - 1)) == ["0.35"]
    smallest = cost_of(TASK, options, "0.35")
    words = f"limits must leave at least one size.*0.35 of the width, takes {smallest.macs:,} MACs"
    with pytest.raises(FedloomError, match=words):
        sizes_within(TASK, AutoOptions(limit_macs=10))


# Invariance


@pytest.mark.parametrize(
    ("changed", "chosen"), [([95, 94, 100], "flip+rotate:10"), ([0, 0, 0], "none")]
)
def test_changes_are_kept_at_nine_tenths_of_what_the_network_has_learnt(changed, chosen):
    """The most common class answers 100 − 60 + 10 = 50 samples, so the network adds 50 to them."""
    method, state = after_race()
    state, orders = method.plan(state, at(0.25))
    assert orders[0].meta["changes"] == ["flip", "crop:1", "rotate:10"]
    meta = {"plain": 100, "changed": changed, "up": 60, "down": 10, "samples": 120}
    state = method.merge(state, orders, [Reply(0, weight=9, meta=meta)], at(0.25))
    assert state.meta["decisions"][-1]["chosen"] == chosen
    _, orders = method.plan(state, at(0.25))
    assert orders[0].meta["augment"] == chosen


@pytest.mark.parametrize(("up", "down", "chosen"), [(27, 9, "none"), (28, 9, "flip")])
def test_a_network_no_better_than_the_most_common_class_decides_no_change(up, down, chosen):
    """By three standard deviations: 27 − 9 is not more than 3·√36, but 28 − 9 > 3·√37."""
    method, state = after_race()
    state, orders = method.plan(state, at(0.25))
    meta = {"plain": 100, "changed": [100, 0, 0], "up": up, "down": down, "samples": 120}
    state = method.merge(state, orders, [Reply(0, weight=9, meta=meta)], at(0.25))
    taken = state.meta["decisions"][-1]
    assert taken["chosen"] == chosen
    assert (taken["counts"]["only the network"], taken["counts"]["only the most common class"]) == (
        up,
        down,
    )


def test_changes_by_kind_of_data():
    assert changes_for(TASK) == ["flip", "crop:1", "rotate:10"]
    speech = Task("auto", {}, "speech", (1, 40, 51), ("a", "b"), 0, (0.0,), (1.0,))
    assert changes_for(speech) == ["timeshift:5", "hiss:0.2", "timemask:6", "bandmask:6"]
    assert changes_for(Task("auto", {}, "text", (80,), ("a", "b"), 0, (), ())) == []


@pytest.mark.parametrize("options", [{"changes": "none"}, {"augment": "flip"}])
def test_nothing_is_asked_where_changes_are_settled(options):
    method, state = after_race(**options)
    _, orders = method.plan(state, at(0.1))
    assert orders[0].kind == "train"
    assert orders[0].meta["augment"] == options.get("augment", "none")


# Training, its end, the trial


def checked(method, state, number, nll, correct):
    """A round of training, in which clients judge what they got if they are asked to."""
    r = at(0.2 + number / 1000, number)
    state, orders = method.plan(state, r)
    meta = (
        {"nll": nll * 20, "correct": correct, "samples": 20} if orders[0].meta["validate"] else {}
    )
    return method.merge(state, orders, [as_it_was(order, **meta) for order in orders], r), orders


def test_validation_figures_come_every_third_round():
    method, state = after_race(changes="none")
    asked = []
    for number in range(7):
        state, orders = checked(method, state, number, 0.5, 10)
        asked.append(orders[0].meta["validate"])
        assert not orders[0].meta["whole"]
        assert orders[0].meta["lr"] == 0.05
    assert asked == [True, False, False, True, False, False, True]
    assert state.meta["checks"] == [[0.5, 0.5]] * 3


def test_a_plateau_ends_training_early_and_what_follows_takes_a_quarter_of_it():
    method, state = after_race(changes="none", window=2, check_every=1, tune="never")
    for number in range(4):
        state, _ = checked(method, state, number, 0.5, 10)
    state, orders = plan_at(method, state, 0.4)
    assert orders[0].meta["whole"]  # cooling has all samples
    assert state.meta["until"] == pytest.approx(500.0)
    assert state.meta["decisions"][-1]["chosen"] == "plateau"
    assert plan_at(method, state, 0.5) is None


def test_without_a_plateau_training_has_its_whole_budget():
    method, state = after_race(changes="none", window=2, check_every=1, tune="never")
    for number in range(4):
        state, _ = checked(method, state, number, 0.5 - number / 10, 10)
    _, orders = plan_at(method, state, 0.74)
    assert not orders[0].meta["whole"]
    state, orders = plan_at(method, state, 0.75)
    assert orders[0].meta["whole"]
    assert state.meta["until"] == 1000.0
    assert state.meta["decisions"][-1]["chosen"] == "budget"


def test_never_stop_is_never():
    method, state = after_race(changes="none", window=1, check_every=1, tune="never", stop="never")
    for number in range(9):
        state, orders = checked(method, state, number, 0.5, 10)
    assert not orders[0].meta["whole"]


def test_the_trial_begins_while_it_can_be_paid():
    """A round costs a hundredth of the budget and a trial three: it ends at three quarters."""
    method, state = after_race(changes="none")
    for number in range(8):
        state, orders = method.plan(state, at(0.1 + number / 100, number))
        state = method.merge(state, orders, [as_it_was(order) for order in orders], at(0.0))
    _, orders = method.plan(state, at(0.1 + 8 / 100, 8))
    assert orders[0].kind == "train"
    assert method.plan(state, at(0.718, 9))[1][0].kind == "trial"


@pytest.mark.parametrize(
    ("up", "down", "tunes"), [(30, 14, True), (12, 8, False), (4, 0, True), (1, 0, False)]
)
def test_fine_tuning_by_who_alone_is_right(up, down, tunes):
    method, state = after_race(changes="none")
    state, _ = checked(method, state, 0, 0.5, 10)
    state, orders = plan_at(method, state, 0.75)
    assert orders[0].kind == "trial"
    assert orders[0].meta["lr"] == pytest.approx(0.005)
    state = method.merge(state, orders, [as_it_was(order) for order in orders[1:]], at(0.75))
    state, orders = plan_at(method, state, 0.78)
    assert orders[0].kind == "compare"
    assert [order.client for order in orders] == [1, 2, 3]  # those who tried
    reply = Reply(1, weight=9, meta={"up": up, "down": down, "samples": 100})
    state = method.merge(state, orders, [reply], at(0.78))
    assert state.meta["tune"] is tunes
    state, _ = plan_at(method, state, 0.79)
    assert state.meta["until"] == (900.0 if tunes else 1000.0)
    tune = Tune(method.options)
    planned = tune.plan(tune.init(Setup(TASK, CLIENTS), state), at(0.0))
    assert (planned is not None) is tunes


def test_fine_tuning_takes_a_tenth_of_what_was_used():
    tune = Tune(AutoOptions())
    half = State({}, {"stopped": True, "budget": 1000.0})
    assert tune._most(half, 550.0) == pytest.approx(50.0)
    assert tune._most(half, 20.0) == 20.0
    assert tune._most(State({}, {"stopped": False, "budget": 1000.0}), 120.0) == 120.0


def test_nobody_s_word_asks_again():
    method, state = after_race()
    state, orders = method.plan(state, at(0.1))
    silent = [
        Reply(
            0, weight=0, meta={"plain": 0, "changed": [0, 0, 0], "up": 0, "down": 0, "samples": 0}
        )
    ]
    assert method.merge(state, orders, silent, at(0.1)) == state
    assert method.merge(state, orders, [], at(0.1)) == state


def test_cooling_is_half_a_cosine():
    assert cooled(0.1, 100, 100, 200) == 0.1
    assert cooled(0.1, 100, 150, 200) == pytest.approx(0.05)
    assert cooled(0.1, 100, 125, 200) == pytest.approx(0.1 * (2 + 2**0.5) / 4)
    assert cooled(0.1, 100, 300, 200) == pytest.approx(0.001)
    assert cooled(0.1, 100, 100, 100) == pytest.approx(0.001)


@pytest.mark.parametrize(("schedule", "rate"), [("cosine", 0.025), ("constant", 0.05)])
def test_a_constant_schedule_does_not_cool(schedule, rate):
    method, state = after_race(changes="none", tune="never", schedule=schedule)
    state, _ = checked(method, state, 0, 0.5, 10)
    state, _ = plan_at(method, state, 0.8)
    _, orders = plan_at(method, state, 0.9)
    assert orders[0].meta["whole"]
    assert orders[0].meta["lr"] == pytest.approx(rate)


# Clients


def client_side(**options):
    toy = Toy.of("auto", {"sizes": [1.0], "changes": "none", **options}, 12)
    method = toy.stages[0].method
    assert isinstance(method, AutoClient)
    return toy, method


def test_a_client_s_scores_have_its_prior():
    toy, method = client_side()
    data = toy.data[0].train
    state = method.init(Setup(toy.task, 3), None)
    with_prior = network_with_prior(
        toy.task, method.options, "1", weights_of_size("1", state.tensors), data
    )
    x = data.x[:3]
    with_scores = with_prior.eval()(x).detach()
    without = AutoOptions(**{**toy.task.options, "prior": "off"})
    plain = (
        network_with_prior(toy.task, without, "1", weights_of_size("1", state.tensors), data)
        .eval()(x)
        .detach()
    )
    counts = torch.bincount(data.y, minlength=len(toy.task.labels)) + 0.5
    torch.testing.assert_close(
        with_scores - plain, (counts / counts.sum()).log().expand(3, -1).float()
    )


def test_cheating_sums_are_refused():
    _, method = client_side()
    judge = Order(0, "judge", {}, {"sizes": ["0.5", "1"]})
    sums = {"nll": [1.0], "correct": [1, 1], "samples": 3}
    assert "a different number of networks" in method.check_reply(judge, Reply(0, meta=sums), 10)
    many = {"nll": [1.0, 1.0], "correct": [1, 1], "samples": 11}
    assert "scored 11 samples" in method.check_reply(judge, Reply(0, meta=many), 10)
    fewer_than_none = {"nll": [1.0, 1.0], "correct": [1, 1], "samples": -1}
    assert "scored -1 samples" in method.check_reply(judge, Reply(0, meta=fewer_than_none), 10)
    honest = {"nll": [1.0, 1.0], "correct": [1, 1], "samples": 3}
    assert method.check_reply(judge, Reply(0, meta=honest), 10) is None


@pytest.mark.parametrize(
    ("kind", "sums"),
    [
        ("judge", {"nll": [1.0, 1.0], "correct": [1, 4], "samples": 3}),
        ("judge", {"nll": [1.0, 1.0], "correct": [-1, 1], "samples": 3}),
        ("judge", {"nll": [1.0, -1e9], "correct": [1, 1], "samples": 3}),
        ("invariance", {"plain": 4, "changed": [1], "up": 1, "down": 1, "samples": 3}),
        ("invariance", {"plain": 1, "changed": [4], "up": 1, "down": 1, "samples": 3}),
        ("compare", {"up": 4, "down": 0, "samples": 3}),
        ("compare", {"up": 2, "down": 2, "samples": 3}),
        ("compare", {"up": 3, "down": -1, "samples": 3}),
        ("train", {"loss": 1.0, "nll": 1.0, "correct": 4, "samples": 3}),
    ],
)
def test_counts_that_cannot_be_are_refused(kind, sums):
    _, method = client_side()
    order = Order(0, kind, {}, {"sizes": ["0.5", "1"], "changes": ["flip"]})
    assert method.check_reply(order, Reply(0, meta=sums), 10) is not None


def test_the_trial_asks_everybody():
    """Others take part by turns, if only a share of the clients works in a round."""
    method, state = after_race(changes="none")
    half = replace(at(0.7), participation=0.5)
    _, orders = method.plan(
        with_meta(state, phase="train", spent=600.0, asked=["train", "1"]), half
    )
    assert orders[0].kind == "trial"
    assert [order.client for order in orders] == list(range(CLIENTS))


def test_sums_that_are_no_numbers_are_refused():
    _, method = client_side()
    order = Order(0, "train")
    expected = Expected(order, method.fields["train"])

    def refused(**sums):
        meta = {"loss": 1.0, "nll": 2.0, "correct": 1, "samples": 3, **sums}
        return refuse(posted(Reply(0, weight=3, meta=meta)), order, expected, 10)

    assert refused() is None
    assert "its nll" in refused(nll="many")
    assert "its correct" in refused(correct=1.5)
    assert "its samples" in refused(samples=None)


def test_too_few_rounds_are_refused_before_training():
    with pytest.raises(
        FedloomError, match=r"--rounds must be at least 17 for auto with 4 sizes.*got 16"
    ):
        Auto(AutoOptions()).check_rounds(16)
    Auto(AutoOptions()).check_rounds(17)
    Auto(AutoOptions()).check_rounds(None)


def test_sizes_that_are_the_same_network_race_once():
    """Of the small CNN's 16, 32 and 64 channels 0.023 leave one each, and 0.03 leave 1, 1 and 2."""
    assert sizes_within(TASK, AutoOptions(sizes=[0.01, 0.02, 0.023, 1.0])) == ["0.01", "1"]
    assert sizes_within(TASK, AutoOptions(sizes=[0.023, 0.03])) == ["0.023", "0.03"]


def test_decisions_about_numbers_count_squared_errors():
    numbers = replace(TASK, kind="regression", shape=(4,), labels=("cost",), mean=(), std=())
    method = Auto(AutoOptions(sizes=[0.5, 1.0], network="mlp"))
    state = method.init(Setup(numbers, CLIENTS), None)
    state, _ = raced(method, state, 0.05)
    state, orders = method.plan(state, at(0.05))
    replies = [judgement(order, [9.0, 8.0]) for order in orders]
    state = method.merge(state, orders, replies, at(0.05))
    assert state.meta["decisions"][0]["counts"] == {
        "0.5": {"squared error": 36.0, "samples": 80, "expected squared error": 0.45},
        "1": {"squared error": 32.0, "samples": 80, "expected squared error": 0.4},
    }
