"""FedNAS against its paper: Eq. 4, Eq. 5, Algorithm 1, §2.5."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.private_state import weights_in
from fedloom.learning.training import MOMENTUM, weights_of
from fedloom.methods.fednas import (
    AdaptDerived,
    Search,
    TrainCut,
    TrainDerived,
    Tune,
    genotype_of,
    searched_from,
    stages,
)
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.rng import torch_rng
from fedloom.searchers.milenas import endless
from fedloom.spaces import space_for
from fedloom.spaces.choice import Mixture
from fedloom.spaces.mixed import alpha_in, alpha_key, fresh_alpha, supernet_model
from fedloom.spaces.space import Size
from fedloom.types import ALPHA, Arch, Order, Reply, Round, Setup, State, Task

TINY = {"ops": "s2", "cells": 3, "nodes": 2, "channels": 2, "epochs": 1, "batch": 8}
EXACT = {  # one full-batch SGD step of everything, with constants for BN
    **TINY, "batch": 10_000, "bn": "frozen", "clip": 1e9, "momentum": 0.0, "weight_decay": 0.0,
    "alpha_optimizer": "sgd", "alpha_lr": 0.5, "alpha_weight_decay": 0.0,
}  # fmt: skip


def task(**options) -> Task:
    return Task("fednas", options, "image", (1, 4, 4), ("a", "b", "c"), 7, (0.0,), (1.0,))


def run_of(t: Task, client: int = 0, number: int = 1) -> ClientRun:
    return ClientRun(t, "search", number, 0, client, "cpu", lambda: b"")


def samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 4, 4, generator=generator)
    return Samples(x, torch.randint(0, 3, (count,), generator=generator))


def started(**options) -> tuple[Task, FedNASOptions, State]:
    t = task(**options)
    o = FedNASOptions(**options)
    return t, o, Search(o).init(Setup(t, 3), None)


def order_of(state: State, client: int = 0, lr: float = 0.1) -> Order:
    return Order(client, "search", state.tensors, {"lr": lr})


def central_gradients(t, o, tensors, train, validation):
    """∇_w L_tr and ∇_α L_tr + λ ∇_α L_val at (w, α), by plain autograd."""
    net = supernet_model(t, o, weights=tensors).eval()  # frozen BN
    alpha = [row.clone().requires_grad_() for row in alpha_in(tensors).values()]

    def loss(part):
        return functional.cross_entropy(net(part.x, Mixture.softmax(alpha)), part.y)

    of_train = torch.autograd.grad(loss(train), [*net.parameters(), *alpha])
    of_validation = torch.autograd.grad(loss(validation), alpha)
    count = len(list(net.parameters()))
    return (
        net,
        of_train[:count],
        [a + o.lam * b for a, b in zip(of_train[count:], of_validation, strict=True)],
    )


@pytest.mark.parametrize("lam", [1.0, 0.3])
def test_eq_4_one_full_batch_step(lam):
    t, o, state = started(**EXACT, lam=lam)
    data = samples(12)
    reply, _ = Search(o).client(order_of(state), data, None, run_of(t))
    net, of_w, of_alpha = central_gradients(t, o, state.tensors, *data.split(0.5))
    for (name, parameter), gradient in zip(net.named_parameters(), of_w, strict=True):
        assert torch.allclose(reply.tensors[name], parameter - 0.1 * gradient, atol=1e-6)
    for (name, row), gradient in zip(alpha_in(state.tensors).items(), of_alpha, strict=True):
        assert torch.allclose(reply.tensors[ALPHA + name], row - 0.5 * gradient, atol=1e-7)


def test_sequential_order_takes_alphas_gradient_at_the_new_weights():
    t, o, state = started(**EXACT, order="sequential")
    data = samples(12)
    reply, _ = Search(o).client(order_of(state), data, None, run_of(t))
    moved = {**state.tensors, **{k: v for k, v in reply.tensors.items() if not k.startswith(ALPHA)}}
    _, _, of_alpha = central_gradients(t, o, moved, *data.split(0.5))
    for (name, row), gradient in zip(alpha_in(state.tensors).items(), of_alpha, strict=True):
        assert torch.allclose(reply.tensors[ALPHA + name], row - 0.5 * gradient, atol=1e-7)


def test_the_two_orders_differ():
    data = samples(12)
    by_order = {}
    for order in ("simultaneous", "sequential"):
        t, o, state = started(**EXACT, order=order)
        reply, _ = Search(o).client(order_of(state), data, None, run_of(t))
        by_order[order] = reply.tensors
    simultaneous = by_order["simultaneous"]
    first = next(name for name in simultaneous if name.startswith(ALPHA))
    assert not torch.equal(simultaneous[first], by_order["sequential"][first])


def union_of(parts):
    x = torch.cat([part.x for part in parts])
    y = torch.cat([part.y for part in parts])
    return Samples(x, y)


def test_k_clients_with_equal_ratios_are_one_step_on_the_union():
    t, o, state = started(**EXACT)
    replies = []
    for_weights = []
    for_alpha = []
    for client, count in enumerate((4, 8, 12)):
        data = samples(count, client)
        reply, _ = Search(o).client(order_of(state, client), data, None, run_of(t, client))
        replies.append(reply)
        first, second = data.split(0.5)
        for_weights.append(first)
        for_alpha.append(second)
    merged = Search(o).merge(state, [], replies, Round(1, 0, 1, range(3), 1.0, 7))
    net, of_w, of_alpha = central_gradients(
        t, o, state.tensors, union_of(for_weights), union_of(for_alpha)
    )
    for (name, parameter), gradient in zip(net.named_parameters(), of_w, strict=True):
        assert torch.allclose(merged.tensors[name], parameter - 0.1 * gradient, atol=1e-5)
    for (name, row), gradient in zip(alpha_in(state.tensors).items(), of_alpha, strict=True):
        assert torch.allclose(merged.tensors[ALPHA + name], row - 0.5 * gradient, atol=1e-5)


@pytest.mark.parametrize("channels", [2, 8])  # one batch after the other, and both in one pass
def test_one_client_with_kept_optimizers_is_centralised_milenas_bit_for_bit(channels):
    options = {**TINY, "channels": channels, "epochs": 2, "clip": 0.7, "lam": 0.6}
    t, o, state = started(**options)
    data = samples(22)
    own = None
    central = Central(t, o, state.tensors)
    for number, lr in ((1, 0.1), (2, 0.05), (3, 0.02)):
        reply, own = Search(o).client(order_of(state, lr=lr), data, own, run_of(t, number=number))
        state = Search(o).merge(state, [], [reply], Round(number, 0, 3, range(1), 1.0, 7))
        central.round(data, lr, number)
    assert central.in_one_pass == (channels == 8)
    for name, tensor in central.tensors().items():
        assert torch.equal(state.tensors[name], tensor), name


class Central:
    """Centralised MiLeNAS without the project's search code: one network, two optimisers."""

    def __init__(self, t, o, tensors):
        self.t = t
        self.o = o
        self.net = supernet_model(t, o, weights=tensors).train()
        self.alpha = {name: row.clone().requires_grad_() for name, row in alpha_in(tensors).items()}
        self.w = torch.optim.SGD(
            self.net.parameters(), lr=1.0, momentum=o.momentum, weight_decay=o.weight_decay
        )
        self.a = torch.optim.Adam(
            self.alpha.values(),
            lr=o.alpha_lr,
            betas=(0.5, 0.999),
            weight_decay=o.alpha_weight_decay,
        )

    def round(self, data, lr, number):
        train, validation = data.split(0.5)
        self.w.param_groups[0]["lr"] = lr
        shuffle = torch_rng(self.t.seed, number, 0, 0, "batches")
        other = torch_rng(self.t.seed, number, 0, 0, "validation batches")
        pending = []
        for _ in range(self.o.epochs):
            for batch in train.batches(self.o.batch, shuffle):
                pending = pending or list(validation.batches(self.o.batch, other))
                self.step(batch, pending.pop(0))

    def step(self, batch, check):
        self.w.zero_grad()
        self.a.zero_grad()
        mixture = Mixture.softmax(list(self.alpha.values()))
        scores = self.net.net.forward_both(
            self.net.normalised(batch.x), self.net.normalised(check.x), mixture
        )
        self.in_one_pass = scores is not None
        if self.in_one_pass:
            loss = functional.cross_entropy(scores.train, batch.y)
            (loss + self.o.lam * functional.cross_entropy(scores.validation, check.y)).backward()
        else:
            self.backward_one_after_the_other(batch, check)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.o.clip)
        self.w.step()
        self.a.step()

    def backward_one_after_the_other(self, batch, check):
        def loss(part):
            return functional.cross_entropy(
                self.net(part.x, Mixture.softmax(list(self.alpha.values()))), part.y
            )

        loss(batch).backward()
        of_train = [row.grad.clone() for row in self.alpha.values()]
        of_weights = [p.grad.clone() for p in self.net.parameters()]
        self.a.zero_grad()
        statistics = [buffer.clone() for buffer in self.net.buffers()]
        loss(check).backward()
        for buffer, before in zip(self.net.buffers(), statistics, strict=True):
            buffer.copy_(before)  # the validation batch leaves no trace in them
        for row, gradient in zip(self.alpha.values(), of_train, strict=True):
            row.grad = gradient + self.o.lam * row.grad
        for p, gradient in zip(self.net.parameters(), of_weights, strict=True):
            p.grad = gradient

    def tensors(self):
        return {
            **weights_of(self.net),
            **{ALPHA + name: row.detach() for name, row in self.alpha.items()},
        }


