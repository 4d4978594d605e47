"""FedPNAS and its variants: training, the server's mean, tuning, and what is deployed."""

import math
from dataclasses import replace

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.methods import fedpnas_tune, stages
from fedloom.methods.fedpnas_stage import is_personal
from fedloom.rng import torch_rng
from fedloom.runs.configure import resolve_options
from fedloom.searchers import routed_search
from fedloom.searchers.anticipation import anticipate
from fedloom.searchers.guides import Drawing, Guided, GuideFigures
from fedloom.searchers.routed_search import Progress, loss_of, train_routed, trainable
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Order, Reply, Round, Setup, State

VARIANTS = ["feddsnas", "ca-feddsnas", "fedpnas", "ca-fedpnas"]
TUNING = {"tune_share": 0.5}


def toy_of(method, rounds=4, **options):
    return replace(Toy.of(method, options, rounds), participation=1.0)


def search_of(method, **options):
    return toy_of(method, **options).stages[0].method


def begun(search):
    return search.init(Setup(search.task, 4), None)


def client_run(task, number=1):
    return ClientRun(task, "search", number, 0, 0, "cpu", lambda: b"")


# The federated phase


def test_every_client_counts_the_same_whatever_its_size():
    search = search_of("fedpnas")
    state = begun(search)
    r = Round(1, 0.0, 4.0, range(2), 1.0, 7)
    _, orders = search.plan(state, r)
    replies = []
    for order, sign in zip(orders, (1.0, -3.0), strict=True):
        moved = {}
        for name, tensor in state.tensors.items():
            moved[name] = tensor
            if tensor.is_floating_point():
                moved[name] = tensor + sign
        meta = {"loss": 1.0, "entropy": 1.0, "free": 0.5, "bend": 0.1, "align": 0.2}
        replies.append(Reply(order.client, moved, 1.0, meta))
    merged = search.merge(state, orders, replies, r)
    for name, tensor in state.tensors.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(merged.tensors[name], tensor - 1.0)


@pytest.mark.parametrize("method", VARIANTS)
def test_replies_weigh_one(method):
    trace = toy_of(method).run_apart()
    searched = [e for e in trace.exchanges if e.order.kind == "search"]
    assert searched
    assert {float(e.reply.weight) for e in searched} == {1.0}


@pytest.mark.parametrize("method", VARIANTS)
def test_rows_of_the_search_tell_temperature_entropy_and_free_operations(method):
    trace = toy_of(method, rounds=5).run_apart()
    rows = [row.to_json() for row in trace.rows if row.stage == "search"]
    temperatures = [row["tau"] for row in rows]
    assert temperatures[0] == 1.0
    assert temperatures == sorted(temperatures, reverse=True)
    for row in rows:
        assert 0 < row["entropy"] <= 2.2  # nats: the logarithm of nine operations is 2.197
        assert 0 <= row["free"] <= 1


def test_anticipation_is_told_and_plain_training_has_none():
    for row in toy_of("fedpnas").run_apart().rows:
        if row.stage == "search":
            plain_row = row.to_json()
            assert plain_row["bend"] >= 0 and -1 <= plain_row["align"] <= 1
    plain = [row.to_json() for row in toy_of("feddsnas").run_apart().rows]
    assert all(row.get("bend") is None for row in plain)


def test_what_replies_tell_is_a_mean_over_clients_also_behind_aggregators():
    """One reply is a client's, the other an aggregator's of three clients."""
    search = search_of("ca-fedpnas")
    state = begun(search)
    r = Round(1, 0.0, 4.0, range(2), 1.0, 7)
    _, orders = search.plan(state, r)
    alone = {"loss": 1.0, "entropy": 2.0, "free": 1.0, "bend": 0.1, "align": -1.0}
    of_three = {"loss": 1.0, "entropy": 1.0, "free": 0.0, "bend": 0.3, "align": 1.0}
    weights = dict.fromkeys(state.tensors, 3.0)
    replies = [Reply(0, state.tensors, 1.0, alone), Reply(1, state.tensors, weights, of_three)]
    note = search.note_after(search.merge(state, orders, replies, r), r)
    assert (note["entropy"], note["free"], note["align"]) == pytest.approx((1.25, 0.25, 0.5))
    assert note["bend"] == 0.3


