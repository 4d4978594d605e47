"""The client side of auto: what it trains on, what it counts on, and which network counts as whose.

Decisions are worth something only if they are made on samples that nobody has trained on yet.
"""

import pytest
import torch

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.judging import held_back, validation_sums
from fedloom.learning.prior import score_layer
from fedloom.learning.training import weights_of
from fedloom.methods.auto_client import AutoClient
from fedloom.methods.auto_networks import named_by_size, network_of_size, network_with_prior
from fedloom.testing import Toy
from fedloom.types import Order, State


@pytest.fixture
def toy():
    return Toy.of("auto", {"sizes": [0.5, 1.0]}, 20)


@pytest.fixture
def method(toy):
    auto = toy.stages[0].method
    assert isinstance(auto, AutoClient)
    return auto


@pytest.fixture
def data(toy):
    client = max(toy.data, key=lambda client: len(client.train))
    assert len(client.train) >= 8
    return client.train


def reply_of(toy, method, kind, data, tensors, own=None, **meta):
    run = ClientRun(toy.task, "train", 1, 0, 0, "cpu", lambda: b"")
    return method.client(Order(0, kind, tensors, meta), data, own, run)


def training_reply(toy, method, kind, data, whole):
    tensors = weights_of(network_of_size(toy.task, method.options, "1"))
    instructions = {"size": "1", "lr": 0.1, "augment": "none", "whole": whole, "validate": True}
    return reply_of(toy, method, kind, data, tensors, **instructions)


def with_other_images(data, part):
    """The same labels, so the same prior, but other images in one of the two parts."""
    images = {}
    for name, samples in held_back(data, 0.2)._asdict().items():
        images[name] = [row.numpy().tobytes() for row in samples.x]
    x = data.x.clone()
    for place, row in enumerate(data.x):
        if row.numpy().tobytes() in images[part]:
            x[place] = 255 - row
    return Samples(x, data.y)


def are_equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("kind", "whole", "sees_validation"),
    [("train", False, False), ("train", True, True), ("trial", False, False)],
)
def test_validation_samples_are_trained_on_in_cooling_alone(
    toy, method, data, kind, whole, sees_validation
):
    before, _ = training_reply(toy, method, kind, data, whole)
    changed = with_other_images(data, "validation")
    after, _ = training_reply(toy, method, kind, changed, whole)
    assert are_equal(before.tensors, after.tensors) is not sees_validation
    parts = held_back(data, 0.2)
    assert before.weight == (len(data) if whole else len(parts.train)) < len(data) + 1


def test_the_trial_keeps_what_it_replies(toy, method, data):
    reply, own = training_reply(toy, method, "trial", data, whole=False)
    assert are_equal(dict(own.tensors), dict(reply.tensors))


@pytest.mark.parametrize("prior", ["on", "off"])
def test_sizes_are_scored_on_validation_samples_with_the_prior(data, prior):
    toy = Toy.of("auto", {"sizes": [0.5, 1.0], "prior": prior}, 20)
    method = toy.stages[0].method
    tensors = {}
    expected = []
    for size in ("0.5", "1"):
        weights = weights_of(network_of_size(toy.task, method.options, size))
        tensors |= named_by_size(size, weights)
        net = network_with_prior(toy.task, method.options, size, weights, data)
        expected.append(validation_sums(net, held_back(data, 0.2).validation, "cpu"))
    reply, _ = reply_of(toy, method, "judge", data, tensors, sizes=["0.5", "1"])
    assert reply.meta == {
        "nll": [sums.nll for sums in expected],
        "correct": [sums.correct for sums in expected],
        "samples": len(held_back(data, 0.2).validation),
    }


def always(toy, method, answer):
    """The weights of a network that gives one answer, whatever it sees."""
    net = network_of_size(toy.task, method.options, "1")
    layer = score_layer(net, len(toy.task.labels))
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
        layer.bias[answer] = 100.0
    return weights_of(net)


def test_up_is_what_only_the_client_s_own_network_has_right(toy, method, data):
    labels = held_back(data, 0.2).validation.y
    counts = torch.bincount(labels, minlength=len(toy.task.labels))
    mine = int(counts.argmax())
    shared = int(counts.argmin())
    assert counts[mine] > counts[shared]
    reply, _ = reply_of(
        toy,
        method,
        "compare",
        data,
        always(toy, method, shared),
        own=State(always(toy, method, mine)),
        size="1",
    )
    assert reply.meta == {"up": counts[mine], "down": counts[shared], "samples": len(labels)}
