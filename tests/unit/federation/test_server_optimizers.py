from math import sqrt

import pytest
import torch

from fedloom.federation.protocol.method import shared
from fedloom.learning.averaging import ServerOptions, server_step
from fedloom.learning.server_optimizers import ServerOptimizer
from fedloom.types import Order, Reply, State

# Algorithm 2 by hand: η = β₁ = τ = 0.5, β₂ = 0.75.
# From x = (1, 2) the means are (3, 1.5), then x + (−1, 0), so Δ₁ = (2, −0.5) and Δ₂ = (−1, 0);
# m₁ = Δ₁ / 2 = (1, −0.25), m₂ = m₁ / 2 + Δ₂ / 2 = (0, −0.125); v₀ = τ² = 0.25.
M1 = (1.0, -0.25)
M2 = (0.0, -0.125)
V1 = {
    "adagrad": (0.25 + 4, 0.25 + 0.25),
    "yogi": (0.25 + 0.25 * 4, 0.25),  # sign(v₀ − Δ²): −1, and 0 where they are equal
    "adam": (0.75 * 0.25 + 0.25 * 4, 0.75 * 0.25 + 0.25 * 0.25),
}
V2 = {
    "adagrad": (4.25 + 1, 0.5),
    "yogi": (1.25 - 0.25, 0.25),  # sign(1.25 − 1) = 1
    "adam": (0.75 * 1.1875 + 0.25, 0.75 * 0.25),
}
RULES = pytest.mark.parametrize("rule", ["adagrad", "yogi", "adam"])


def optimizer(rule):
    return ServerOptimizer(rule, lr=0.5, beta1=0.5, beta2=0.75, tau=0.5)


def d(*values):
    return torch.tensor(values, dtype=torch.float64)


def moved(x, m, v):
    return pytest.approx(
        [a + 0.5 * b / (sqrt(c) + 0.5) for a, b, c in zip(x, m, v, strict=True)], abs=1e-15
    )


@RULES
def test_one_step_by_hand(rule):
    state = optimizer(rule).step(State({"w": d(1.0, 2.0)}), {"w": d(3.0, 1.5)}, ["w"])
    assert state.tensors["server/m/w"].tolist() == pytest.approx(M1)
    assert state.tensors["server/v/w"].tolist() == pytest.approx(V1[rule])
    assert state.tensors["w"].tolist() == moved((1.0, 2.0), M1, V1[rule])


@RULES
def test_two_steps_by_hand(rule):
    first = optimizer(rule).step(State({"w": d(1.0, 2.0)}), {"w": d(3.0, 1.5)}, ["w"])
    x = first.tensors["w"]
    second = optimizer(rule).step(first, {"w": x + d(-1.0, 0.0)}, ["w"])
    assert second.tensors["server/m/w"].tolist() == pytest.approx(M2)
    assert second.tensors["server/v/w"].tolist() == pytest.approx(V2[rule])
    assert second.tensors["w"].tolist() == moved(x.tolist(), M2, V2[rule])


def test_round_numbers():
    """τ = 3, Δ = 4: √(9 + 16) + 3 = 8, so x moves by 0.5 · 4 / 8."""
    rule = ServerOptimizer("adagrad", lr=0.5, beta1=0.0, beta2=0.0, tau=3.0)
    assert rule.step(State({"w": d(1.0)}), {"w": d(5.0)}, ["w"]).tensors["w"].item() == 1.25


@RULES
def test_no_change_no_step(rule):
    state = optimizer(rule).step(State({"w": d(1.0, 2.0)}), {"w": d(1.0, 2.0)}, ["w"])
    assert state.tensors["w"].tolist() == [1.0, 2.0]


def test_momentum_moves_on_without_a_change():
    first = optimizer("adam").step(State({"w": d(0.0)}), {"w": d(2.0)}, ["w"])
    second = optimizer("adam").step(first, {"w": first.tensors["w"]}, ["w"])
    assert second.tensors["w"].item() > first.tensors["w"].item()


