"""auto-tiers: random widths, BN statistics for each width, and one width per tier at the end."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from fedloom.config.models import TiersConfig
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Declined
from fedloom.learning.judging import held_back, validation_sums
from fedloom.learning.width_costs import NestedNetwork, cost_of, widths_of_tiers
from fedloom.methods.auto_tiers import AutoTiers, AutoTiersOptions, tiers_of
from fedloom.rng import rng
from fedloom.runs.tiers import deal_of
from fedloom.stages.phases import with_meta
from fedloom.testing import Toy
from fedloom.testing.watch import ServerLog
from fedloom.types import Order, Reply, Round, Setup, Task

TASK = Task("auto-tiers", {}, "image", (1, 8, 8), ("a", "b", "c"), 0, (0.5,), (0.3,))
WIDTHS = [0.5, 0.7, 1.0]
CLIENTS = 6
BN = "net.features.1.running_mean"  # of the first BN


def at(progress, number=1, seed=0, participation=1.0):
    return Round(number, progress * 1000.0, 1000.0, range(CLIENTS), participation, seed)


def plan_at(method, state, progress):
    """The plan of a round before which another one cost a thousandth of the budget."""
    return method.plan(with_meta(state, spent=1000 * progress - 1), at(progress))


def made(**options):
    settled = AutoTiersOptions(**options)
    task = replace(TASK, options=settled.model_dump())
    method = AutoTiers(settled)
    deal = deal_of(TiersConfig(), tiers_of(task), CLIENTS, seed=0)
    return method, method.init(Setup(task, CLIENTS, tiers=deal), None)


def training(**options):
    """With nothing to be decided before training."""
    return made(changes="none", **options)


def drawn(method, state, r):
    _, orders = method.plan(state, r)
    return {order.client: order.meta["width"] for order in orders}


def filled(order, value, weight=10, **meta):
    """A reply whose tensors hold this one value."""
    tensors = {name: torch.full_like(tensor, value) for name, tensor in order.tensors.items()}
    return Reply(
        order.client, tensors, weight, {"loss": 1.0, "nll": 0.0, "correct": 0, "samples": 0, **meta}
    )


def as_it_was(order, **meta):
    return replace(filled(order, 0, **meta), tensors=order.tensors)


# Which width a client trains


def test_a_width_is_drawn_for_every_client_and_round():
    method, state = training()
    for number in range(5):
        places = rng(0, number, "widths").integers(3, size=CLIENTS)
        by_hand = {client: WIDTHS[place] for client, place in enumerate(places)}
        assert drawn(method, state, at(0.0, number)) == by_hand


def test_draws_are_repeated_by_the_seed_and_by_nothing_else():
    method, state = training()
    rounds = [drawn(method, state, at(0.0, number)) for number in range(10)]
    assert rounds == [drawn(method, state, at(0.0, number)) for number in range(10)]
    assert rounds != [drawn(method, state, at(0.0, number, seed=1)) for number in range(10)]
    assert rounds[0] != rounds[1]


def test_every_client_trains_every_width_whatever_its_tier():
    method, state = training()
    assert len(set(state.meta["tier_of"])) == 3
    seen = {client: [] for client in range(CLIENTS)}
    for number in range(300):
        for client, width in drawn(method, state, at(0.0, number)).items():
            seen[client].append(width)
    for widths in seen.values():
        for width in WIDTHS:
            assert 70 <= widths.count(width) <= 130  # 100, give or take four standard deviations


def test_part_of_the_clients_is_drawn_from_too():
    method, state = training()
    widths = drawn(method, state, at(0.0, participation=0.5))
    assert len(widths) == 3
    places = rng(0, 1, "widths").integers(3, size=3)
    assert list(widths.values()) == [WIDTHS[place] for place in places]


def test_cooling_draws_too():
    method, state = training(stop="never")
    cooling = replace(state, meta={**state.meta, "phase": "cool", "began": 750.0, "until": 1000.0})
    seen = set()
    for number in range(10):
        seen |= set(drawn(method, cooling, at(0.8, number)).values())
    assert seen == set(WIDTHS)


def test_an_order_brings_its_width_and_the_statistics_of_that_alone():
    method, state = training()
    _, orders = method.plan(state, at(0.0))
    whole = state.tensors["net.features.0.weight"].shape[0]
    for order in orders:
        width = order.meta["width"]
        channels = round(whole * width)
        assert order.kind == "train"
        assert order.tensors["net.features.0.weight"].shape[0] == channels
        assert order.tensors[f"statistics/{width:g}/{BN}"].shape == (channels,)
        others = [other for other in WIDTHS if other != width]
        for other in others:
            assert f"statistics/{other:g}/{BN}" not in order.tensors
        if width == 1.0:
            assert order.region is None
        else:
            assert order.region["net.features.0.weight"][0] == tuple(range(channels))


# The mean


def merged_values():
    """A round in which client c fills its tensors with c + 1, and has 10 (c + 1) samples."""
    method, state = training()
    state, orders = method.plan(state, at(0.0))
    replies = [filled(order, order.client + 1, 10 * (order.client + 1)) for order in orders]
    return orders, state, method.merge(state, orders, replies, at(0.0))


def mean_of(clients):
    total = 0
    weights = 0
    for client in clients:
        weight = 10 * (client + 1)
        weights += weight
        total += weight * (client + 1)
    return total / weights


def test_every_weight_is_the_mean_of_those_who_hold_it():
    orders, _, after = merged_values()
    width_of = {order.client: order.meta["width"] for order in orders}
    assert set(width_of.values()) == set(WIDTHS)
    weight = after.tensors["net.features.0.weight"]
    edges = [0, *(round(len(weight) * width) for width in WIDTHS)]
    for place, width in enumerate(WIDTHS):
        holders = [client for client in width_of if width_of[client] >= width]
        channels = weight[edges[place] : edges[place + 1]]
        torch.testing.assert_close(channels, torch.full_like(channels, mean_of(holders)))


def test_statistics_are_kept_a_width_each():
    orders, _, after = merged_values()
    for width in WIDTHS:
        clients = [order.client for order in orders if order.meta["width"] == width]
        mean = after.tensors[f"statistics/{width:g}/{BN}"]
        torch.testing.assert_close(mean, torch.full_like(mean, mean_of(clients)))
        served = AutoTiers(AutoTiersOptions()).evaluation(after, 0, width)
        assert torch.equal(served.tensors[f"statistics/{width:g}/{BN}"], mean)


def test_what_nobody_trained_stays():
    method, state = training()
    state, orders = method.plan(state, at(0.0))
    replies = [filled(order, 7.0) for order in orders if order.meta["width"] == 0.5]
    after = method.merge(state, orders, replies, at(0.0))
    for width in (0.7, 1.0):
        name = f"statistics/{width:g}/{BN}"
        assert torch.equal(after.tensors[name], state.tensors[name])
    name = "net.features.0.weight"
    half = len(state.tensors[name]) // 2
    assert (after.tensors[name][:half] == 7).all()
    assert torch.equal(after.tensors[name][half:], state.tensors[name][half:])


# Augmentation, the end of training, cooling: as in auto


def test_changes_are_tried_on_the_widest_network_after_a_quarter_of_the_budget():
    method, state = made()
    state, orders = method.plan(state, at(0.0))
    state = method.merge(state, orders, [as_it_was(order) for order in orders], at(0.0))
    state, orders = method.plan(state, at(0.249))
    assert {order.kind for order in orders} == {"train"}
    assert {order.meta["augment"] for order in orders} == {"none"}
    assert not any(order.meta["validate"] for order in orders)
    state, orders = method.plan(state, at(0.25))
    assert {order.kind for order in orders} == {"invariance"}
    assert {order.meta["width"] for order in orders} == {1.0}
    assert orders[0].meta["changes"] == ["flip", "crop:1", "rotate:10"]
    assert f"statistics/1/{BN}" in orders[0].tensors
    meta = {"plain": 100, "changed": [95, 94, 100], "up": 60, "down": 10, "samples": 120}
    state = method.merge(state, orders, [Reply(0, weight=9, meta=meta)], at(0.25))
    assert state.meta["decisions"] == [
        {
            "decision": "augmentation",
            "options": ["flip", "crop:1", "rotate:10"],
            "counts": {
                "plain": 100,
                "flip": 95,
                "crop:1": 94,
                "rotate:10": 100,
                "only the network": 60,
                "only the most common class": 10,
                "samples": 120,
            },
            "chosen": "flip+rotate:10",
        }
    ]
    _, orders = method.plan(state, at(0.27))
    assert {(order.kind, order.meta["augment"]) for order in orders} == {
        ("train", "flip+rotate:10")
    }


@pytest.mark.parametrize("options", [{"changes": "none"}, {"augment": "flip"}])
def test_nothing_is_asked_where_changes_are_settled(options):
    method, state = made(**options)
    _, orders = method.plan(state, at(0.5))
    assert orders[0].kind == "train"
    assert orders[0].meta["augment"] == options.get("augment", "none")


def checked(method, state, number, nll):
    """A round of training in which every client judges what it got, if it is asked to."""
    r = at(0.2 + number / 1000, number)
    state, orders = method.plan(state, r)
    meta = {"nll": nll * 20, "correct": 10, "samples": 20} if orders[0].meta["validate"] else {}
    return method.merge(state, orders, [as_it_was(order, **meta) for order in orders], r), orders


def test_validation_figures_come_every_third_round():
    method, state = training()
    asked = []
    for number in range(7):
        state, orders = checked(method, state, number, 0.5)
        asked.append(orders[0].meta["validate"])
        assert not orders[0].meta["whole"]
        assert orders[0].meta["lr"] == 0.05
    assert asked == [True, False, False, True, False, False, True]
    assert state.meta["checks"] == [[0.5, 0.5]] * 3


def judgement(order, nll, correct, samples):
    return Reply(order.client, weight=10, meta={"nll": nll, "correct": correct, "samples": samples})


def after_judging(method, state, progress):
    state, orders = plan_at(method, state, progress)
    assert {order.kind for order in orders} == {"judge"}
    replies = [judgement(order, [3.0, 2.0, 1.0], [4, 5, 6], 8) for order in orders]
    return method.merge(state, orders, replies, at(progress)), orders


def test_a_plateau_ends_training_early_and_cooling_takes_a_quarter_of_it():
    method, state = training(window=2, check_every=1)
    for number in range(4):
        state, _ = checked(method, state, number, 0.5)
    state, _ = after_judging(method, state, 0.4)
    assert state.meta["decisions"][0]["chosen"] == "plateau"
    state, orders = plan_at(method, state, 0.4)
    assert orders[0].meta["whole"]  # cooling has all samples
    assert orders[0].meta["lr"] == 0.05
    assert state.meta["until"] == pytest.approx(500.0)
    _, orders = plan_at(method, state, 0.45)
    assert orders[0].meta["lr"] == pytest.approx(0.025)
    assert plan_at(method, state, 0.5) is None


def test_without_a_plateau_training_has_three_quarters():
    method, state = training(window=2, check_every=1)
    for number in range(4):
        state, _ = checked(method, state, number, 0.5 - number / 10)
    _, orders = plan_at(method, state, 0.74)
    assert orders[0].kind == "train" and not orders[0].meta["whole"]
    state, _ = after_judging(method, state, 0.75)
    assert state.meta["decisions"][0]["chosen"] == "budget"
    state, orders = plan_at(method, state, 0.75)
    assert orders[0].meta["whole"]
    assert state.meta["until"] == 1000.0


def test_never_stop_is_never():
    method, state = training(window=1, check_every=1, stop="never")
    for number in range(9):
        state, orders = checked(method, state, number, 0.5)
    assert not orders[0].meta["whole"]


# The size of a tier


def test_all_widths_are_judged_by_everybody_before_held_back_samples_are_trained_on():
    method, state = training()
    state, orders = after_judging(method, state, 0.75)
    for order in orders:
        assert order.meta == {"width": 1.0, "widths": WIDTHS}
        for width in WIDTHS:
            assert f"statistics/{width:g}/{BN}" in order.tensors
    assert state.meta["decisions"][-1] == {
        "decision": "size per tier",
        "options": ["0.5", "0.7", "1"],
        "counts": {
            "0.5": {"nll": 18.0, "correct": 24, "samples": 48},
            "0.7": {"nll": 12.0, "correct": 30, "samples": 48},
            "1": {"nll": 6.0, "correct": 36, "samples": 48},
        },
        "chosen": "tier 1: 0.5, tier 2: 0.7, tier 3: 1",
    }
    assert [taken.decision for taken in method.sections(state).decisions] == [
        "stop",
        "size per tier",
    ]


def test_a_client_is_served_what_its_tier_can_hold():
    method, state = training()
    tier_of = state.meta["tier_of"]
    for client in range(CLIENTS):
        assert method.serve(state, client).meta["width"] == WIDTHS[tier_of[client] - 1]
    result = method.sections(state)
    assert [tier.width for tier in result.tiers] == WIDTHS
    assert result.tier_of == tuple(tier_of)
    assert method.models(state) == ("tier-1", "tier-2", "tier-3")


def test_nobody_s_word_asks_again():
    method, state = training()
    state, orders = method.plan(state, at(0.75))
    assert orders[0].kind == "judge"
    silent = [replace(judgement(orders[0], [1.0] * 3, [1] * 3, 8), weight=0)]
    assert method.merge(state, orders, silent, at(0.75)) == state
    assert method.merge(state, orders, [], at(0.75)) == state


# Which widths there are


def asked(tiers=None, **options):
    settled = AutoTiersOptions(**options)
    task = replace(
        TASK, shape=(3, 32, 32), mean=(0.0,) * 3, std=(1.0,) * 3, options=settled.model_dump()
    )
    plan = NestedNetwork.of(task, settled)
    deal = deal_of(TiersConfig(**(tiers or {})), tiers_of(task), 8, seed=0)
    return plan, widths_of_tiers(plan, settled, deal.tiers)


def test_half_seven_tenths_and_the_whole_where_nobody_asks_for_any():
    assert asked()[1] == [0.5, 0.7, 1.0]
    assert asked(network="resnet18")[1] == [0.5, 0.7, 1.0]


def test_widths_may_be_named_in_any_order():
    assert AutoTiersOptions(widths="1,.7,.5").widths == [0.5, 0.7, 1.0]
    assert AutoTiersOptions(widths="1/.25").widths == [0.25, 1.0]
    for bad in ("0,1", "2", "", "wide"):
        with pytest.raises(ValidationError, match="widths"):
            AutoTiersOptions(widths=bad)


def test_limits_are_met_by_the_widest_that_fits():
    plan, _ = asked()
    amount = cost_of(plan, 7 / 16).cost.macs
    assert asked({"limits": f"{amount},max", "cost": "macs"})[1] == [7 / 16, 1.0]


def test_too_few_rounds_are_refused_before_training():
    method, _ = made()
    with pytest.raises(FedloomError, match=r"--rounds must be at least 8 for auto-tiers.*got 7"):
        method.check_rounds(7)
    method.check_rounds(8)
    method.check_rounds(None)


# Clients


@pytest.fixture(scope="module")
def toy():
    return Toy.of("auto-tiers", {"widths": WIDTHS, "changes": "none", "width": 0.5}, 12)


def begun(toy):
    method = toy.stages[0].method
    return method, method.init(Setup(toy.task, len(toy.data), tiers=toy.tiers), None)


def client_run(toy, **more):
    return ClientRun(toy.task, "train", 1, 0, 0, "cpu", lambda: b"", **more)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_client_s_scores_have_its_prior(toy, width):
    method, state = begun(toy)
    data = toy.data[0].train
    order = method.evaluation(state, 0, width)
    x = data.x[:3]
    with_prior = method.network(order, data, None, client_run(toy)).eval()(x).detach().clone()
    without = AutoTiers(method.options.model_copy(update={"prior": "off"}))
    plain = without.network(order, data, None, client_run(toy)).eval()(x).detach()
    counts = torch.bincount(data.y, minlength=len(toy.task.labels)) + 0.5
    torch.testing.assert_close(
        with_prior - plain, (counts / counts.sum()).log().expand(3, -1).float()
    )


def test_a_client_replies_its_width_and_no_other(toy):
    method, state = begun(toy)
    state, orders = method.plan(state, at(0.0))
    for order in orders:
        data = toy.data[0].train
        reply, own = method.client(order, data, None, client_run(toy))
        assert own is None
        assert reply.tensors.keys() == order.tensors.keys()
        for name, tensor in reply.tensors.items():
            assert tensor.shape == order.tensors[name].shape
        moved = [
            name
            for name in order.tensors
            if not torch.equal(reply.tensors[name], order.tensors[name])
        ]
        assert f"statistics/{order.meta['width']:g}/{BN}" in moved
        assert reply.weight == len(held_back(data, method.options.held_back).train)


def test_a_client_judges_every_width_as_it_would_answer_with_it(toy):
    method, state = begun(toy)
    state, orders = method.plan(state, at(0.0))
    replies = [
        method.client(order, toy.data[0].train, None, client_run(toy))[0] for order in orders
    ]
    state = method.merge(state, orders, replies, at(0.0))
    _, orders = method.plan(state, at(0.75))
    data = toy.data[1].train
    reply, _ = method.client(orders[0], data, None, client_run(toy))
    validation = held_back(data, method.options.held_back).validation
    assert reply.meta["samples"] == len(validation)
    for place, width in enumerate(WIDTHS):
        served = method.evaluation(state, 1, width)
        sums = validation_sums(
            method.network(served, data, None, client_run(toy)), validation, "cpu"
        )
        assert (reply.meta["nll"][place], reply.meta["correct"][place]) == (sums.nll, sums.correct)
    assert not reply.tensors


def test_a_device_that_cannot_hold_a_width_declines(toy):
    method, state = begun(toy)
    plan = NestedNetwork.of(toy.task, method.options)
    order = method.evaluation(state, 0, 1.0)
    limit = {"macs": cost_of(plan, 0.7).cost.macs}
    order = replace(order, kind="judge", meta={"width": 1.0, "widths": WIDTHS, "limit": limit})
    with pytest.raises(Declined, match="width 1 exceeds the device's limit of macs"):
        method.client(order, toy.data[0].train, None, client_run(toy))


def test_cheating_sums_are_refused():
    method, _ = made()
    judge = Order(0, "judge", {}, {"width": 1.0, "widths": [0.5, 1.0]})
    sums = {"nll": [1.0], "correct": [1, 1], "samples": 3}
    assert "a different number of networks" in method.check_reply(judge, Reply(0, meta=sums), 10)
    many = {"nll": [1.0, 1.0], "correct": [1, 1], "samples": 11}
    assert "scored 11 samples" in method.check_reply(judge, Reply(0, meta=many), 10)
    honest = {"nll": [1.0, 1.0], "correct": [1, 1], "samples": 3}
    assert method.check_reply(judge, Reply(0, meta=honest), 10) is None


def states_in_training(method, options):
    """Of a toy federation, before every round until cooling, by the network's own names."""
    log = ServerLog()
    Toy.of(method, {"changes": "none", "epochs": 2, **options}, rounds=12).run_apart(
        server=log.watch
    )
    states = []
    for merge in log.merges:
        if merge.state.meta.get("phase") == "train":
            tensors = {}
            for name, tensor in merge.state.tensors.items():
                tensors[name.removeprefix("statistics/1/").removeprefix("1/")] = tensor
            states.append((tensors, merge.state.meta["checks"]))
    return states


def test_with_one_width_it_trains_as_auto_does():
    """Bit for bit: the prior in the loss, the mean, BN's statistics and the validation figures."""
    auto = states_in_training("auto", {"sizes": [1.0], "tune": "never"})
    ours = states_in_training("auto-tiers", {"widths": [1.0]})
    assert len(auto) == len(ours) == 9
    for (auto_tensors, auto_checks), (tensors, checks) in zip(auto, ours, strict=True):
        assert tensors.keys() == auto_tensors.keys()
        assert [
            name for name in tensors if not torch.equal(tensors[name], auto_tensors[name])
        ] == []
        assert checks == auto_checks
    assert len(ours[-1][1]) == 3
