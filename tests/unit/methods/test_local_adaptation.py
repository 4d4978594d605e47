import shutil
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.server.events import RoundEnded
from fedloom.learning.training import TrainingOptions, model, weights_of
from fedloom.rng import torch_rng
from fedloom.testing import Toy
from fedloom.testing.engines import Stop
from fedloom.types import Order, Setup

OPTIONS = {"adapt_share": 0.4, "epochs": 2}  # of 5 rounds: 3 of FedAvg, 2 of fine-tuning


@pytest.fixture(scope="module")
def adapted():
    return Toy.of("local-adaptation", OPTIONS, rounds=5).run_apart()


@pytest.fixture(scope="module")
def averaged():
    return Toy.of("fedavg", {"epochs": 2}, rounds=3).run_apart()


def test_the_first_stage_is_fedavg(adapted, averaged):
    """The same curve, cosine and weights, to the bit, as FedAvg with the stage's 3 rounds."""
    for row, twin in zip(adapted.rows[:3], averaged.rows, strict=True):
        assert (row.round, row.progress, row.meta) == (twin.round, twin.progress, twin.meta)
    shared = adapted.outcome.state.tensors
    expected = averaged.outcome.state.tensors
    assert shared.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(shared[name], expected[name])] == []


def test_the_second_stage_is_fine_tuning(adapted):
    """Two rounds at a tenth of the rate, from the shared weights, by one optimiser, to the bit."""
    toy = Toy.of("local-adaptation", OPTIONS, rounds=5)
    for client in range(4):
        data = toy.data[client].train
        net = model(toy.task, TrainingOptions(width=0.125), adapted.outcome.state.tensors)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05 / 10, momentum=0.9, weight_decay=3e-4)
        for number in (4, 5):
            generator = torch_rng(7, number, 0, client, "batches")
            for _ in range(2):
                for chosen in torch.randperm(len(data), generator=generator).split(4):
                    if len(chosen) > 1:
                        optimizer.zero_grad()
                        functional.cross_entropy(net(data.x[chosen]), data.y[chosen]).backward()
                        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                        optimizer.step()
        own = adapted.own(client)
        assert own is not None
        assert [
            name
            for name, value in weights_of(net).items()
            if not torch.equal(own.tensors[name], value)
        ] == []


def test_the_shared_figure_is_fedavgs(adapted, averaged):
    figures = [client.shared for client in adapted.outcome.clients]
    assert figures == [client.shared for client in averaged.outcome.clients]


def test_everybody_is_sent_the_network_once(adapted):
    orders = []  # round, client and whether the network is in it
    for exchange in adapted.exchanges:
        order = exchange.order
        if order.kind == "adapt":
            orders.append((order.stamp.round, order.client, bool(order.tensors)))
            assert dict(exchange.reply.tensors) == {} and exchange.reply.meta == {}
    first = [(4, client, True) for client in range(4)]
    second = [(5, client, False) for client in range(4)]
    assert orders == first + second
    assert adapted.outcome.state.meta == {"started": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("rounds", "share", "lengths"),
    [
        (2, 0.2, [1, 1]),
        (3, 0.2, [2, 1]),
        (5, 0.2, [4, 1]),
        (7, 0.2, [6, 1]),
        (10, 0.2, [8, 2]),
        (4, 0.9, [1, 3]),
        (6, 0.5, [3, 3]),
    ],
)
def test_stages_share_the_rounds(by_hand, one, two, rounds, share, lengths):
    """The nearest whole number, at least one round each, all of them used."""
    rows = by_hand("local-adaptation", one, two, rounds=rounds, adapt_share=share).rows
    stages = [row.stage for row in rows]
    assert stages == ["train"] * lengths[0] + ["adapt"] * lengths[1]


def test_one_round_is_too_few(by_hand, one):
    with pytest.raises(FedloomError, match="--rounds must be at least 2"):
        by_hand("local-adaptation", one, rounds=1)


