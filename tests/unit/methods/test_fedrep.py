"""FedRep against its paper: Algorithm 1."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from textbook import chances, gradient

from fedloom.errors import FedloomError
from fedloom.testing import Toy

PAIR = f"{Path(__file__).parent}/linear.py:Pair"
BODY = "net.body.weight"
HEAD = "net.classifier.weight"
CLIENTS = (
    ([(1, 0.5), (-1, 2)], [0, 1]),
    ([(0.5, 0.5), (2, -1), (1, 1)], [1, 0, 1]),
    ([(3, 1), (2, 2)], [1, 0]),
)


def of_body(body, head, x, y):
    """∇_B of the cross-entropy of h·B·x: hᵀ(p − onehot) xᵀ."""
    inputs = np.array(x, dtype=float)
    wrong = chances(inputs @ (head @ body).T) - np.eye(2)[y]
    return (wrong @ head).T @ inputs / len(y)


def of_head(body, head, x, y):
    return gradient(head, np.array(x, dtype=float) @ body.T, y)


def test_rounds_in_numbers(by_hand):
    """Two steps of the head with the body fixed, then one of the body with the head fixed.

    The bodies are averaged.
    """
    trace = by_hand("fedrep", *CLIENTS, rounds=3, network=PAIR, head_epochs=2)
    body = np.eye(2)
    heads = [np.zeros((2, 2))] * 3
    for _ in range(3):
        bodies = []
        for client, (x, y) in enumerate(CLIENTS):
            for _ in range(2):
                heads[client] = heads[client] - 0.5 * of_head(body, heads[client], x, y)
            bodies.append(body - 0.5 * of_body(body, heads[client], x, y))
        body = sum(len(y) / 7 * own for own, (_, y) in zip(bodies, CLIENTS, strict=True))
    np.testing.assert_allclose(trace.outcome.state.tensors[BODY].numpy(), body, rtol=1e-4)
    for client, (x, y) in enumerate(CLIENTS):
        for _ in range(2):  # the last round, at a tenth of the rate
            heads[client] = heads[client] - 0.05 * of_head(body, heads[client], x, y)
        np.testing.assert_allclose(
            trace.own(client).tensors[HEAD].numpy(), heads[client], rtol=1e-4
        )


def test_the_first_round_in_numbers(by_hand, one):
    """The head goes to ±¼ in its first column.

    Then p = σ(½), and the body moves by ½·½(1 − p) along (1, 0).
    """
    trace = by_hand("fedrep", one, network=PAIR, head_epochs=1)
    p = 1 / (1 + np.exp(-0.5))
    body = trace.outcome.state.tensors[BODY].numpy()
    np.testing.assert_allclose(body, [[1 + 0.5 * 0.5 * (1 - p), 0], [0, 1]], rtol=1e-6)


def test_heads_never_leave():
    trace = Toy.of("fedrep").run_apart()
    for exchange in trace.exchanges:
        names = [*exchange.order.tensors, *(exchange.reply.tensors if exchange.answer else ())]
        assert not any(name.startswith("net.classifier") for name in names)
    assert set(trace.own(0).tensors) == {"net.classifier.weight", "net.classifier.bias"}
    assert "net.classifier.weight" not in trace.outcome.state.tensors


def test_bodies_are_what_is_averaged():
    """Running statistics too; the state holds every tensor of the network but the head's."""
    state = Toy.of("fedrep").run_apart().outcome.state
    assert any(name.endswith("running_mean") for name in state.tensors)


def test_there_is_no_shared_model():
    assert [client.shared for client in Toy.of("fedrep").run_apart().outcome.clients] == [None] * 4


def test_who_was_never_asked_gets_a_head_in_the_last_round(tmp_path):
    trace = replace(Toy.of("fedrep", rounds=1), participation=0.25).run(tmp_path)
    assert sum(e.order.kind == "train" for e in trace.exchanges) == 1
    assert all(trace.own(client) is not None for client in range(4))


def test_a_network_without_a_head_is_refused(by_hand, one):
    with pytest.raises(FedloomError, match="must end in a linear layer"):
        by_hand("fedrep", one)


def test_both_parts_learn():
    trace = Toy.of("fedrep").run_apart()
    own = trace.own(0).tensors
    other = trace.own(1).tensors
    assert not torch.equal(own["net.classifier.weight"], other["net.classifier.weight"])