def test_the_entropy_of_pi_is_that_of_the_servers_own_state():
    """Whatever clients say: they saw it before it was averaged."""
    search = search_of("feddsnas")
    state = begun(search)
    r = Round(1, 0.0, 4.0, range(1), 1.0, 7)
    _, orders = search.plan(state, r)
    claimed = {"loss": 1.0, "entropy": 0.125, "free": 0.125, "bend": None, "align": None}
    note = search.note_after(
        search.merge(state, orders, [Reply(0, state.tensors, 1.0, claimed)], r), r
    )
    slots = search.options.stack_space.slots
    entropies = [math.log(len(slot.options)) for slot in slots]
    assert note["entropy"] == pytest.approx(sum(entropies) / len(slots))


@pytest.mark.parametrize("method", ["feddsnas", "fedpnas", "ca-fedpnas"])
def test_the_clip_bounds_a_step(method):
    """Without momentum and decay a step is the rate times the gradient, whose norm is clipped."""
    search = search_of(
        method, clip=1e-3, lr=1.0, momentum=0.0, weight_decay=0.0, batch=8, search="random"
    )
    tensors = begun(search).tensors
    run = client_run(search.task)
    reply, _ = search.client(
        Order(0, "search", tensors, {"lr": 1.0, "tau": 1.0}), samples(8), None, run
    )
    squares = 0.0
    for name, parameter in search.model(tensors).named_parameters():
        squares += float((reply.tensors[name] - parameter.detach()).double().square().sum())
    assert 0 < squares**0.5 <= 1e-3 * (1 + 1e-3)


def test_adapting_trains_operations_that_are_drawn():
    """In training mode paths are drawn, so over many passes all operations have gradients."""
    search = search_of("ca-feddsnas")
    order = Order(0, "evaluate", begun(search).tensors)
    network = search.network(order, samples(4), None, client_run(search.task))
    x = samples(16, "x").x
    likely = network.eval()(x)
    assert torch.equal(likely, network(x))
    network.train()
    torch.manual_seed(0)
    for _ in range(12):
        network(x).sum().backward()
    untrained = [
        name for name, parameter in network.model.named_parameters() if parameter.grad is None
    ]
    assert untrained == []


def test_the_control_trains_no_architecture():
    for method, options, prefix in (
        ("feddsnas", {}, "alpha/"),
        ("ca-fedpnas", TUNING, "sampler."),
    ):
        toy = toy_of(method, search="random", **options)
        before = begun(toy.stages[0].method).tensors
        after = toy.run_apart().outcome.state.tensors
        guiding = [name for name in before if name.startswith(prefix)]
        assert guiding
        assert all(torch.equal(before[name], after[name]) for name in guiding)


@pytest.mark.parametrize("method", ["feddsnas", "ca-feddsnas"])
def test_the_control_is_drawn_wide_enough_to_decide(method):
    """Before a choice, the entropy is that of equal operations: 2.197 and 1.609 nats, mean 2.0."""
    search = search_of(method, search="random")
    tensors = begun(search).tensors
    watched = GuideFigures()
    drawing = Drawing(
        search.guide(tensors), 1.0, search.options.draw, torch_rng(0, "draws"), watched
    )
    with torch.no_grad():
        search.model(tensors).eval()(samples(20, "x").x, drawing)
    assert watched.mean_entropy < 1.5


