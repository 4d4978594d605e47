"""SPIDER against its paper: Algorithms 1 and 2, Eq. 4, appendix C."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.learning.private_state import momentum_in, weights_in
from fedloom.learning.training import train, weights_of
from fedloom.methods.spider import Spider, stages
from fedloom.methods.spider_options import SpiderOptions
from fedloom.methods.spider_private import PrivateModel
from fedloom.runs.configure import resolve_options
from fedloom.spaces import space_for
from fedloom.spaces.cells import chosen as cells
from fedloom.spaces.mixed import supernet_model
from fedloom.testing import Toy
from fedloom.types import ALPHA, Arch, Order, Reply, Round, Setup, State, Task

TINY = {"cells": 3, "nodes": 2, "channels": 2, "batch": 8}
EXACT = {**TINY, "batch": 10_000, "bn": "frozen", "clip": 1e9, "momentum": 0.0, "weight_decay": 0.0}


def task(**options) -> Task:
    fields = SpiderOptions.fields_beside(options)  # not every space has nodes
    tiny = {name: value for name, value in TINY.items() if name in fields}
    return Task(
        "spider", {**tiny, **options}, "image", (1, 4, 4), ("a", "b", "c"), 7, (0.0,), (1.0,)
    )


def run_of(t: Task, client: int = 0, number: int = 1) -> ClientRun:
    return ClientRun(t, "train", number, 0, client, "cpu", lambda: b"")


def samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 4, 4, generator=generator)
    return Samples(x, torch.randint(0, 3, (count,), generator=generator))


def started(**options) -> tuple[Task, Spider, State]:
    t = task(**options)
    method = Spider(SpiderOptions(**t.options))
    return t, method, method.init(Setup(t, 3), None)


def order_of(state: State, due: int = 0, lr: float = 0.1) -> Order:
    return Order(0, "train", state.tensors, {"lr": lr, "due": due})


def moved(state: State, by: float = 0.3) -> State:
    """Another w, as a federation would make it."""
    generator = torch.Generator().manual_seed(5)
    noise = {
        n: by * torch.randn(t.shape, generator=generator)
        for n, t in state.tensors.items()
        if "running" not in n
    }
    tensors = dict(state.tensors)
    for name, tensor in state.tensors.items():
        if tensor.is_floating_point() and name in noise:
            tensors[name] = tensor + noise[name]
    return State(tensors)


def encoded(reply: Reply) -> bytes:
    return b"".join(reply_chunks(reply))


def same(one, other) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


# Algorithm 1


@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_line_18_one_full_batch_step(lam):
    """v − η(∇F(v, A) + λ(v − w)), by hand; w moves by its own gradient alone."""
    t, method, state = started(**EXACT, lam=lam)
    data = samples(12)
    w = moved(state)
    reply, own = method.client(order_of(w), data, None, run_of(t))
    part = data.split(0.75)[0]
    for start, trained, pull in (
        (w.tensors, reply.tensors, 0.0),
        (state.tensors, own.tensors, lam),
    ):
        net = supernet_model(t, method.options, weights=start).eval()
        gradients = torch.autograd.grad(
            functional.cross_entropy(net(part.x), part.y), list(net.parameters())
        )
        for (name, p), gradient in zip(net.named_parameters(), gradients, strict=True):
            by_hand = p - 0.1 * (gradient + pull * (p - w.tensors[name]))
            torch.testing.assert_close(trained[name], by_hand.detach(), atol=1e-6, rtol=1e-5)


def test_the_pull_is_to_what_was_received_and_stays_there_all_round():
    """After many steps with a strong pull and a negligible loss, v is at the received w."""
    t, method, state = started(**{**EXACT, "batch": 2, "epochs": 20}, lam=5.0, lr=0.1)
    w = moved(state)
    blind = Samples(torch.zeros(8, 1, 4, 4), torch.zeros(8, dtype=torch.long))
    _, own = method.client(order_of(w), blind, None, run_of(t))
    name = "net.cells.0.edges.0.sep_conv_3x3.point1.weight"
    assert (
        (own.tensors[name] - w.tensors[name]).abs().max()
        < 1e-3
        < (state.tensors[name] - w.tensors[name]).abs().max()
    )


def test_with_lam_0_the_federation_leaves_v_alone():
    t, method, state = started(lam=0)
    data = samples(16)
    one = None
    two = None
    for number, w in enumerate((state, moved(state), moved(state, 2.0)), start=1):
        _, one = method.client(order_of(w, number - 1), data, one, run_of(t, number=number))
        _, two = method.client(order_of(state, number - 1), data, two, run_of(t, number=number))
    assert same(one.tensors, two.tensors) and one.meta == two.meta


def test_with_lam_0_and_all_alive_v_is_plain_local_training_from_the_seed():
    t, method, state = started(lam=0, epochs=2)
    data = samples(16)
    own = None
    net = supernet_model(t, method.options)
    momentum = {}
    for number in (1, 2, 3):
        _, own = method.client(order_of(moved(state)), data, own, run_of(t, number=number))
        part = data.split(0.75)[0]
        alone = train(
            net,
            part,
            method.options,
            0.1,
            run_of(t, number=number).with_stream("own"),
            momentum=momentum,
        )
        momentum = alone.momentum
    assert same(weights_in(own), weights_of(net)) and same(momentum_in(own), momentum)


def test_w_is_fedavg_of_the_supernet_whatever_v_does():
    t, method, state = started()
    data = samples(16)
    reply, _ = method.client(order_of(state), data, None, run_of(t))
    net = supernet_model(t, method.options)
    train(net, data.split(0.75)[0], method.options, 0.1, run_of(t))
    assert same(reply.tensors, weights_of(net)) and reply.weight == 12


def test_lam_inf_copies_the_live_part_and_takes_the_clients_own_statistics():
    t, method, state = started(lam="inf")
    w = moved(state)
    data = samples(16)
    _, own = method.client(order_of(w, 3), data, None, run_of(t))
    names = {name for name in weights_in(own) if "running" not in name and "tracked" not in name}
    assert names < set(w.tensors) and all(
        torch.equal(own.tensors[name], w.tensors[name]) for name in names
    )
    bn = "net.stem.1.running_mean"
    net = supernet_model(t, method.options, weights=w.tensors)
    means = [
        net.net.stem[0](b.x).mean((0, 2, 3))
        for b in data.split(0.75)[0].batches(8, run_of(t).with_stream("own").rng("recalibrate"))
    ]
    torch.testing.assert_close(own.tensors[bn], torch.stack(means).mean(0).detach())


def test_the_clip_really_clips():
    ends = {}
    for clip in (1e-9, 5.0, 1e9):
        t, method, state = started(**{**EXACT, "clip": clip})
        reply, own = method.client(order_of(moved(state)), samples(12), None, run_of(t))
        ends[clip] = reply.tensors, own.tensors
    t, _, state = started(**EXACT)
    name = "net.classifier.weight"
    assert torch.allclose(ends[1e-9][0][name], moved(state).tensors[name], atol=1e-6)
    assert torch.allclose(ends[1e-9][1][name], state.tensors[name], atol=1e-6)
    assert not torch.allclose(ends[1e9][1][name], state.tensors[name], atol=1e-4)


def test_vs_momentum_is_kept_and_ws_is_not():
    t, method, state = started()
    _, own = method.client(order_of(state), samples(16), None, run_of(t))
    assert momentum_in(own)
    again, _ = method.client(order_of(state), samples(16), own, run_of(t))
    fresh, _ = method.client(order_of(state), samples(16), None, run_of(t))
    assert encoded(again) == encoded(fresh)


def test_a_server_optimizer_moves_w():
    _, method, state = started(server_optimizer="adam", server_lr=0.5, server_tau=1e-2)
    replies = [Reply(0, {key: tensor + 1 for key, tensor in state.tensors.items()}, 10)]
    merged = method.merge(state, [], replies, Round(1, 0, 4, range(1), 1.0, 7))
    step = 0.5 * 0.1 / ((0.99 * 1e-4 + 0.01) ** 0.5 + 1e-2)
    name = "net.classifier.weight"
    torch.testing.assert_close(
        merged.tensors[name], state.tensors[name] + step, rtol=1e-4, atol=1e-6
    )


# What stays at home


@pytest.mark.parametrize("ops", ["s2", "s4"])
@pytest.mark.parametrize("due", [0, 2, 6])
def test_another_v_and_another_architecture_leave_the_reply_as_it_is(due, ops):
    """Noise operations draw from torch's own generator, which the search uses too."""
    t, method, state = started(ops=ops)
    data = samples(16)
    run = run_of(t, number=3)
    owns = [None]
    for seed, before in ((1, 0), (2, 1), (3, 6)):
        owns.append(
            method.client(order_of(moved(state), before), samples(16, seed), None, run_of(t))[1]
        )
    not_numbers = dict(owns[1].tensors)
    for name, tensor in not_numbers.items():
        if tensor.is_floating_point():
            not_numbers[name] = torch.full_like(tensor, torch.nan)
    broken = State(
        not_numbers,
        owns[1].meta,
    )
    replies = set()
    for own in [*owns, broken]:
        torch.manual_seed(run.key("global"))  # as a site does
        replies.add(encoded(method.client(order_of(state, due), data, own, run)[0]))
    assert len({tuple(own.meta["arch"]["choice"][0]) for own in owns[1:]}) > 1 and len(replies) == 1


