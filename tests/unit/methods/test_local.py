import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedloom.methods.local import moments
from fedloom.nets.model import build_model
from fedloom.rng import torch_rng
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.training import weights_of

ROUNDS, LR, MOMENTUM = 3, 0.05, 0.9


def trained_alone(toy: Toy, client: int) -> tuple[dict, dict]:
    """Plain centralised training on one client's data: one optimiser from the first step to the last."""
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
    buffers = {f"momentum/{n}": optimizer.state[p]["momentum_buffer"] for n, p in net.named_parameters()}
    return weights_of(net), buffers


def test_every_client_is_centralised_training(tmp_path):
    """Weights and kept momentum, bit for bit, whatever the others do."""
    toy = replace(Toy.of("local", {"epochs": 2}, ROUNDS), participation=1.0)
    trace = toy.run(tmp_path)
    for client in range(4):
        own = trace.own(client)
        weights, momentum = trained_alone(toy, client)
        assert own is not None and own.tensors.keys() == {*weights, *momentum}
        wrong = [name for name, value in {**weights, **momentum}.items() if not torch.equal(own.tensors[name], value)]
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
    rows = Toy.of("local").run(tmp_path).outcome.clients
    assert [row["shared"] for row in rows] == [None] * 4
    assert all(row["personal"]["samples"] == 4 for row in rows)


def test_who_never_trained_answers_with_the_first_network(tmp_path):
    trace = replace(Toy.of("local", rounds=1), participation=0.25).run(tmp_path)
    assert len(trace.owns) == 1
    assert [row["personal"] is not None for row in trace.outcome.clients] == [True] * 4


def test_moments_are_the_clients_own():
    data = samples(6, "moments")
    mean, std = moments(replace(data, x=torch.cat([data.x, 10 * data.x + 3], dim=1)))
    first = data.x.double()
    assert mean == pytest.approx([first.mean().item(), 10 * first.mean().item() + 3])
    assert std == pytest.approx([first.std(correction=0).item(), 10 * first.std(correction=0).item()])


def test_a_constant_channel_has_a_positive_spread():
    data = samples(3, "constant")
    assert moments(replace(data, x=torch.full_like(data.x, 5)))[1] == [1e-6]