def test_server_alpha_is_the_weighted_mean_not_the_first_clients():
    _, o, state = started(**TINY)
    name = next(key for key in state.tensors if key.startswith(ALPHA))
    ones = {key: torch.full_like(tensor, 1.0) for key, tensor in state.tensors.items()}
    fives = {key: torch.full_like(tensor, 5.0) for key, tensor in state.tensors.items()}
    replies = [Reply(0, ones, 10), Reply(1, fives, 30)]
    merged = Search(o).merge(state, [], replies, Round(1, 0, 1, range(2), 1.0, 7))
    assert merged.tensors[name].tolist() == [4.0, 4.0]


def test_a_server_optimizer_moves_weights_and_alpha_and_averages_statistics():
    """One step of Adam by hand: m = (1 − β₁)Δ, v = β₂τ² + (1 − β₂)Δ²."""
    _, o, state = started(**TINY, server_optimizer="adam", server_lr=0.5)
    replies = [Reply(0, {key: t + 1 for key, t in state.tensors.items()}, 10)]
    merged = Search(o).merge(state, [], replies, Round(1, 0, 1, range(1), 1.0, 7))
    step = 0.5 * 0.1 / ((0.99 * o.tau**2 + 0.01) ** 0.5 + o.tau)
    moved = [name for name in state.tensors if name.startswith(ALPHA) or name.endswith("weight")]
    assert len(moved) > 20
    for name in moved:
        torch.testing.assert_close(
            merged.tensors[name], state.tensors[name] + step, rtol=1e-4, atol=1e-6
        )
    mean = next(name for name in state.tensors if name.endswith("running_mean"))
    assert torch.equal(merged.tensors[mean], state.tensors[mean] + 1)
    tensors = Search(o).serve(merged, 0).tensors
    assert set(tensors) == set(state.tensors)  # the server's own momentum stays with it
    derived = TrainDerived(o).init(Setup(task(**TINY), 3), merged)
    assert not any(name.startswith("server/") for name in derived.tensors)


