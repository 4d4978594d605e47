import math

import numpy as np
import torch

from fedloom.testing import Toy, differences
from fedloom.testing.toy import unlike

WEIGHT = "net.weight"


def test_without_the_pull_it_is_fedavg(tmp_path):
    """μ = 0: every checkpoint has FedAvg's bits."""
    prox = Toy.of("fedprox", {"mu": 0.0, "epochs": 2}).run(tmp_path / "prox")
    avg = Toy.of("fedavg", {"epochs": 2}).run(tmp_path / "avg")
    assert differences(prox, avg, ledger=False) == []


def test_the_pull_changes_the_result(tmp_path):
    prox = Toy.of("fedprox", {"mu": 1.0, "epochs": 2}).run(tmp_path / "prox")
    avg = Toy.of("fedavg", {"epochs": 2}).run(tmp_path / "avg")
    assert "net.classifier.weight" in unlike(prox.outcome.state, avg.outcome.state)


def test_two_steps_in_numbers(by_hand, one):
    """Step 1 has no pull yet: w = ±¼. Step 2: p = σ(½), ∇F = ∓(1 − p), and the pull adds μ·(±¼)."""
    trace = by_hand("fedprox", one, epochs=2, mu=1.0)
    p = 1 / (1 + math.exp(-0.5))
    row = 0.25 - 0.5 * (-(1 - p) + 1.0 * 0.25)
    weight = trace.outcome.state.tensors[WEIGHT]
    np.testing.assert_allclose(weight.numpy(), [[row, 0], [-row, 0]], rtol=1e-6)


def test_the_first_step_of_a_round_is_fedavgs(by_hand, one, two):
    trace = by_hand("fedprox", one, two, mu=1e6)
    assert torch.equal(
        trace.outcome.state.tensors[WEIGHT], torch.tensor([[0.25 / 3, -0.5], [-0.25 / 3, 0.5]])
    )


def test_the_pull_is_towards_this_rounds_weights(by_hand, one):
    """Two rounds of one step each never feel it: each round starts at its own anchor."""
    trace = by_hand("fedprox", one, rounds=2, mu=1.0)
    p = 1 / (1 + math.exp(-0.5))
    row = 0.25 + 0.5 * (1 - p)
    np.testing.assert_allclose(
        trace.outcome.state.tensors[WEIGHT].numpy(), [[row, 0], [-row, 0]], rtol=1e-6
    )