@pytest.mark.parametrize(
    ("method", "draw", "tune"),
    [
        ("feddsnas", "batch", False),
        ("ca-feddsnas", "sample", False),
        ("fedpnas", "batch", True),
        ("ca-fedpnas", "sample", True),
    ],
)
def test_what_a_variant_does_unless_told_otherwise(method, draw, tune):
    options = resolve_options(method, {})
    assert (options["draw"], options["tune"]) == (draw, tune)
    assert (options["tau"], options["tau_end"], options["tune_share"]) == (1.0, 0.1, 0.1)
    assert options["evaluate"] == "likely" and options["search"] == "gradient"
    if tune:
        assert options["hessian"] == "outer"
    else:
        assert options.get("hessian") is None
    sizes = [options[name] for name in ("base_cells", "personal_cells", "nodes", "channels")]
    assert sizes == [3, 1, 2, 16]


def test_a_tiny_inner_step_is_plain_training_on_the_same_draws():
    """As η₁ → 0, with hessian=none."""
    search = search_of("fedpnas", hessian="none", inner_lr=1e-9, draw="sample")
    batch = samples(8, "batch")
    gradients = []
    for anticipates in (True, False):
        state = begun(search)
        model = search.model(state.tensors).train()
        guide = search.guide(state.tensors)
        for row in guide.named_tensors().values():
            row.requires_grad_()
        how = search.training(1.0, 0.05)
        generator = torch_rng(0, "draws")

        def loss_now(model=model, guide=guide, how=how, generator=generator):
            return loss_of(model, guide, batch, how, generator, Progress())

        everything = trainable({**dict(model.named_parameters()), **guide.named_tensors()})
        base = {name: tensor for name, tensor in everything.items() if not is_personal(name)}
        personal = {name: tensor for name, tensor in everything.items() if is_personal(name)}
        if anticipates:
            anticipate(loss_now, base, personal, 1e-9, "none")
        else:
            loss_now()  # the first pass draws too, and BN sees it
            loss_now().backward()
        gradients.append(
            {name: tensor.grad for name, tensor in everything.items() if tensor.grad is not None}
        )
    anticipated, plain = gradients
    assert anticipated.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(anticipated[name], gradient, rtol=1e-4, atol=1e-5)


def test_as_the_inner_step_vanishes_the_search_stage_is_feddsnas(monkeypatch):
    """η₁ → 0 and hessian=none, over a whole stage with several clients and rounds.

    FedDSNAS passes twice here too and learns of the second pass, so that both have the same draws.
    """
    plain_gradients = routed_search.set_gradients

    def after_a_first_pass(loss_now, parameters, how, is_personal, progress):
        if how.inner is None:
            loss_now()
        plain_gradients(loss_now, parameters, how, is_personal, progress)

    monkeypatch.setattr(routed_search, "set_gradients", after_a_first_pass)
    first = begun(search_of("feddsnas")).tensors
    plain = toy_of("feddsnas", rounds=3).run_apart().outcome.state.tensors
    vanishing = {"hessian": "none", "inner_lr": 1e-9, "tune": False}
    anticipated = toy_of("fedpnas", rounds=3, **vanishing).run_apart().outcome.state.tensors
    assert anticipated.keys() == plain.keys()
    moved = 0.0
    for name, tensor in plain.items():
        torch.testing.assert_close(anticipated[name], tensor, rtol=1e-5, atol=1e-5, msg=name)
        moved = max(moved, float((tensor.double() - first[name].double()).abs().max()))
    assert moved > 0.01


@pytest.mark.parametrize("method", VARIANTS)
def test_one_client_is_the_same_loop_without_a_federation(method):
    """Round after round on one client's samples: the mean of one is itself, to the bit."""
    options = {}
    if "pnas" in method:
        options["tune"] = False
    toy = toy_of(method, rounds=2, **options)
    toy = replace(toy, data=toy.data[:1])
    after = toy.run_apart().outcome.state.tensors
    search = toy.stages[0].method
    state = begun(search)
    for number in (1, 2):
        r = Round(number, float(number - 1), 2.0, range(1), 1.0, toy.task.seed)
        _, (order,) = search.plan(state, r)
        reply, _ = search.client(order, toy.data[0].train, None, client_run(toy.task, number))
        state = State(dict(reply.tensors), state.meta)
    for name, tensor in state.tensors.items():
        assert torch.equal(tensor, after[name]), name


