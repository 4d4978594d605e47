"""Ditto against its paper: Algorithm 1."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from textbook import gradient

from fedloom.config.models import validated
from fedloom.errors import FedloomError
from fedloom.learning.training import weights_of
from fedloom.methods.ditto import DittoOptions
from fedloom.networks.building import build_model
from fedloom.testing import Toy
from fedloom.testing.toy import unlike

WEIGHT = "net.weight"
CLIENTS = (
    ([(1, 0.5), (-1, 2)], [0, 1]),
    ([(0.5, 0.5), (2, -1), (1, 1)], [1, 0, 1]),
    ([(3, 1), (2, 2)], [1, 0]),
)


def by_the_book(rounds: int, lam: float, lr: float = 0.5, v_lr: float = 0.5, v_epochs: int = 1):
    """Algorithm 1 with full batches, from zero: w by FedAvg, v pulled towards the received w."""
    w = np.zeros((2, 2))
    vs = [np.zeros((2, 2)) for _ in CLIENTS]
    for _ in range(rounds):
        for _ in range(v_epochs):
            pairs = zip(vs, CLIENTS, strict=True)
            vs = [v - v_lr * (gradient(v, x, y) + lam * (v - w)) for v, (x, y) in pairs]
        w = sum(len(y) / 7 * (w - lr * gradient(w, x, y)) for x, y in CLIENTS)
    return w, vs


@pytest.mark.parametrize(
    ("options", "book"),
    [
        ({"lam": 0.7}, {"lam": 0.7}),
        ({"lam": 0.7, "v_lr": 0.2}, {"lam": 0.7, "v_lr": 0.2}),
        ({"lam": 1.5, "v_epochs": 3}, {"lam": 1.5, "v_epochs": 3}),
        ({"lam": 0.0}, {"lam": 0.0}),
    ],
)
def test_three_rounds_in_numbers(by_hand, options, book):
    trace = by_hand("ditto", *CLIENTS, rounds=3, **options)
    w, vs = by_the_book(3, **book)
    np.testing.assert_allclose(trace.outcome.state.tensors[WEIGHT].numpy(), w, rtol=1e-5)
    for client, v in enumerate(vs):
        np.testing.assert_allclose(trace.own(client).tensors[WEIGHT].numpy(), v, rtol=1e-5)


def test_the_personal_rate_follows_the_schedule(by_hand):
    """Two rounds of a cosine: both rates at their full value first, at half of it then."""
    trace = by_hand("ditto", *CLIENTS, rounds=2, lam=0.7, v_lr=0.2, schedule="cosine")
    w = np.zeros((2, 2))
    vs = [np.zeros((2, 2)) for _ in CLIENTS]
    for share in (1.0, 0.5):
        vs = [
            v - share * 0.2 * (gradient(v, x, y) + 0.7 * (v - w))
            for v, (x, y) in zip(vs, CLIENTS, strict=True)
        ]
        w = sum(len(y) / 7 * (w - share * 0.5 * gradient(w, x, y)) for x, y in CLIENTS)
    for client, v in enumerate(vs):
        np.testing.assert_allclose(trace.own(client).tensors[WEIGHT].numpy(), v, rtol=1e-5)


def test_the_second_round_feels_the_weights_received_then(by_hand, one, two):
    """After round 1, v = ±¼ and w = ±1/12. In round 2, p = σ(½), the pull is λ(¼ − 1/12) = λ/6."""
    trace = by_hand("ditto", one, two, rounds=2, lam=0.6)
    p = 1 / (1 + np.exp(-0.5))
    row = 0.25 - 0.5 * (-(1 - p) + 0.6 / 6)
    own = trace.own(0).tensors[WEIGHT]
    assert own[:, 0].tolist() == pytest.approx([row, -row])
    assert own[:, 1].tolist() == pytest.approx(
        [0.5 * 0.6 * -0.5, 0.5 * 0.6 * 0.5]
    )  # only w has this column: −½


def test_the_shared_model_is_fedavgs(tmp_path):
    """To the bit, whatever v does."""
    mine = Toy.of("ditto", {"lam": 1.0, "epochs": 2, "v_epochs": 1}).run(tmp_path / "ditto")
    avg = Toy.of("fedavg", {"epochs": 2}).run(tmp_path / "avg")
    shared = replace(mine.outcome.state, meta=avg.outcome.state.meta)
    assert unlike(shared, avg.outcome.state) == []
    assert [client.shared for client in mine.outcome.clients] == [
        client.shared for client in avg.outcome.clients
    ]


def test_without_the_pull_it_is_local_training(tmp_path):
    """λ = 0 and a kept optimiser: v has the bits of the `local` method, momentum included."""
    options = {"epochs": 2}
    ditto = Toy.of("ditto", {**options, "lam": 0.0, "optimizer_state": "keep"}).run(
        tmp_path / "ditto"
    )
    alone = Toy.of("local", {**options, "constants": "fixed"}).run(tmp_path / "local")
    for client in range(4):
        assert unlike(replace(ditto.own(client), meta={}), alone.own(client)) == []


def test_the_optimiser_of_v_is_reset_unless_kept(tmp_path):
    reset = Toy.of("ditto", {"optimizer_state": "reset"}).run(tmp_path / "reset").own(0).tensors
    with_state = Toy.of("ditto", {"optimizer_state": "keep"}).run(tmp_path / "keep").own(0).tensors
    assert not any(name.startswith("momentum/") for name in reset)
    assert any(name.startswith("momentum/") for name in with_state)
    assert not torch.equal(reset["net.classifier.weight"], with_state["net.classifier.weight"])


def test_a_personal_model_that_diverges_stays_as_it_was_and_the_reply_goes_up():
    """A refused reply would reveal it. The observer of a simulation sees it."""
    trace = Toy.of(
        "ditto", {"v_lr": 1e19, "lam": 0.0, "clip": 1e30, "v_epochs": 9}, rounds=2
    ).run_apart()
    start = weights_of(build_model(Toy.of("ditto").task, "cnn", 0.125))
    assert [row.refused for row in trace.rows] == [(), ()]
    client = next(iter(trace.last.versions))
    own = trace.own(client)
    assert own.meta["diverged"] >= 1 and trace.rows[0].observed
    assert torch.equal(own.tensors["net.classifier.weight"], start["net.classifier.weight"])


def test_a_personal_model_that_its_last_step_broke_stays_as_it_was():
    """One step only, so its loss was finite."""
    trace = Toy.of(
        "ditto", {"v_lr": 3e38, "lam": 0.0, "weight_decay": 1e6, "batch": 10_000}, rounds=1
    ).run_apart()
    start = weights_of(build_model(Toy.of("ditto").task, "cnn", 0.125))
    own = trace.own(next(iter(trace.last.versions)))
    assert own.meta["diverged"] == 1
    assert torch.equal(own.tensors["net.classifier.weight"], start["net.classifier.weight"])


@pytest.mark.parametrize(
    "options",
    [
        {"lam": 40, "lr": 0.05},
        {"lam": 2, "lr": 0.05, "v_lr": 1.0},
        {"lr": 20.0},
        {"lam": -0.1},
        {"lam": "inf"},
        {"lam": "nan"},
    ],
)
def test_a_pull_that_cannot_converge_is_refused(options):
    with pytest.raises(FedloomError, match=r"`options\.lam` must be"):
        validated(DittoOptions, options, prefix="options.")


def test_a_pull_that_converges_is_not():
    assert DittoOptions(lam=39.9, lr=0.05).lam == 39.9
    assert DittoOptions(lam=3, lr=1.0, v_lr=0.5).lam == 3
