"""HeteroFL: one width a tier, a scaler, static BN and a masked loss."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.data.samples import ClientData, Samples
from fedloom.methods.heterofl import (
    classes_missing,
    masked,
    scaled_tensors,
    scaler,
    stages,
    with_scaler,
)
from fedloom.nets.cnn import SmallCNN
from fedloom.nets.lstm import CharLSTM
from fedloom.nets.model import Model, seeded
from fedloom.testing import Toy
from fedloom.testing.toy import LABELS, samples


def with_all_classes(count, *path):
    drawn = samples(count, *path)
    return Samples(drawn.x, torch.arange(count) % len(LABELS))


def everybody_has_all_classes():
    clients = []
    for client, size in enumerate((7, 5, 8, 6)):
        part = with_all_classes(size, client, "train")
        clients.append(ClientData(train=part, validation=part, test=part))
    return tuple(clients)


def test_with_one_tier_it_is_fedavg(tmp_path):
    """Bit for bit in every weight; its last round asks for statistics, so there is one more."""
    data = everybody_has_all_classes()
    fedavg = replace(Toy.of("fedavg", rounds=2), data=data).run(tmp_path / "fedavg")
    options = {"widths": [1.0]}
    heterofl = replace(Toy.of("heterofl", options, rounds=3), data=data).run(tmp_path / "heterofl")
    trained = fedavg.outcome.state.tensors
    ours = heterofl.outcome.state.tensors
    names = [name for name in ours if not name.startswith("statistics/")]
    assert names and all(torch.equal(ours[name], trained[name]) for name in names)
    statistics = {name for name in trained if name not in names}
    assert {name.removeprefix("statistics/1/") for name in ours if name not in names} == statistics


@pytest.fixture(scope="module")
def halves():
    toy = Toy.of("heterofl", {"widths": [0.5, 1.0], "batch": 8}, rounds=2)
    return replace(toy, participation=1.0, data=everybody_has_all_classes())


@pytest.fixture(scope="module")
def trace(halves):
    return halves.run_apart()


def test_no_statistics_cross_while_training(halves, trace):
    kinds = []
    for exchange in trace.exchanges:
        order = exchange.order
        if order.kind == "train":
            messages = [*order.tensors, *exchange.reply.tensors]
            assert not any("running" in name or "tracked" in name for name in messages)
        kinds.append(order.kind)
    assert kinds.count("train") == 4 and kinds.count("statistics") == 4


def test_statistics_of_the_finished_network(halves, trace):
    """They are the mean by samples over clients of the tier and above; the first layer by hand."""
    state = trace.outcome.state
    weight = state.tensors["net.features.0.weight"]
    for width, channels, tiers in ((0.5, 1, (1, 2)), (1.0, 2, (2,))):
        total = 0.0
        weights = 0
        for client, tier in enumerate(halves.tiers.of_client):
            if tier not in tiers:
                continue
            x = (halves.data[client].train.x - 100) / 80
            outputs = functional.conv2d(x, weight[:channels], padding=1) / width
            total += len(x) * outputs.mean((0, 2, 3))
            weights += len(x)
        running_mean = state.tensors[f"statistics/{width:g}/net.features.1.running_mean"]
        assert state.meta["collected"] == [0.5, 1.0]
        assert torch.allclose(running_mean, total / weights, atol=1e-5), width


def test_a_network_is_evaluated_with_the_statistics_that_were_collected(trace):
    final = [e.order for e in trace.exchanges if e.order.kind == "evaluate"][-1]
    assert any(name.startswith("statistics/") for name in final.tensors)


def test_without_bn_nobody_is_asked_for_statistics(halves):
    text = replace(halves.task, kind="text", shape=(5,), mean=(), std=())
    assert [stage.name for stage in stages(halves.task)] == ["train", "statistics"]
    assert [stage.name for stage in stages(text)] == ["train"]


@pytest.mark.parametrize(
    ("network", "shape", "width", "x"),
    [
        (SmallCNN, (1, 8, 8), 0.125, torch.linspace(0, 1, 128).view(2, 1, 8, 8)),
        (CharLSTM, (5,), 1 / 64, torch.tensor([[0, 1, 2, 0, 1]])),
    ],
    ids=["cnn", "lstm"],
)
def test_weights_with_the_scaler_in_them_need_none(network, shape, width, x):
    """Without BN between, the folded network gives what the hooked one does."""
    with seeded(0):  # so small a network is dead for some draws, and then answers a constant
        net = Model(network(shape, 3, width), (), ()).eval()
    with scaler(net, 0.25):
        hooked = net(x)
    plain = net(x)
    folded = with_scaler(net.state_dict(), scaled_tensors(net), 0.25)
    net.load_state_dict(folded)
    assert torch.allclose(net(x), hooked, atol=1e-6)
    assert not torch.allclose(plain, hooked)


def test_the_scaler_divides_all_but_the_last_layer():
    net = Model(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), (), ())
    for parameter in net.parameters():
        nn.init.ones_(parameter)
    with scaler(net, 0.5):
        assert net(torch.tensor([[1.0]])).item() == 2 / 0.5 + 1
    assert net(torch.tensor([[1.0]])).item() == 3


def test_missing_classes_stay_out_of_the_loss():
    data = Samples(torch.zeros(3, 2), torch.tensor([0, 2, 0]))
    missing = classes_missing(data, 4)
    assert missing.tolist() == [False, True, False, True]
    net = nn.Linear(2, 4)
    with masked(net, missing):
        scores = net(torch.ones(1, 2))
        functional.cross_entropy(scores, torch.tensor([2])).backward()
    assert scores[0, 1] == scores[0, 3] == 0 and scores[0, 0] != 0
    assert net.weight.grad[1].abs().sum() == net.weight.grad[3].abs().sum() == 0
    assert net.weight.grad[0].abs().sum() > 0
    assert net(torch.ones(1, 2))[0, 1] != 0