@pytest.mark.parametrize(("share", "least"), [(0.5, 4), (0.95, 30), (0.05, 30), (0.8, 8), (0.3, 5)])
def test_no_part_of_a_client_with_the_least_samples_has_less_than_two(share, least):
    o = FedNASOptions(**TINY, train_share=share)
    assert Search(o).least_samples == Tune(o).least_samples == least
    for count in range(least - 1, 3 * least):
        smaller = min(len(part) for part in samples(count).split(share))
        assert (smaller >= 2) == (count >= least)


def test_an_empty_validation_part_is_an_error_and_no_endless_loop():
    with pytest.raises(ValueError, match="nothing to validate on"):
        next(endless(samples(8).split(0.97)[1], 4, torch.Generator()))


@pytest.mark.parametrize("kept", ["keep", "reset"])
def test_the_cuts_momentum_is_kept_or_reset(kept):
    t, o, state = started(**TINY, personal=True, optimizer_state=kept)
    data = samples(12)
    run = run_of(t)
    own = None
    for _ in range(2):
        _, own = TrainCut(o).client(Order(0, "adapt", state.tensors, {"lr": 0.1}), data, own, run)
        assert any(name.startswith(MOMENTUM) for name in own.tensors) == (kept == "keep")


def test_the_clip_acts_on_the_weights_and_not_on_alpha():
    data = samples(12)
    results = {}
    for clip in (1e-9, 1e9):
        t, o, state = started(**{**EXACT, "clip": clip})
        results[clip] = Search(o).client(order_of(state), data, None, run_of(t))[0].tensors
    t, o, state = started(**EXACT)
    for name, tensor in results[1e-9].items():
        if name.startswith(ALPHA):
            assert torch.equal(tensor, results[1e9][name])
        elif tensor.is_floating_point():
            assert torch.allclose(tensor, state.tensors[name], atol=1e-7)
    assert any(not torch.equal(results[1e-9][name], results[1e9][name]) for name in results[1e-9])