def test_a_v_that_diverged_goes_back_and_is_told_to_the_observer_alone():
    t, method, state = started()
    _, own = method.client(order_of(state), samples(16), None, run_of(t))
    broken = State({**own.tensors, "net.classifier.bias": torch.full((3,), torch.nan)}, own.meta)
    reply, after = method.client(order_of(state), samples(16), broken, run_of(t))
    assert set(reply.meta) == {"loss"} and math.isfinite(reply.meta["loss"])
    assert after.meta["diverged"] == 1 and method.observe(after, 1) == {
        "decisions": [],
        "diverged": 1,
    }
    assert torch.equal(after.tensors["net.stem.0.weight"], own.tensors["net.stem.0.weight"])


@pytest.mark.parametrize("searcher", ["perturbation", "milenas"])
def test_a_v_that_its_last_step_broke_goes_back_too(searcher):
    """Its losses were finite: it would be broken for good, and no round to come could mend it."""
    t, method, state = started(batch=10_000, searcher=searcher)
    _, own = method.client(order_of(state), samples(16), None, run_of(t))
    thrown = State(
        {**own.tensors, "momentum/net.classifier.bias": torch.full((3,), 3e38)}, own.meta
    )
    reply, after = method.client(order_of(state, lr=10.0), samples(16), thrown, run_of(t))
    assert math.isfinite(reply.meta["loss"]) and after.meta["diverged"] == 1
    assert same(weights_in(after), weights_in(own)) and not momentum_in(after)
    _, healed = method.client(order_of(state), samples(16), after, run_of(t))
    assert healed.meta["diverged"] == 1 and not same(weights_in(healed), weights_in(own))


