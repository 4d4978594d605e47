import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedloom.learning.training import weights_of
from fedloom.networks.building import build_model
from fedloom.rng import torch_rng
from fedloom.testing import Toy
from fedloom.testing.toy import made_up
from fedloom.testing.watch import ServerLog

WEIGHT = "net.weight"


def gradient(w: np.ndarray, x: list[tuple[float, float]], y: list[int]) -> np.ndarray:
    """Of the mean cross-entropy of a linear classifier, from the textbook: (p − onehot)ᵀ x / n."""
    inputs = np.array(x, dtype=float)
    scores = inputs @ w.T
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return (p - np.eye(len(w))[y]).T @ inputs / len(y)


def test_one_round_in_numbers(by_hand, one, two):
    """A step of rate ½ takes client 0 to [(¼, 0), (−¼, 0)] and client 1 to [(0, −¾), (0, ¾)].

    Their weights are 2 and 4 of 6.
    """
    trace = by_hand("fedavg", one, two)
    expected = torch.tensor([[0.25 / 3, -0.5], [-0.25 / 3, 0.5]])
    assert torch.equal(trace.outcome.state.tensors[WEIGHT], expected)
    replies = {e.order.client: e.reply for e in trace.exchanges if e.order.kind == "train"}
    assert torch.equal(replies[0].tensors[WEIGHT], torch.tensor([[0.25, 0], [-0.25, 0]]))
    assert torch.equal(replies[1].tensors[WEIGHT], torch.tensor([[0, -0.75], [0, 0.75]]))
    assert [replies[k].weight for k in (0, 1)] == [2, 4]
    assert replies[0].meta["loss"] == pytest.approx(math.log(2))


def test_rounds_follow_the_weighted_mean_of_steps(by_hand):
    """w' = Σ n_k/N (w − η ∇F_k), round after round, on clients that disagree."""
    clients = [
        ([(1, 0.5), (-1, 2)], [0, 1]),
        ([(0.5, 0.5), (2, -1), (1, 1)], [1, 0, 1]),
        ([(3, 1), (2, 2)], [1, 0]),
    ]
    trace = by_hand("fedavg", *clients, rounds=3)
    w = np.zeros((2, 2))
    for _ in range(3):
        w = sum(len(y) / 7 * (w - 0.5 * gradient(w, x, y)) for x, y in clients)
    np.testing.assert_allclose(trace.outcome.state.tensors[WEIGHT].numpy(), w, rtol=1e-5)


def test_the_clip_reaches_the_step(by_hand, one):
    """The gradient [(−½, 0), (½, 0)] has norm 1/√2; clipped to ¼ it becomes ∓√2/8."""
    trace = by_hand("fedavg", one, clip=0.25)
    row = 0.5 * math.sqrt(2) / 8
    np.testing.assert_allclose(
        trace.outcome.state.tensors[WEIGHT].numpy(), [[row, 0], [-row, 0]], rtol=1e-4
    )


def test_one_client_is_centralised_sgd(tmp_path):
    """Bit for bit, BN and a cosine schedule over the rounds included."""
    toy = Toy.of("fedavg", {"momentum": 0.0, "epochs": 2}, rounds=3)
    toy = replace(toy, data=made_up()[:1])
    federated = toy.run(tmp_path).outcome.state.tensors
    net = build_model(toy.task, "cnn", 0.125)
    data = toy.data[0].train
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=3e-4)
    for number in range(3):
        optimizer.param_groups[0]["lr"] = 0.05 * 0.5 * (1 + math.cos(math.pi * number / 3))
        generator = torch_rng(7, number + 1, 0, 0, "batches")
        for _ in range(2):
            for chosen in torch.randperm(7, generator=generator).split(4):
                optimizer.zero_grad()
                functional.cross_entropy(net(data.x[chosen]), data.y[chosen]).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                optimizer.step()
    central = weights_of(net)
    assert central.keys() == federated.keys()
    assert [name for name in central if not torch.equal(central[name], federated[name])] == []


def test_who_is_left_out_stays_out(tmp_path):
    """With participation ½ two of four clients train a round, and the others are sent nothing."""
    trace = replace(Toy.of("fedavg", rounds=3), participation=0.5).run(tmp_path)
    for number in (1, 2, 3):
        asked = [
            e.order.client
            for e in trace.exchanges
            if e.order.kind == "train" and e.order.stamp.round == number
        ]
        assert len(asked) == len(set(asked)) == 2


def test_clients_keep_no_state(tmp_path):
    trace = Toy.of("fedavg").run(tmp_path)
    assert trace.owns == {} and all(not e.reply.wrote for e in trace.exchanges)


def test_without_any_weight_the_momentum_of_the_server_stands_still():
    """Adam's first momentum would otherwise go on moving the weights in a round without news."""
    log = ServerLog()
    Toy.of("fedadam").run_apart(server=log.watch)
    last = log.merges[-1]
    assert last.state.tensors["server/m/net.classifier.bias"].any()
    nothing = [replace(reply, weight=0.0) for reply in last.replies]
    assert last.method.merge(last.state, last.orders, nothing, last.round) is last.state