# Tuning


@pytest.mark.parametrize("method", ["fedpnas", "ca-fedpnas"])
def test_tuning_keeps_the_base_to_the_bit(method, tmp_path):
    toy = toy_of(method, **TUNING)
    trace = toy.run(tmp_path)
    tune = toy.stages[-1].method
    shared = trace.outcome.state.tensors
    tuning = [exchange for exchange in trace.exchanges if exchange.order.kind == "adapt"]
    assert tuning
    for exchange in tuning:
        assert not exchange.reply.tensors and not exchange.reply.meta
    order = tune.serve(trace.outcome.state, 0)
    run = client_run(toy.task)
    own = tune.improve(replace(order, meta={"lr": 0.01}), toy.data[0].train, None, run)
    assert all(is_personal(name) for name in own.tensors)
    changed = []
    for name, tensor in own.tensors.items():
        if not torch.equal(tensor, shared[name]):
            changed.append(name)
    assert any(name.startswith("net.personal.") for name in changed)
    assert any(name.startswith("net.classifier.") for name in changed)
    base = {name for name in shared if not is_personal(name)}
    assert base and not base & set(own.tensors)


@pytest.mark.parametrize("method", ["fedpnas", "ca-fedpnas"])
def test_the_base_of_a_network_in_tuning_keeps_its_statistics(method, monkeypatch):
    """Training passes go through the base too: its BN must not take statistics of them."""
    tuned = []

    def noted(model, guide, *rest):
        progress = train_routed(model, guide, *rest)
        tuned.append({**model.state_dict(), **guide.named_tensors()})
        return progress

    monkeypatch.setattr(fedpnas_tune, "train_routed", noted)
    toy = toy_of(method, **TUNING)
    tune = toy.stages[-1].method
    shared = begun(toy.stages[0].method).tensors
    tune.improve(
        Order(0, "adapt", shared, {"lr": 0.01}), toy.data[0].train, None, client_run(toy.task)
    )
    (after,) = tuned
    base = [name for name in shared if not is_personal(name)]
    assert any("running_mean" in name for name in base)
    assert [name for name in base if not torch.equal(after[name], shared[name])] == []
    personal = [name for name in shared if is_personal(name)]
    assert any(
        "running_mean" in name and not torch.equal(after[name], shared[name]) for name in personal
    )


@pytest.mark.parametrize("method", ["fedpnas", "ca-fedpnas"])
def test_tuning_is_plain_training_at_a_tenth_of_the_rates_and_the_last_temperature(
    method, monkeypatch
):
    trainings = []

    def noted(model, guide, data, how, *rest):
        trainings.append(how)
        return train_routed(model, guide, data, how, *rest)

    monkeypatch.setattr(fedpnas_tune, "train_routed", noted)
    toy = toy_of(method, lr=0.5, alpha_lr=0.2, tau_end=0.3, **TUNING)
    tune = toy.stages[-1].method
    shared = begun(toy.stages[0].method).tensors
    tune.improve(
        Order(0, "adapt", shared, {"lr": 0.05}), toy.data[0].train, None, client_run(toy.task)
    )
    (how,) = trainings
    assert (how.lr, how.guide_lr) == pytest.approx((0.05, 0.02))
    assert how.tau == 0.3
    assert how.inner is None


def test_a_client_that_has_tuned_is_sent_the_base_alone():
    toy = toy_of("fedpnas", rounds=6, **TUNING)
    adapted = [
        e.order
        for e in toy.run_apart().exchanges
        if e.order.kind == "adapt" and e.order.client == 0
    ]
    first, *later = adapted
    assert any(map(is_personal, first.tensors))
    assert later
    assert all(not any(map(is_personal, order.tensors)) for order in later)


# What is deployed