# Algorithm 2


def test_one_edge_is_decided_in_both_cells_before_training_and_dead_operations_are_gone():
    t, method, state = started()
    _, own = method.client(order_of(state), samples(20), None, run_of(t))
    _, after = method.client(order_of(state, 1), samples(20), own, run_of(t, number=2))
    arch = Arch.from_plain(after.meta["arch"])
    decided = [slot for slot, live in enumerate(arch.choice) if len(live) == 1]
    assert len(decided) == 2 and decided[1] == decided[0] + 5
    assert [d["round"] for d in after.meta["decisions"]] == [2, 2]
    net = supernet_model(t, method.options)
    dead = {
        n
        for n in own.tensors
        if (who := net.net.owner(n.removeprefix("momentum/").removeprefix("net.")))
        and who.op not in arch.choice[who.slot]
    }
    assert dead and set(after.tensors) == set(own.tensors) - dead


def test_the_decision_is_the_one_of_a_plain_loop_over_the_validation_part():
    t, method, state = started(edges="single")
    data = samples(24)
    _, own = method.client(order_of(state), data, None, run_of(t))
    _, after = method.client(order_of(state, 1), data, own, run_of(t, number=2))
    (decision,) = after.meta["decisions"]
    space = space_for(method.options)
    validation = data.split(0.75)[1]
    slot = [s.name for s in space.slots].index(decision["slot"])
    hurt = {}
    for op, name in enumerate(space.slots[slot].options):
        net = supernet_model(t, method.options, weights=weights_in(own)).train()
        full = space.full()
        arch = Arch(full.space, (*full.choice[:slot], (1 - op,), *full.choice[slot + 1 :]))
        with torch.no_grad():
            answer = net(validation.x, arch)
        accuracy = float((answer.argmax(1) == validation.y).float().mean())
        loss = float(functional.cross_entropy(answer, validation.y))
        assert decision["without"][name] == {
            "accuracy": pytest.approx(accuracy),
            "loss": pytest.approx(loss),
        }
        hurt[name] = (accuracy, -loss)
    assert decision["kept"] == [min(hurt, key=hurt.get)]