@RULES
def test_buffers_are_plain_means(rule):
    old = State({"w": d(1.0), "running_mean": d(1.0), "batches": torch.tensor(3)})
    mean = {"w": d(3.0), "running_mean": d(5.0), "batches": torch.tensor(9)}
    state = optimizer(rule).step(old, mean, ["w"])
    assert (state.tensors["running_mean"].item(), state.tensors["batches"].item()) == (5.0, 9)
    assert set(state.tensors) == {"w", "running_mean", "batches", "server/m/w", "server/v/w"}


def test_the_rule_mean_takes_the_mean_and_remembers_nothing():
    state = optimizer("mean").step(State({"w": d(1.0)}, {"a": 1}), {"w": d(3.0)}, ["w"])
    assert (state.tensors, state.meta) == ({"w": d(3.0)}, {"a": 1})


@pytest.mark.parametrize("rule", ["mean", "adagrad", "yogi", "adam"])
def test_what_else_the_server_keeps_stays(rule):
    old = State({"w": d(1.0), "server/other": d(7.0)}, {"parameters": ["w"]})
    state = optimizer(rule).step(old, {"w": d(3.0)}, ["w"])
    assert state.tensors["server/other"].item() == 7.0 and state.meta == {"parameters": ["w"]}


@RULES
def test_moments_are_never_shared(rule):
    state = optimizer(rule).step(
        State({"w": d(1.0), "b": d(0.0)}), {"w": d(3.0), "b": d(1.0)}, ["w"]
    )
    assert set(shared(state)) == {"w", "b"}


@RULES
def test_the_old_state_does_not_change(rule):
    old = optimizer(rule).step(State({"w": d(1.0)}), {"w": d(3.0)}, ["w"])
    before = {name: tensor.clone() for name, tensor in old.tensors.items()}
    optimizer(rule).step(old, {"w": d(9.0)}, ["w"])
    assert old.tensors == before


@RULES
def test_weights_and_moments_keep_the_dtype(rule):
    state = optimizer(rule).step(State({"w": torch.ones(2)}), {"w": torch.zeros(2)}, ["w"])
    assert {tensor.dtype for tensor in state.tensors.values()} == {torch.float32}


# What nobody weighed


def weighing(client, weight, **tensors):
    return Reply(client, tensors, weight)


def stepped(rule, state, replies, orders=(), min_clients=1):
    return server_step(ServerOptions(server_optimizer=rule), state, orders, replies, min_clients)


@RULES
def test_what_nobody_weighs_keeps_its_value_and_its_moments(rule):
    """Three rounds in which `b` has momentum from the first and nobody weighs it in the others."""
    state = State({"a": d(0.0), "b": d(0.0)}, {"parameters": ["a", "b"]})
    state = stepped(rule, state, [weighing(0, 1.0, a=d(1.0), b=d(1.0))])
    of_b = ("b", "server/m/b", "server/v/b")
    expected = {name: state.tensors[name] for name in of_b}
    moved_a = state.tensors["a"]
    assert expected["b"].item() > 0 and expected["server/m/b"].item() != 0
    for _ in range(2):
        state = stepped(rule, state, [weighing(0, {"a": 2.0}, a=d(5.0), b=d(9.0))])
    assert {name: state.tensors[name] for name in of_b} == expected
    assert state.tensors["a"].item() != moved_a.item()


@RULES
def test_what_was_never_weighed_has_no_moments(rule):
    state = State({"a": d(0.0), "b": d(0.25)}, {"parameters": ["a", "b"]})
    state = stepped(rule, state, [weighing(0, {"a": 1.0}, a=d(1.0), b=d(1.0))])
    assert (
        set(state.tensors) == {"a", "b", "server/m/a", "server/v/a"}
        and state.tensors["b"].item() == 0.25
    )


@RULES
def test_fewer_than_min_clients_move_nothing(rule):
    first = stepped(rule, State({"w": d(0.0), "b": d(0.0)}, {"parameters": ["w", "b"]}),
                    [weighing(0, 1.0, w=d(1.0), b=d(1.0))])  # fmt: skip
    replies = [weighing(0, 1.0, w=d(5.0), b=d(7.0)), weighing(1, {"w": 1.0}, w=d(5.0), b=d(7.0))]
    second = stepped(rule, first, replies, min_clients=2)
    assert [second.tensors[name] for name in ("b", "server/m/b", "server/v/b")] == [
        first.tensors[name] for name in ("b", "server/m/b", "server/v/b")
    ]
    alone = stepped(rule, State({"w": first.tensors["w"], "server/m/w": first.tensors["server/m/w"],
                                 "server/v/w": first.tensors["server/v/w"]}, {"parameters": ["w"]}),
                    [weighing(0, 1.0, w=d(5.0)), weighing(1, 1.0, w=d(5.0))])  # fmt: skip
    assert second.tensors["w"] == alone.tensors["w"] and second.tensors["w"] != first.tensors["w"]
    assert stepped(rule, first, replies[:1], min_clients=2).tensors == first.tensors


