"""The MACs of a client's training by formula: exactly what a meter shows."""

import pytest
import torch
from torch import nn

from every_network import task_of
from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples, batched
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.training import SgdOptions, model
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Order, Reply

NETWORKS = {
    "cnn": "image",
    "densenet": "image",
    "resnet18": "image",
    "lstm": "text",
    "mlp": "table",
}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 9])
def test_a_last_batch_of_one_is_left_out(count, size):
    data = Samples(torch.zeros(count, 1), torch.zeros(count))
    in_batches = sum(len(batch) for batch in data.batches(size)) if count else 0
    assert batched(count, size) == in_batches


def test_the_cost_of_a_sample_by_hand():
    """The first layer has no gradient of its input: it costs twice its forward pass.

    The others cost three times theirs.
    """
    net = nn.Sequential(
        nn.Conv2d(3, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 8 * 8, 3)
    )
    convolution = 8 * 8 * 2 * 3 * 9
    linear = 128 * 3
    cost = SampleCost.of(net, task_of("image", (3, 8, 8)), SgdOptions())
    assert cost == SampleCost(forward=convolution + linear, training=2 * convolution + 3 * linear)
    options = SgdOptions(epochs=3, batch=4)
    assert cost.of_training(9, options) == 3 * 8 * cost.training
    assert cost.of_averaged_training(9, options) == 3 * 8 * cost.training


@pytest.mark.parametrize("bn", ["averaged", "received", "frozen"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_meter_at_the_client_shows_the_same(network, bn):
    task = task_of(NETWORKS[network], (3, 8, 8))
    options = FedAvgOptions(network=network, width=0.125, epochs=2, batch=4, bn=bn)
    method = FedAvg(options)
    x = (
        torch.rand(9, *task.shape)
        if task.kind != "text"
        else torch.zeros(9, *task.shape, dtype=torch.uint8)
    )
    data = Samples(x, torch.arange(9) % 3)
    order = Order(0, "train", dict(model(task, options).state_dict()), {"lr": 0.01})
    run = ClientRun(task, "train", 1, 0, 0, "cpu", lambda: b"")
    with Meter() as meter:
        reply, _ = method.client(order, data, None, run)
    assert method.macs_by_formula(task, order, reply) == meter.macs > 0


@pytest.mark.parametrize(("weight", "samples"), [(7, 7), (7.0, 7), (0, 0), ({"w": 7.0}, 0)])
def test_samples_are_the_weight(weight, samples):
    assert samples_of(Reply(0, weight=weight)) == samples