def test_the_rate_of_fine_tuning(by_hand, one):
    """By default a tenth of lr, whatever the schedule; `adapt_lr` sets it."""
    orders = [
        e.order
        for e in by_hand(
            "local-adaptation", one, rounds=4, adapt_share=0.5, schedule="cosine"
        ).exchanges
    ]
    assert [o.meta["lr"] for o in orders if o.kind == "adapt"] == [0.05, 0.05]
    toy = Toy.of("local-adaptation", {"adapt_lr": 0.3}, rounds=2)
    rates = [e.order.meta["lr"] for e in toy.run_apart().exchanges if e.order.kind == "adapt"]
    assert rates == [0.3] * 4


def test_two_steps_of_fine_tuning_in_numbers(by_hand, one, two):
    """Client 1 ([2, 4] of class 1) moves only the second column of [(1/12, −½), (−1/12, ½)]."""
    trace = by_hand("local-adaptation", one, two, rounds=2, adapt_lr=1.0)
    x = torch.tensor([2.0, 4.0])
    wrong = torch.sigmoid(-x)  # the shared scores are ∓x/2, so class 0 has p = σ(−x)
    row = -0.5 - (wrong * x).mean()
    own = trace.own(1)
    assert own is not None
    assert own.tensors["net.weight"][:, 1].tolist() == pytest.approx([row.item(), -row.item()])
    assert own.tensors["net.weight"][:, 0].tolist() == pytest.approx([1 / 12, -1 / 12])


def test_a_client_that_lost_its_state_gets_the_network_again(tmp_path):
    """With `lost_state = "fresh"` it misses the round in which it notices.

    In the next one it starts from the shared weights.
    """
    toy = replace(Toy.of("local-adaptation", {"adapt_share": 0.6}, rounds=5), lost_state="fresh")

    def stop_after_the_third(event):
        if isinstance(event, RoundEnded) and event.row.round == 3:
            raise Stop

    with pytest.raises(Stop):
        toy.run(tmp_path, listen=stop_after_the_third)
    shutil.rmtree(tmp_path / "clients" / "1")
    trace = toy.run(tmp_path)
    orders = [
        e
        for e in trace.exchanges
        if e.order.kind == "adapt" and e.order.client == 1 and e.answer is not None
    ]
    assert [(e.order.stamp.round, bool(e.order.tensors), e.reply.weight) for e in orders] == [
        (4, False, 0),
        (5, True, 5),
    ]
    assert [row.refused for row in trace.rows] == [()] * 5
    assert trace.last.versions == {0: "5.0", 1: "5.0", 2: "5.0", 3: "5.0"}


@pytest.mark.parametrize(
    ("method", "options", "stage"),
    [("local-adaptation", {}, "adapt"), ("perfedavg", {}, "adapt"),
     ("fedrep", {}, "heads"), ("fednas", {"personal": True}, "tune"),
     ("fednas", {"personal": True}, "cut")],
)  # fmt: skip
def test_a_personal_model_that_diverges_is_told_to_the_observer_alone(method, options, stage):
    """The reply is that of any other client, and what the client had can still be evaluated."""
    toy = Toy.of(method, {**options, "weight_decay": 1e6, "batch": 100})
    first = toy.stages[0].method
    chosen = next(one.method for one in toy.stages if one.name == stage)
    shared = first.init(Setup(toy.task, 4), None)
    order = Order(0, "adapt", shared.tensors, {"lr": 3e38})
    data = toy.data[0].train
    run = ClientRun(toy.task, stage, 4, 0, 0, "cpu", bytes)
    reply, own = chosen.client(order, data, None, run)
    assert reply.weight == len(data) and not reply.tensors and not reply.meta
    assert chosen.observe(own, 4) == {"diverged": 1}
    again, own = chosen.client(order, data, own, run)
    assert again == reply and chosen.observe(own, 4) == {"diverged": 2}
    assert torch.isfinite(chosen.network(order, data, own, run).eval()(data.x)).all()