@RULES
def test_elements_outside_every_region_do_not_move(rule):
    """The middle element behaves as a tensor of its own; the others keep value and moments."""
    state = stepped(
        rule,
        State({"w": d(0.0, 0.0, 0.0)}, {"parameters": ["w"]}),
        [weighing(0, 1.0, w=d(1.0, 2.0, 3.0))],
    )
    single = stepped(
        rule, State({"w": d(0.0)}, {"parameters": ["w"]}), [weighing(0, 1.0, w=d(2.0))]
    )
    orders = [Order(0, "train", region={"w": ((1,),)})]
    after = stepped(rule, state, [weighing(0, 4.0, w=d(-1.0))], orders)
    alone = stepped(rule, single, [weighing(0, 4.0, w=d(-1.0))])
    for name in ("w", "server/m/w", "server/v/w"):
        before = state.tensors[name].tolist()
        assert after.tensors[name].tolist() == [before[0], alone.tensors[name].item(), before[2]]


@RULES
def test_with_every_key_weighed_nothing_changes(rule):
    """The bits of a step are those of a step that looks at nothing but the mean."""
    state = State({"w": d(1.0, 2.0)}, {"parameters": ["w"]})
    optimizer = ServerOptions(server_optimizer=rule).server()
    plain = optimizer.step(state, {"w": d(3.0, 1.5)}, ["w"])
    assert all(
        torch.equal(tensor, plain.tensors[name])
        for name, tensor in stepped(rule, state, [weighing(0, 3.0, w=d(3.0, 1.5))]).tensors.items()
    )


# Replies that bring a part of the keys


def supernet():
    """Two operations with statistics and counters, and a fixed weight, after a round moved all."""
    tensors = {
        "A": d(10.0),
        "A.mean": d(1.0),
        "A.n": torch.tensor(5),
        "B": d(20.0),
        "fixed": d(1.0),
    }
    parameters = ["A", "B", "fixed"]
    for name in parameters:
        tensors[f"server/m/{name}"] = d(0.5)
        tensors[f"server/v/{name}"] = d(0.5)
    return State(tensors, {"parameters": parameters})


PARTS = [
    weighing(1, {"A": 30.0, "A.mean": 30.0, "A.n": 30.0, "B": 10.0, "fixed": 40.0},
             **{"A": d(11.0), "A.mean": d(2.0), "A.n": torch.tensor(9), "B": d(24.0),
                "fixed": d(2.0)}),
    weighing(2, {"B": 20.0, "fixed": 20.0}, B=d(21.0), fixed=d(5.0)),
]  # fmt: skip


@RULES
def test_a_server_optimiser_moves_only_what_was_merged(rule):
    """One client brought A: neither A nor its moments, statistics and counters move.

    Everything else has the same bits.
    """
    state = stepped(rule, supernet(), PARTS, min_clients=2)
    before = supernet().tensors
    of_a = ("A", "A.mean", "A.n", "server/m/A", "server/v/A")
    assert {name: state.tensors[name] for name in of_a} == {name: before[name] for name in of_a}
    others = {name: tensor for name, tensor in before.items() if name not in of_a}
    without_a = stepped(rule, State(others, {"parameters": ["B", "fixed"]}), PARTS, min_clients=2)
    assert {name: state.tensors[name] for name in others} == without_a.tensors
    for name in ("B", "fixed", "server/m/B", "server/v/fixed"):
        assert state.tensors[name].item() != before[name].item()


@RULES
def test_nobody_merged_anything(rule):
    state = supernet()
    assert stepped(rule, state, PARTS[:1], min_clients=2) is state