def test_the_validation_batches_are_shuffled_and_come_from_the_second_half_only(monkeypatch):
    seen = []
    from fedloom.searchers import milenas

    monkeypatch.setattr(
        milenas.MiLeNAS,
        "step",
        lambda self, a, b: seen.append((a.x[:, 0, 0, 0], b.x[:, 0, 0, 0])) or 0.0,
    )
    t, o, state = started(**{**TINY, "batch": 4, "epochs": 2})
    data = Samples(
        torch.arange(16.0).view(-1, 1, 1, 1).expand(-1, 1, 4, 4).clone(),
        torch.zeros(16, dtype=torch.long),
    )
    searched_from(state.tensors, {}, data, o, 0.1, run_of(t))
    train = torch.cat([a for a, _ in seen])
    validation = torch.cat([b for _, b in seen])
    assert set(train.tolist()) == set(range(8)) and set(validation.tolist()) == set(range(8, 16))
    assert validation[:8].tolist() != sorted(validation[:8].tolist())
    assert validation[:8].tolist() != validation[8:].tolist()  # each epoch anew


def test_alpha_starts_small_and_from_the_seed():
    rows = fresh_alpha(FedNASOptions(**TINY), 3)
    values = torch.cat(list(rows.values()))
    assert 0 < values.abs().max() < 0.01
    assert torch.equal(values, torch.cat(list(fresh_alpha(FedNASOptions(**TINY), 3).values())))


def test_the_global_mode_trains_the_derived_network_fresh_with_affine_bn():
    t, o, state = started(**TINY)
    strong = dict(state.tensors)
    for name in strong:
        if name.startswith(ALPHA):
            strong[name] = torch.tensor([0.0, 5.0])  # sep_conv everywhere
    derived = TrainDerived(o).init(Setup(t, 3), State(strong))
    arch = Arch.from_plain(derived.meta["build"]["arch"])
    assert set(arch.choice) <= {(), (1,)}
    assert (1,) in arch.choice
    assert any("bn1.weight" in name for name in derived.tensors)
    assert not any(name.startswith(ALPHA) for name in derived.tensors)
    order = TrainDerived(o).serve(derived, 0)
    net = TrainDerived(o).network(order, samples(4), None, run_of(t))
    assert set(net.state_dict()) == set(derived.tensors)


def test_the_global_mode_can_inherit_the_supernets_weights():
    t, o, state = started(**TINY, inherit=True)
    derived = TrainDerived(o).init(Setup(t, 3), state)
    assert all(torch.equal(tensor, state.tensors[name]) for name, tensor in derived.tensors.items())


def test_a_personal_client_tunes_cuts_and_reports_the_cut():
    t, o, state = started(**TINY, personal=True)
    data = samples(12)
    run = run_of(t)
    reply, own = Tune(o).client(Order(0, "adapt", state.tensors, {"lr": 0.1}), data, None, run)
    assert not reply.tensors and not reply.meta
    expected = genotype_of(own.tensors, o, t.seed, 0)
    reply, cut = TrainCut(o).client(Order(0, "adapt", {}, {"lr": 0.1}), data, own, run)
    assert not reply.tensors and not reply.meta
    assert Arch.from_plain(cut.meta["arch"]) == expected
    net = TrainCut(o).network(Order(0, "evaluate", state.tensors), data, cut, run)
    assert net.architecture == expected.to_plain()
    names = space_for(o).network((1, 4, 4), 3, Size(3, 2), arch=expected).state_dict()
    assert set(net.state_dict()) == {f"net.{name}" for name in names}


