"""ZeroFL: layers compute with their largest weights, and only those go up."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedloom.cost.meter import Meter
from fedloom.learning.sparse import fault_in, largest, packed, sparse_layers, sparse_names, unpacked
from fedloom.methods import stages
from fedloom.nets.lstm import CharLSTM
from fedloom.testing import Toy
from fedloom.testing.watch import ServerLog
from fedloom.types import Order, Reply, State


def test_without_sparsity_it_is_fedavg(tmp_path):
    """Bit for bit, statistics and figures included."""
    fedavg = Toy.of("fedavg", rounds=2).run(tmp_path / "fedavg").outcome
    zerofl = Toy.of("zerofl", {"sparsity": 0.0}, rounds=2).run(tmp_path / "zerofl").outcome
    theirs = fedavg.state.tensors
    ours = {}
    for name, tensor in zerofl.state.tensors.items():
        ours[name.removeprefix("statistics/1/")] = tensor
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    for one, other in zip(zerofl.clients, fedavg.clients, strict=True):
        assert one.own.figures == other.own.figures


def test_a_linear_layer_by_hand():
    """W = [[3, 1], [½, −4]] keeps 3 and −4. Of x = (1, 5), (2, −1) it learns only from 5 and 2."""
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.tensor([[3.0, 1.0], [0.5, -4.0]])
    x = torch.tensor([[1.0, 5.0], [2.0, -1.0]], requires_grad=True)
    with sparse_layers(layer, 0.5):
        y = layer(x)
        (y * torch.tensor([[1.0, 2.0], [10.0, 20.0]])).sum().backward()
    assert y.tolist() == [[3, -20], [6, 4]]
    assert x.grad.tolist() == [[3, -8], [30, -80]]  # gradients times the pruned weights
    # Σ g·x over samples, where x is (0, 5) and (2, 0)
    assert layer.weight.grad.tolist() == [[20, 5], [40, 10]]
    assert layer.weight.tolist() == [[3, 1], [0.5, -4]]  # all of it is still there


def test_a_convolution_by_hand():
    """A 1×1 convolution is a linear layer at every pixel."""
    conv = nn.Conv2d(2, 1, 1, bias=False)
    conv.weight.data = torch.tensor([2.0, -3.0]).view(1, 2, 1, 1)
    x = torch.tensor([4.0, 1.0, 2.0, 3.0]).view(1, 2, 1, 2).requires_grad_()  # (4, 1) and (2, 3)
    with sparse_layers(conv, 0.5):
        y = conv(x)
        y.sum().backward()
    assert y.flatten().tolist() == [-6, -9]
    assert x.grad.flatten().tolist() == [0, 0, -3, -3]
    assert conv.weight.grad.flatten().tolist() == [
        4,
        3,
    ]  # of 4, 1, 2 and 3 the largest two are 4 and 3


def test_a_recurrent_layer_computes_with_its_largest_weights():
    net = CharLSTM((5,), 3, 1 / 64)
    x = torch.tensor([[0, 1, 2, 0, 1]])
    with sparse_layers(net, 0.9):
        sparse = net(x)
    for name in sparse_names(net):
        tensor = net.get_parameter(name)
        tensor.data = tensor.data * largest(tensor, 0.1)
    assert torch.allclose(sparse, net(x), atol=1e-6)
    assert "embedding.weight" not in sparse_names(net)
    assert "recurrent.weight_hh_l1" in sparse_names(net)


def test_the_meter_counts_dense_macs():
    conv = nn.Conv2d(2, 4, 3, padding=1)
    counts = []
    for sparsity in (0.0, 0.9):
        with Meter() as meter, sparse_layers(conv, sparsity):
            conv(torch.rand(1, 2, 5, 5, requires_grad=True)).sum().backward()
        counts.append(meter.macs)
    assert counts[0] == counts[1] == 3 * 25 * 4 * 2 * 9


def test_the_kept_part_there_and_back():
    tensor = torch.tensor([[0.1, -5.0, 0.2], [3.0, 0.0, 0.3]])
    parts = packed("w", tensor, 1 / 3)
    assert parts["kept/w"].tolist() == [-5, 3]
    assert parts["bits/w"].tolist() == [0b01010000]
    assert unpacked(parts, "w", torch.zeros(2, 3)).tolist() == [[0, -5, 0], [3, 0, 0]]
    assert unpacked(parts, "w", torch.ones(2, 3)).tolist() == [[1, -5, 1], [3, 1, 1]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kept/w": torch.ones(3)}, "not 2 numbers"),
        ({"kept/w": torch.ones(2, dtype=torch.float64)}, "not 2 numbers"),
        ({"bits/w": torch.zeros(2, dtype=torch.uint8)}, "not a bit for each of 6"),
        ({"bits/w": torch.tensor([0b11100000], dtype=torch.uint8)}, "not 2 of 6"),
        ({"bits/w": torch.tensor([0b10000001], dtype=torch.uint8)}, "not 2 of 6"),
        ({"bits/w": torch.tensor([3])}, "not a bit for each"),
    ],
)
def test_a_dishonest_kept_part(change, words):
    weights = torch.zeros(2, 3)
    honest = packed("w", torch.arange(6.0).view(2, 3), 1 / 3)
    assert fault_in(honest, "w", weights, 1 / 3) is None
    assert words in fault_in({**honest, **change}, "w", weights, 1 / 3)
    assert "missing" in fault_in({"kept/w": honest["kept/w"]}, "w", weights, 1 / 3)


@pytest.fixture(scope="module")
def sparse_run():
    log = ServerLog()
    toy = replace(
        Toy.of("zerofl", {"sparsity": 0.5, "widths": [0.5, 1.0]}, rounds=2), participation=1.0
    )
    return toy, toy.run_apart(server=log.watch), log


def test_less_goes_up_than_down(sparse_run):
    _, trace, _ = sparse_run
    work = [exchange for exchange in trace.exchanges if exchange.order.kind == "train"]
    for exchange in work:
        tensor = exchange.order.tensors["net.classifier.weight"]
        assert exchange.reply.tensors["kept/net.classifier.weight"].numel() == tensor.numel() // 2
        assert "net.classifier.weight" not in exchange.reply.tensors
        assert "net.classifier.bias" in exchange.reply.tensors


def test_the_mean_of_those_who_bring_an_element(sparse_run):
    """Element by element, of narrow and wide clients; what nobody brings stays."""
    _, _, log = sparse_run
    merge = log.merges[0]
    name = "net.features.4.weight"
    old = merge.state.tensors[name]
    total = np.zeros(old.shape)
    weights = np.zeros(old.shape)
    for order, reply in zip(merge.orders, merge.replies, strict=True):
        shape = order.tensors[name].shape
        nan = torch.full(shape, torch.nan, dtype=torch.float64)
        values = unpacked(reply.tensors, name, nan).numpy()
        for index in np.ndindex(*shape):
            if not np.isnan(values[index]):
                total[index] += reply.weight * values[index]
                weights[index] += reply.weight
    expected = np.where(weights > 0, total / np.maximum(weights, 1), old.numpy())
    new = merge.method.merge(merge.state, merge.orders, merge.replies, merge.round)
    np.testing.assert_allclose(new.tensors[name].numpy(), expected, rtol=1e-6)
    assert (weights == 0).any() and (weights > 0).any()


def test_a_reply_that_brings_another_part_is_refused(sparse_run):
    toy, trace, _ = sparse_run
    method = stages(toy.task)[0].method
    exchange = next(exchange for exchange in trace.exchanges if exchange.order.kind == "train")
    tensors = dict(exchange.reply.tensors)
    for change, words in (
        ({"kept/net.unknown": torch.ones(1)}, "undeclared"),
        ({"net.classifier.weight": torch.ones(1)}, "has all of"),
        ({"kept/net.classifier.weight": torch.ones(1)}, "kept part of"),
    ):
        reply = replace(exchange.reply, tensors={**tensors, **change})
        assert words in method.check_reply(exchange.order, reply, 5)
    del tensors["net.classifier.bias"]
    assert "missing" in method.check_reply(
        exchange.order, replace(exchange.reply, tensors=tensors), 5
    )


def test_how_far_a_kept_part_moves_the_model(sparse_run):
    """An absurd number in it is measured like one in a whole tensor."""
    toy, _, _ = sparse_run
    method = stages(toy.task)[0].method
    weights = {"w": torch.ones(2, 3)}
    order = Order(0, "train", weights, {"sparse": ["w"]})
    reply = Reply(0, packed("w", torch.tensor([[1e30, 0, 0], [0, 2, 0]]), 1 / 3))
    update = method.update_of(order, reply)
    assert update["w"].tolist() == [[pytest.approx(1e30), 1, 1], [1, 2, 1]]


def test_a_network_is_evaluated_with_its_kept_weights(sparse_run):
    toy, _, log = sparse_run
    method = stages(toy.task)[0].method
    state = log.merges[-1].state
    order = method.serve(State(state.tensors, state.meta), 0)
    run = type("Run", (), {"task": toy.task, "device": "cpu"})()
    net = method.network(order, None, None, run)
    weight = net.get_parameter("net.features.4.weight")
    assert (weight == 0).sum() == weight.numel() // 2