@pytest.mark.parametrize("method", ["feddsnas", "fedpnas"])
def test_the_most_likely_path_is_cut_out(method):
    search = search_of(method)
    state = begun(search)
    noise = torch_rng(3, "alpha")
    tensors = dict(state.tensors)
    for name, tensor in state.tensors.items():
        if name.startswith("alpha/"):
            tensors[name] = torch.randn(tensor.shape, generator=noise)
    order = Order(0, "evaluate", tensors)
    net = search.network(order, samples(2), None, client_run(search.task)).eval()
    path = search.likely_path(tensors)
    supernet = search.model(tensors).eval()
    x = samples(5, "x").x
    torch.testing.assert_close(net(x), supernet(x, path), rtol=1e-5, atol=1e-6)
    assert sum(p.numel() for p in net.parameters()) < sum(p.numel() for p in supernet.parameters())


def test_identical_samples_take_identical_ways():
    search = search_of("ca-feddsnas", search="random")
    state = begun(search)
    net = search.network(
        Order(0, "evaluate", state.tensors), samples(2), None, client_run(search.task)
    ).eval()
    assert isinstance(net, Guided)
    x = samples(3, "x").x
    doubled = torch.cat([x, x])
    scores = net(doubled)
    torch.testing.assert_close(scores[:3], scores[3:])
    torch.testing.assert_close(net(x), scores[:3], rtol=1e-4, atol=1e-5)


def test_the_mean_of_drawn_answers_is_repeatable():
    search = search_of("feddsnas", evaluate="sample:3")
    state = begun(search)
    order = Order(0, "evaluate", state.tensors)
    x = samples(5, "x").x
    answers = []
    with torch.no_grad():
        for _ in range(2):
            answers.append(search.predictor(order, samples(2), None, client_run(search.task))(x))
    assert torch.equal(*answers)
    torch.testing.assert_close(answers[0].exp().sum(dim=1), torch.ones(5))


@pytest.mark.parametrize(
    ("method", "options"),
    [("feddsnas", {}), ("ca-feddsnas", {}), ("ca-feddsnas", {"context": "batch"})],
)
def test_a_drawn_answer_does_not_depend_on_who_else_is_in_the_batch(method, options):
    search = search_of(method, evaluate="sample:3", search="random", **options)
    state = begun(search)
    net = search.network(
        Order(0, "evaluate", state.tensors), samples(2), None, client_run(search.task)
    ).eval()
    x = samples(6, "x").x
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        together = net(x)
        alone = torch.cat([net(sample) for sample in x.split(1)])
        permuted = net(x[order])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(permuted, together[order], rtol=1e-4, atol=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("fedpnas", {"base_cells": 0}, "base_cells"),
        ("fedpnas", {"personal_cells": 0}, "personal_cells"),
        ("fedpnas", {"nodes": 0}, "nodes"),
        ("fedpnas", {"tau": 0}, "tau"),
        ("fedpnas", {"tau_end": -1}, "tau_end"),
        ("fedpnas", {"tau": 0.1, "tau_end": 0.5}, "must not be above tau"),
        ("fedpnas", {"inner_lr": 0}, "inner_lr"),
        ("fedpnas", {"tune_share": 1}, "tune_share"),
        ("ca-fedpnas", {"draw": "batch"}, "draw"),
        ("fedpnas", {"context": "sample"}, "context"),
        ("feddsnas", {"inner_lr": 0.1}, "inner_lr"),
        ("feddsnas", {"evaluate": "sample:0"}, "evaluate"),
        ("feddsnas", {"space": "stacks:3:1"}, "BASE_CELLS:PERSONAL_CELLS:NODES"),
        ("feddsnas", {"space": "stacks:a:1:2"}, "stacks"),
        ("feddsnas", {"space": "darts:s2:4"}, "personal part"),
    ],
)
def test_bad_options_are_refused(method, options, words):
    with pytest.raises(FedloomError, match=words):
        resolve_options(method, options)


def test_images_that_are_too_small_are_refused_by_size():
    options = resolve_options("fedpnas", {})
    task = replace(Toy.of("fedpnas").task, shape=(1, 3, 3), options=options)
    search = stages(task)[0].method
    with pytest.raises(FedloomError, match="at least 4×4"):
        search.init(Setup(task, 4), None)