@pytest.mark.parametrize("inherit", [None, True, False])
def test_a_cut_network_inherits_the_supernets_weights_unless_told_otherwise(inherit):
    """With a rate of 0 a round changes no parameter."""
    t, o, state = started(**TINY, personal=True, inherit=inherit)
    _, own = TrainCut(o).client(
        Order(0, "adapt", state.tensors, {"lr": 0.0}), samples(12), None, run_of(t)
    )
    changed = {
        name: tensor + 1.0 for name, tensor in state.tensors.items() if tensor.is_floating_point()
    }
    _, other = TrainCut(o).client(
        Order(0, "adapt", {**state.tensors, **changed}, {"lr": 0.0}), samples(12), None, run_of(t)
    )
    names = [
        name for name in own.tensors if name.endswith("weight") and not name.startswith(MOMENTUM)
    ]
    assert len(names) > 5
    for name in names:
        assert torch.equal(
            other.tensors[name], own.tensors[name] + (0.0 if inherit is False else 1.0)
        ), name


@pytest.mark.parametrize("kept", ["keep", "reset"])
def test_tuning_keeps_or_resets_both_optimisers(kept):
    """If they are reset, the second round begins from the weights alone.

    If they are kept, momentum and Adam's moments of the first round count.
    """
    t, o, state = started(**TINY, personal=True, optimizer_state=kept)
    order = Order(0, "adapt", state.tensors, {"lr": 0.1})
    data = samples(12)
    first = Tune(o).improve(order, data, None, run_of(t, number=1))
    assert any(name.startswith(MOMENTUM) for name in first.tensors)
    bare = State(weights_in(first))
    second, from_bare = (
        Tune(o).improve(order, data, own, run_of(t, number=2)) for own in (first, bare)
    )
    equal = all(
        torch.equal(second.tensors[name], tensor) for name, tensor in weights_in(from_bare).items()
    )
    assert equal == (kept == "reset")


def test_the_control_draws_its_genotype_and_each_client_its_own():
    o = FedNASOptions(**TINY, search="random")
    tensors = fresh_alpha(o, 0)
    archs = [genotype_of(tensors, o, 0, client) for client in range(8)]
    assert len(set(archs)) > 1
    assert archs == [
        genotype_of(fresh_alpha(o, 99), o, 0, client) for client in range(8)
    ]  # α has no say
    for arch in archs:
        space_for(o).check(arch)


def test_derivation_follows_alpha():
    o = FedNASOptions(**TINY)
    slots = space_for(o).slots
    tensors = {
        alpha_key(number, slot): torch.tensor([float(number), 0.0])
        for number, slot in enumerate(slots)
    }
    arch = genotype_of(tensors, o, 0)
    strength = [
        np.array([1 / (1 + np.exp(-number)), 1 / (1 + np.exp(number))])
        for number in range(len(arch.choice))
    ]
    assert arch == space_for(o).derive(strength)


def test_stages_and_their_shares():
    assert [(s.name, s.share) for s in stages(task(search_share=0.4))] == [
        ("search", 0.4),
        ("train", 1.0),
    ]
    personal = stages(task(personal=True, search_share=0.4, tune_share=0.25))
    assert [(s.name, s.share, s.keeps_own) for s in personal] == [
        ("search", 0.4, False), ("tune", 0.25, False), ("cut", 1.0, True),
    ]  # fmt: skip


def test_finish_adapt_has_a_shared_training_and_an_adapting_stage():
    adapting = stages(task(personal=True, finish="adapt", search_share=0.4, adapt_share=0.25))
    assert [(s.name, s.share, s.keeps_own) for s in adapting] == [
        ("search", 0.4, False), ("train", 0.75, False), ("adapt", 1.0, False),
    ]  # fmt: skip
    cut = stages(task(personal=True, finish="cut"))
    assert [s.name for s in cut] == ["search", "tune", "cut"]