def test_a_returning_client_decides_all_that_it_missed():
    t, method, state = started()
    _, own = method.client(order_of(state), samples(20), None, run_of(t))
    _, after = method.client(order_of(state, 4), samples(20), own, run_of(t, number=9))
    assert (
        len(after.meta["decisions"]) == 8
        and len(after.meta["open"]) == 1
        and not after.meta["pruned"]
    )
    _, late = method.client(
        order_of(state, 6), samples(20), None, run_of(t, number=9)
    )  # in phase 3 for the first time
    assert late.meta["open"] == [] and late.meta["pruned"]


def test_the_search_ends_with_one_operation_an_edge_and_two_inputs_a_node():
    t, method, state = started(nodes=3)
    own = None
    for number in range(1, 12):
        _, own = method.client(
            order_of(state, number - 1), samples(20), own, run_of(t, number=number)
        )
        live = Arch.from_plain(own.meta["arch"]).choice
        assert sum(len(ops) == 1 for ops in live) == 2 * min(number - 1, 9) - 6 * (number > 10)
    space = space_for(method.options)
    for kind in ("normal", "reduce"):
        for node in range(3):
            assert sum(len(live[slot]) for slot in space.slots_into(kind, node)) == 2
    net = method.network(order_of(state), samples(4), own, run_of(t))
    assert net.architecture == own.meta["arch"]
    assert set(net.state_dict()) == set(weights_in(own))


def test_without_pruning_every_edge_stays():
    t, method, state = started(prune_edges=False)
    assert method.options.events == 5
    _, own = method.client(order_of(state, 5), samples(20), None, run_of(t))
    assert all(len(live) == 1 for live in own.meta["arch"]["choice"])


LARGE = [pytest.param(ops, marks=pytest.mark.slow) for ops in ("full", "s1", "s5")]


@pytest.mark.parametrize("ops", ["s2", "s3", "s4", "nasbench201", *LARGE])
def test_removing_and_cutting_give_the_same_answers(ops):
    options = (
        {"space": "nasbench201", "cells": 1} if ops == "nasbench201" else {"ops": ops, "nodes": 4}
    )
    t, method, state = started(**options, lr=0.05)
    _, own = method.client(order_of(state, method.options.events), samples(16), None, run_of(t))
    mine = PrivateModel.of(own, method.options, t)
    supernet = supernet_model(t, method.options).eval()
    supernet.load_state_dict({**supernet.state_dict(), **mine.weights})
    x = samples(5, 9).x
    with torch.no_grad():
        torch.manual_seed(0)
        whole = supernet(x, mine.arch)
        torch.manual_seed(0)
        cut = method.network(order_of(state), samples(4), own, run_of(t)).eval()(x)
    torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-5)


def test_the_validation_part_joins_training_in_the_final_phase_only():
    t, method, state = started(lam=0)
    data = samples(16)
    other = Samples(torch.cat([data.x[:12], samples(4, 8).x]), data.y)
    for due, alike in ((0, True), (6, False)):
        replies = [
            method.client(order_of(state, due), part, None, run_of(t))[0] for part in (data, other)
        ]
        assert (encoded(replies[0]) == encoded(replies[1])) == alike
        assert replies[0].weight == (12 if due == 0 else 16)


def test_the_control_decides_by_chance_each_client_its_own():
    t, method, state = started(search="random")
    archs = []
    for client in range(4):
        _, own = method.client(order_of(state, 6), samples(20), None, run_of(t, client))
        for decision in own.meta["decisions"]:
            assert all(score["loss"] == 0 for score in decision["without"].values())
        archs.append(Arch.from_plain(own.meta["arch"]))
    assert len(set(archs)) > 1


# The schedule


def test_the_papers_schedule_is_the_default_in_proportion():
    o = SpiderOptions()
    assert o.events == 15
    decisions_due = [o.due(t + 1, t, 1000) for t in range(1000)]
    rounds_with_a_decision = []
    for before, after in pairwise(range(1000)):
        if decisions_due[after] > decisions_due[before]:
            rounds_with_a_decision.append(after)
    assert rounds_with_a_decision == list(range(40, 321, 20))
    _, method, state = started()
    rounds_of_phases = Counter()
    for t in range(1000):
        note = Spider(o).note(state, Round(t + 1, t, 1000, range(2), 1.0, 7))
        rounds_of_phases[note["phase"]] += 1
    shares = {name: rounds / 1000 for name, rounds in rounds_of_phases.items()}
    assert shares == method.phases
    for unit in (1e9, 37.0):  # whatever the budget is counted in
        for t in range(0, 1000, 7):
            assert o.due(1, 0.001 * t * unit, unit) == decisions_due[t]


