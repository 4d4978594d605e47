"""Per-FedAvg against its paper: Algorithm 1 and its two approximations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from textbook import bend, gradient

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import weights_of
from fedloom.methods import perfedavg
from fedloom.methods.perfedavg import PerFedAvg, PerFedAvgOptions, moved, set_meta_gradient
from fedloom.nets.cnn import SmallCNN
from fedloom.testing import Toy
from fedloom.types import Order, Task

WEIGHT = "net.weight"
ALPHA = 0.3
CLIENTS = (
    ([(1, 0.5), (-1, 2)], [0, 1]),
    ([(0.5, 0.5), (2, -1), (1, 1)], [1, 0, 1]),
    ([(3, 1), (2, 2)], [1, 0]),
)


def meta_gradient(w, x, y, hessian):
    g = gradient(w - ALPHA * gradient(w, x, y), x, y)
    return g - ALPHA * bend(w, x, y, g) if hessian else g


@pytest.mark.parametrize(("variant", "tolerance"), [("fo", 1e-5), ("hf", 2e-3)])
def test_rounds_in_numbers(by_hand, variant, tolerance):
    """With full batches D, D′ and D″ are the same samples: w' = Σ n_k/N (w − β·meta-gradient)."""
    trace = by_hand("perfedavg", *CLIENTS, rounds=3, alpha=ALPHA, variant=variant, delta=1e-2)
    w = np.zeros((2, 2))
    for _ in range(3):
        w = sum(
            len(y) / 7 * (w - 0.5 * meta_gradient(w, x, y, variant == "hf")) for x, y in CLIENTS
        )
    np.testing.assert_allclose(trace.outcome.state.tensors[WEIGHT].numpy(), w, rtol=tolerance)


def test_the_hessian_makes_a_difference(by_hand, tmp_path):
    w = np.ones((2, 2)) * [[1], [-1]]
    first_order = meta_gradient(w, *CLIENTS[0], False)
    with_hessian = meta_gradient(w, *CLIENTS[0], True)
    assert np.abs(first_order - with_hessian).max() > 0.01


def test_the_first_order_step_in_numbers(by_hand, one):
    """At zero ∇f = ∓½, so w̃ = ±0.15; there p = σ(0.3), and w moves by ½(1 − p)."""
    trace = by_hand("perfedavg", one, alpha=ALPHA)
    row = 0.5 * (1 - 1 / (1 + np.exp(-0.3)))
    np.testing.assert_allclose(
        trace.outcome.state.tensors[WEIGHT].numpy(), [[row, 0], [-row, 0]], rtol=1e-5
    )


def test_everybody_ends_a_few_steps_from_the_shared_weights(by_hand):
    """The last round: `adapt_epochs` full-batch steps of rate α, without momentum or decay."""
    options = {"alpha": ALPHA, "adapt_epochs": 2, "momentum": 0.9, "weight_decay": 0.1}
    trace = by_hand("perfedavg", *CLIENTS, rounds=2, **options)
    assert [row.stage for row in trace.rows] == ["train", "train", "adapt"]
    shared = trace.outcome.state.tensors[WEIGHT].double().numpy()
    for client, (x, y) in enumerate(CLIENTS):
        w = shared
        for _ in range(2):
            w = w - ALPHA * gradient(w, x, y)
        np.testing.assert_allclose(trace.own(client).tensors[WEIGHT].numpy(), w, rtol=1e-5)


def test_nothing_of_the_last_round_goes_up():
    exchanges = [e for e in Toy.of("perfedavg").run_apart().exchanges if e.order.kind == "adapt"]
    assert len(exchanges) == 4  # everybody, whoever trained
    assert all(dict(e.reply.tensors) == {} and e.reply.meta == {} for e in exchanges)


def test_the_three_batches_of_a_step_are_drawn_apart(monkeypatch):
    """D, D′ and D″ have separate random streams; that of D′ is the one by which FedAvg shuffles."""
    drawn = []

    def remember(net, *batches_and_options):
        drawn.append([batch.x.flatten().tolist() for batch in batches_and_options[:3]])
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return 0.0

    monkeypatch.setattr(perfedavg, "set_meta_gradient", remember)
    options = PerFedAvgOptions(network=f"{Path(__file__).parent}/linear.py:Zero", batch=2)
    data = Samples(torch.arange(16.0).view(16, 1, 1, 1), torch.zeros(16, dtype=torch.int64))
    task = Task(
        "perfedavg", options.model_dump(), "image", (1, 1, 1), ("no", "yes"), 7, (0.0,), (1.0,)
    )
    run = ClientRun(task, "train", 1, 0, 0, "cpu", bytes)
    method = PerFedAvg(options)
    method.client(
        Order(0, "train", weights_of(method.build(task, {})), {"lr": 0.1}), data, None, run
    )
    inner = []
    outer = []
    third = []
    for step in drawn:
        inner += step[0]
        outer += step[1]
        third += step[2]
    assert sorted(inner) == sorted(outer) == sorted(third) == list(range(16))
    assert inner != outer and outer != third and third != inner
    assert outer == torch.randperm(16, generator=run.rng("batches")).tolist()


def test_the_batch_of_the_hessian_is_a_third_one():
    """With another D″ the step is another one."""
    net = SmallCNN((1, 6, 6), 3, 0.125)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 1, 6, 6, generator=generator)
    y = torch.arange(8) % 3
    same = Samples(x[:4], y[:4])
    other = Samples(x[4:], y[4:])
    gradients = []
    for third in (same, other):
        set_meta_gradient(net.eval(), same, same, third, PerFedAvgOptions(variant="hf", alpha=1.0))
        gradients.append(net.classifier.weight.grad.clone())
    assert not torch.equal(*gradients)


def test_weights_come_back_to_the_bit():
    net = SmallCNN((1, 6, 6), 3, 0.125)
    parameters = list(net.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    directions = tuple(torch.rand_like(parameter) for parameter in parameters)
    with moved(parameters, directions, 0.1):
        for parameter, weights in zip(parameters, before, strict=True):
            assert not torch.equal(parameter, weights)
    for parameter, weights in zip(parameters, before, strict=True):
        assert torch.equal(parameter, weights)
