import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import weights_of
from fedloom.methods import local, stages
from fedloom.methods.local import moments
from fedloom.networks.building import build_model
from fedloom.rng import torch_rng
from fedloom.runs.configure import configure
from fedloom.runs.preparing import prepare
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Order

ROUNDS = 3
LR = 0.05
MOMENTUM = 0.9


def trained_alone(toy: Toy, client: int) -> tuple[dict, dict]:
    """Plain centralised training on one client's data, with one optimiser for all steps."""
    data = toy.data[client].train
    x = data.x.double()
    net = build_model(toy.task, "cnn", 0.125, [x.mean().item()], [x.std(correction=0).item()])
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=3e-4)
    for number in range(ROUNDS):
        optimizer.param_groups[0]["lr"] = LR * 0.5 * (1 + math.cos(math.pi * number / ROUNDS))
        generator = torch_rng(7, number + 1, 0, client, "batches")
        for _ in range(2):
            for chosen in torch.randperm(len(data), generator=generator).split(4):
                if len(chosen) > 1:
                    optimizer.zero_grad()
                    functional.cross_entropy(net(data.x[chosen]), data.y[chosen]).backward()
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                    optimizer.step()
    buffers = {
        f"momentum/{n}": optimizer.state[p]["momentum_buffer"] for n, p in net.named_parameters()
    }
    return weights_of(net), buffers


def test_every_client_is_centralised_training(tmp_path):
    """Weights and kept momentum, bit for bit, whatever the others do."""
    toy = replace(Toy.of("local", {"epochs": 2}, ROUNDS), participation=1.0)
    trace = toy.run(tmp_path)
    for client in range(4):
        own = trace.own(client)
        weights, momentum = trained_alone(toy, client)
        assert own is not None and own.tensors.keys() == {*weights, *momentum}
        wrong = [
            name
            for name, value in {**weights, **momentum}.items()
            if not torch.equal(own.tensors[name], value)
        ]
        assert (client, wrong) == (client, [])


def test_nothing_crosses_but_a_learning_rate_and_a_count(tmp_path):
    trace = Toy.of("local").run(tmp_path)
    work = [exchange for exchange in trace.exchanges if exchange.order.kind == "train"]
    assert len(work) == 12
    for exchange in work:
        assert dict(exchange.order.tensors) == {} and set(exchange.order.meta) == {"lr"}
        assert dict(exchange.reply.tensors) == {} and exchange.reply.meta == {}
        assert exchange.reply.weight == len(Toy.of("local").data[exchange.order.client].train)
    assert (trace.outcome.state.tensors, trace.outcome.state.meta) == ({}, {})


def test_there_is_no_shared_figure(tmp_path):
    clients = Toy.of("local").run(tmp_path).outcome.clients
    assert [client.shared for client in clients] == [None] * 4
    assert all(client.own.figures.samples == 4 for client in clients)


def test_who_never_trained_answers_with_the_first_network(tmp_path):
    trace = replace(Toy.of("local", rounds=1), participation=0.25).run(tmp_path)
    assert len(trace.owns) == 1
    assert [client.own.figures is not None for client in trace.outcome.clients] == [True] * 4


@pytest.mark.parametrize("chunk", [1, 4, 4096])
def test_moments_are_the_clients_own(chunk, monkeypatch):
    """Whether they are computed at once or piece by piece."""
    monkeypatch.setattr(local, "CHUNK", chunk)
    data = samples(6, "moments")
    mean, std = moments(replace(data, x=torch.cat([data.x, 10 * data.x + 3], dim=1)), (1.0, 1.0))
    first = data.x.double()
    assert mean == pytest.approx([first.mean().item(), 10 * first.mean().item() + 3])
    assert std == pytest.approx(
        [first.std(correction=0).item(), 10 * first.std(correction=0).item()]
    )


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, -1e6])
@pytest.mark.parametrize("count", [3, 7])
def test_a_constant_channel_keeps_the_data_sets_deviation(value, count):
    """Dividing by almost nothing would make another value of it huge."""
    data = samples(count, "constant")
    assert moments(replace(data, x=torch.full_like(data.x, value)), (80.0,))[1] == [80.0]


def constants_of(toy, **options):
    """Of the network that a client uses, for training and evaluation alike."""
    task = replace(toy.task, options={**toy.task.options, **options})
    method = stages(task)[0].method
    data = toy.data[1].train
    net = method.network(
        Order(1, "train"), data, None, ClientRun(task, "train", 1, 0, 1, "cpu", bytes)
    )
    return net.mean.flatten().tolist(), net.std.flatten().tolist()


def test_only_a_purely_local_model_has_the_clients_own_constants():
    toy = Toy.of("local")
    x = toy.data[1].train.x.double()
    own = ([pytest.approx(x.mean().item())], [pytest.approx(x.std(correction=0).item())])
    assert constants_of(toy) == own and own != ([100.0], [80.0])
    assert constants_of(toy, constants="fixed") == ([100.0], [80.0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "own"), ({"mean": [3.0]}, "fixed"), ({"std": [2.0]}, "fixed")],
)
def test_constants_that_the_user_gives_are_for_every_method(given, expected):
    """An option that one method ignored would be no option."""
    data = {"name": "digits", "clients": 3, "partition": "iid", **given}
    prepared = prepare(configure("local", {"data": data}))
    assert prepared.task.options["constants"] == expected
    asked = prepare(configure("local", {"data": data, "options": {"constants": "own"}}))
    assert asked.task.options["constants"] == "own"
    shared = prepare(configure("fedavg", {"data": data})).task
    assert "constants" not in shared.options
    assert (shared.mean, shared.std) == (
        tuple(given.get("mean", [4.8842])),
        tuple(given.get("std", [6.0168])),
    )