def test_finish_needs_personal():
    with pytest.raises(ValidationError, match="left out unless personal=true"):
        FedNASOptions(finish="adapt")
    with pytest.raises(ValidationError, match="left out unless personal=true"):
        FedNASOptions(finish="cut")


def test_a_rate_of_adapting_needs_somebody_who_adapts():
    with pytest.raises(ValidationError, match="left out unless finish=adapt"):
        FedNASOptions(personal=True, adapt_lr=0.1)
    assert FedNASOptions(personal=True, finish="adapt", adapt_lr=0.1).adapting_rate == 0.1


def test_shares_of_stages_that_there_are_not_are_refused():
    with pytest.raises(ValidationError, match="no client adapts"):
        FedNASOptions(personal=True, adapt_share=0.3)
    with pytest.raises(ValidationError, match="no client tunes"):
        FedNASOptions(personal=True, finish="adapt", tune_share=0.3)
    FedNASOptions(personal=True, finish="adapt", adapt_share=0.3)
    FedNASOptions(personal=True, tune_share=0.3)


def test_a_client_adapts_the_network_that_all_have_trained():
    """Everybody has the same genotype and its own weights, which begin with those of all."""
    t, o, state = started(**TINY, personal=True, finish="adapt", lr=0.3)
    derived = TrainDerived(o).init(Setup(t, 3), state)
    stage = AdaptDerived(o)
    begun = stage.init(Setup(t, 3), derived)
    round_ = Round(5, 0.0, 2.0, range(3), 1.0, t.seed, None)
    _, orders = stage.plan(begun, round_)
    assert [order.meta["lr"] for order in orders] == [pytest.approx(0.03)] * 3
    reply, own = stage.client(orders[1], samples(12), None, run_of(t, 1))
    assert not reply.tensors and not reply.meta
    merged = stage.merge(begun, orders, [reply], round_)
    assert merged.meta == {"build": derived.meta["build"], "started": [1]}
    _, again = stage.plan(merged, round_)
    assert [bool(order.tensors) for order in again] == [True, False, True]
    served = stage.serve(merged, 1)
    mine = stage.network(served, samples(4), own, run_of(t, 1))
    shared = stage.network(served, samples(4), None, run_of(t, 1))
    assert mine.architecture == shared.architecture == derived.meta["build"]["arch"]
    assert not torch.equal(mine.net.classifier.weight, shared.net.classifier.weight)
    assert torch.equal(shared.net.classifier.weight, derived.tensors["net.classifier.weight"])


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_the_validation_pass_leaves_the_running_statistics_alone(order):
    """They are as if the network had seen the training batches only."""
    t, o, state = started(**TINY, order=order, lr=1e-9, alpha_lr=1e-9)  # so that nothing else moves
    other = samples(24)
    far_away = Samples(other.x.clone(), other.y)
    far_away.x[12:] += 50.0  # the second half validates
    statistics = []
    for data in (other, far_away):
        searched = searched_from(state.tensors, {}, data, o, 1e-9, run_of(t))
        seen = {}
        for name, tensor in searched.tensors.items():
            if "running" in name or "num_batches" in name:
                seen[name] = tensor
        statistics.append(seen)
    plain, moved = statistics
    assert len(plain) > 10
    for name, tensor in plain.items():
        assert torch.allclose(tensor.double(), moved[name].double(), atol=1e-4), name


def test_nasbench201_is_searched_by_the_same_method():
    options = {"space": "nasbench201", "cells": 1, "channels": 2, "epochs": 1, "batch": 8}
    t, o, state = started(**options)
    reply, _ = Search(o).client(order_of(state), samples(12), None, run_of(t))
    assert set(reply.tensors) == set(state.tensors)
    arch = genotype_of(reply.tensors, o, t.seed)
    assert arch.space == "nasbench201" and all(len(live) == 1 for live in arch.choice)
    derived = TrainDerived(o).init(Setup(t, 3), State(reply.tensors))
    assert (
        TrainDerived(o).network(TrainDerived(o).serve(derived, 0), samples(4), None, run_of(t))
        is not None
    )
