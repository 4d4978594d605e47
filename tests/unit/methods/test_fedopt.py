from math import copysign, sqrt

import numpy as np
import pytest
import torch

from fedloom.federation.protocol.method import shared
from fedloom.testing import Toy

WEIGHT = "net.weight"
ETA = 0.1
BETA1 = 0.9
BETA2 = 0.99
TAU = 1e-3
DELTA = [
    [0.25 / 3, -0.5],
    [-0.25 / 3, 0.5],
]  # FedAvg's first round from zero weights, see test_fedavg.py


def adam(v: float, d: float) -> float:
    return BETA2 * v + (1 - BETA2) * d * d


def yogi(v: float, d: float) -> float:
    return v - (1 - BETA2) * d * d * copysign(1, v - d * d)


def adagrad(v: float, d: float) -> float:
    return v + d * d


RULES = [("fedadam", BETA1, adam), ("fedyogi", BETA1, yogi), ("fedadagrad", 0.0, adagrad)]


@pytest.mark.parametrize(("method", "beta1", "second"), RULES)
def test_one_round_by_hand(by_hand, one, two, method, beta1, second):
    """m = (1 − β₁)Δ, v from τ² by the method's rule, w = η m / (√v + τ)."""
    trace = by_hand(method, one, two, server_lr=ETA, tau=TAU)

    def step(delta):
        return ETA * (1 - beta1) * delta / (sqrt(second(TAU**2, delta)) + TAU)

    expected = np.vectorize(step)(DELTA)
    np.testing.assert_allclose(trace.outcome.state.tensors[WEIGHT].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize(("method", "beta1", "second"), RULES)
def test_three_rounds_by_hand(by_hand, one, method, beta1, second):
    """Moments go on from round to round. On `one` the step from weights ±a is ½·(1 − σ(2a))."""
    trace = by_hand(method, one, rounds=3, server_lr=ETA, tau=TAU)
    a = 0.0
    m = 0.0
    v = TAU**2
    for _ in range(3):
        d = 0.5 * (1 - 1 / (1 + np.exp(-2 * a)))
        m = beta1 * m + (1 - beta1) * d
        v = second(v, d)
        a += ETA * m / (sqrt(v) + TAU)
    state = trace.outcome.state
    np.testing.assert_allclose(state.tensors[WEIGHT].numpy(), [[a, 0], [-a, 0]], rtol=1e-5)
    np.testing.assert_allclose(
        state.tensors[f"server/m/{WEIGHT}"].numpy(), [[m, 0], [-m, 0]], rtol=1e-5
    )
    assert state.tensors[f"server/v/{WEIGHT}"][0, 0].item() == pytest.approx(v, rel=1e-5)


def test_defaults_are_the_papers():
    """β₁ = 0.9 and β₂ = 0.99 (Adagrad: β₁ = 0), τ = 10⁻³."""
    for method, beta1, _ in RULES:
        options = Toy.of(method).task.options
        assert (options["beta1"], options["beta2"], options["tau"]) == (beta1, BETA2, TAU)
        assert options["server_optimizer"] == method.removeprefix("fed")


@pytest.mark.parametrize("method", ["fedadam", "fedyogi", "fedadagrad"])
def test_running_statistics_stay_plain_means(tmp_path, method):
    adaptive = Toy.of(method, rounds=1).run(tmp_path / "adaptive").outcome.state.tensors
    plain = Toy.of("fedavg", rounds=1).run(tmp_path / "plain").outcome.state.tensors
    statistics = [
        name for name in plain if "running_" in name or name.endswith("num_batches_tracked")
    ]
    assert len(statistics) == 9
    assert [name for name in statistics if not torch.equal(adaptive[name], plain[name])] == []
    assert not torch.equal(adaptive["net.classifier.weight"], plain["net.classifier.weight"])


def test_the_servers_moments_never_go_down(tmp_path):
    trace = Toy.of("fedadam").run(tmp_path)
    assert any(name.startswith("server/") for name in trace.outcome.state.tensors)
    names_sent = set()
    for exchange in trace.exchanges:
        names_sent.update(exchange.order.tensors)
    assert not any(name.startswith("server/") for name in names_sent)
    assert shared(trace.outcome.state).keys() == names_sent