def test_explicit_values_are_rounds():
    o = SpiderOptions(t_s=3, tau=2)
    due = [o.due(t + 1, 1e6 * t, 1e9) for t in range(40)]
    assert [t for t in range(1, 40) if due[t] > due[t - 1]] == list(range(4, 33, 2))


def test_phases_and_orders_follow_the_schedule():
    _, method, state = started(t_s=1, tau=1)
    rounds = [Round(n, n - 1, 8, range(2), 1.0, 7) for n in range(1, 9)]
    assert [method.note(state, r)["phase"] for r in rounds] == [
        "warm-up",
        *["search"] * 5,
        "final",
        "final",
    ]
    assert [method.plan(state, r)[1][0].meta["due"] for r in rounds] == [0, 1, 2, 3, 4, 5, 6, 6]


@pytest.mark.parametrize(
    ("options", "rounds", "least"),
    [
        ({}, 1, "2 rounds"),
        ({"edges": "single", "pace": "paper"}, 2, "3 rounds"),
        ({"t_s": 30, "tau": 20}, 320, "321 rounds"),
        ({"tau": 1}, 15, "16 rounds"),
        ({"edges": "single", "nodes": 7, "pace": "paper"}, 50, "set t_s and tau"),
        ({"t_s": 20_000, "tau": 1}, 50, "before that; lower t_s and tau"),
        ({"searcher": "milenas"}, 1, "2 rounds.$"),
    ],
)
def test_a_schedule_without_a_final_phase_is_refused_and_the_rounds_it_needs_are_named(
    options, rounds, least
):
    method = Spider(SpiderOptions(**options))
    with pytest.raises(FedloomError, match=f"final phase.*{least}"):
        method.check_rounds(rounds)
    if least[0].isdigit():
        method.check_rounds(int(least.split()[0]))


def test_it_is_refused_before_anything_is_made(tmp_path):
    toy = Toy.of("spider", {"t_s": 5, "tau": 1}, rounds=4)
    with pytest.raises(FedloomError, match="at least 11 rounds"):
        toy.run(tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_schedule_in_rounds_needs_both_where_the_budget_is_not():
    Spider(SpiderOptions(t_s=1, tau=1)).check_rounds(None)
    Spider(SpiderOptions()).check_rounds(None)
    with pytest.raises(FedloomError, match="t_s and tau must both be given"):
        Spider(SpiderOptions(tau=1)).check_rounds(None)


# Appendix C


def test_milenas_moves_alpha_by_both_gradients_and_v_by_eq_4():
    t, method, state = started(**EXACT, searcher="milenas", lam=0.5, alpha_lr=0.5, alpha_lam=0.3)
    data = samples(16)
    w = moved(state)
    own = PrivateModel.of(None, method.options, t).state()
    _, after = method.client(order_of(w), data, own, run_of(t))
    part, validation = data.split(0.75)
    net = method.network(order_of(w), data, own, run_of(t)).eval()
    alpha = [row.requires_grad_() for row in net.alpha.values()]
    loss = functional.cross_entropy(net(part.x), part.y)
    of_train = torch.autograd.grad(loss, [*alpha, *net.model.parameters()])
    of_check = torch.autograd.grad(functional.cross_entropy(net(validation.x), validation.y), alpha)
    for (name, row), one, two in zip(net.alpha.items(), of_train, of_check, strict=False):
        torch.testing.assert_close(
            after.tensors[ALPHA + name], (row - 0.5 * (one + 0.3 * two)).detach()
        )
    for (name, p), gradient in zip(
        net.model.named_parameters(), of_train[len(alpha) :], strict=True
    ):
        by_hand = p - 0.1 * (gradient + 0.5 * (p - w.tensors[name]))
        torch.testing.assert_close(after.tensors[name], by_hand.detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("search", ["own", "random"])
def test_milenas_derives_at_two_fifths_of_the_budget(search):
    t, method, state = started(searcher="milenas", search=search)
    rounds = [Round(n, n - 1, 10, range(1), 1.0, 7) for n in range(1, 11)]
    assert [method.note(state, r)["phase"] for r in rounds] == ["search"] * 4 + ["final"] * 6
    _, own = method.client(order_of(state), samples(16), None, run_of(t))
    _, after = method.client(order_of(state, 1), samples(16), own, run_of(t, number=2))
    arch = Arch.from_plain(after.meta["arch"])
    assert not any(name.startswith(ALPHA) for name in after.tensors)
    assert sum(map(len, arch.choice)) == 8 and len(method.observe(after, 2)["decisions"]) == 10
    by_alpha = space_for(method.options).derive(
        [
            torch.softmax(own.tensors[n], 0).numpy()
            for n in sorted(own.tensors)
            if n.startswith(ALPHA)
        ]
    )
    assert search == "random" or arch == by_alpha


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": -1}, "lam.*from 0 up"),
        ({"lam": "nan"}, "lam.*from 0 up"),
        ({"lam": "much"}, "lam.*from 0 up"),
        ({"lam": 20, "lr": 0.1}, "lr · lam must be below 2"),
        ({"tau": 0}, "tau.*greater than or equal to 1"),
        ({"tau": 0.5}, "tau.*valid integer"),
        ({"t_s": -1}, "t_s"),
        ({"keep": "best"}, "keep"),
        ({"lam": "inf", "searcher": "milenas"}, "milenas"),
        ({"t_s": 0, "searcher": "milenas"}, "leave t_s and tau out"),
        ({"tau": 2, "searcher": "milenas"}, "leave t_s and tau out"),
        ({"ops": "skip_connect"}, "`options.ops` must be 'full', .* but got 'skip_connect'"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(FedloomError, match=message):
        started(**resolve_options("spider", options))


@pytest.mark.parametrize("lam", ["inf", math.inf, "Infinity"])
def test_infinity_is_a_word_in_files(lam):
    assert resolve_options("spider", {"lam": lam})["lam"] == "inf"
    assert resolve_options("spider", {"lam": "0.5"})["lam"] == 0.5
    assert stages(task(lam="inf"))[0].method.options.pull == math.inf


def test_an_op_set_of_one_operation_is_refused(monkeypatch):
    monkeypatch.setitem(cells.UNIFORM, "s2", ("sep_conv_3x3",))
    with pytest.raises(
        FedloomError, match="must leave something to choose, but every slot has one option"
    ):
        started()


def test_no_client_has_an_empty_validation_part():
    least = Spider(SpiderOptions()).least_samples
    assert least == 6 and len(samples(6).split(0.75)[1]) == 2
    t, method, state = started(train_share=0.95)
    with pytest.raises(ValueError, match="nothing to validate on"):
        method.client(order_of(state, 1), samples(5), None, run_of(t))


def test_a_validation_part_of_one_class_is_searched_by_all_the_same():
    """Where accuracies tie, the loss decides."""
    t, method, state = started()
    data = Samples(samples(20).x, torch.zeros(20, dtype=torch.long))
    _, own = method.client(order_of(state), data, None, run_of(t))
    _, own = method.client(order_of(state, 6), data, own, run_of(t, number=2))
    assert sum(map(len, own.meta["arch"]["choice"])) == 8


# Whole runs


def test_metrics_tell_phases_and_decisions_and_replies_do_not(tmp_path):
    trace = Toy.of("spider", {"nodes": 1, "t_s": 1, "tau": 1}).run(tmp_path)
    assert [row.phase for row in trace.rows] == ["warm-up", "search", "search", "final"]
    assert trace.rows[0].observed == {}
    last_decisions = {client: {} for client in range(4)}  # the operations that stayed, by slot
    for row in trace.rows[1:]:
        for client, facts in row.observed.items():
            for decision in facts["decisions"]:
                assert decision["round"] == row.round
                last_decisions[client][decision["slot"]] = decision["kept"]
    space = space_for(SpiderOptions(nodes=1))
    for client in range(4):
        own = trace.own(client)
        arch = Arch.from_plain(own.meta["arch"])
        decided = {}
        for slot, live in zip(space.slots, arch.choice, strict=True):
            if len(live) < 2:
                decided[slot.name] = [slot.options[op] for op in live]
        assert decided == last_decisions[client]
        assert trace.outcome.clients[client].own.network.architecture == own.meta["arch"]
    for exchange in trace.exchanges:
        if exchange.order.kind == "train":
            assert set(exchange.reply.meta) == {"loss"}
            assert set(exchange.reply.tensors) == set(exchange.order.tensors)
