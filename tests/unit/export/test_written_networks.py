"""Every network of the project, written as plain torch, gives the same bits and is readable."""

import importlib.util
import json
import operator
from functools import partial

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from fedloom.errors import FedloomError
from fedloom.export.blocks import block_of
from fedloom.export.expressions import Names, Writer
from fedloom.export.layers import layer_text, without_marks
from fedloom.export.template import model_file
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import program
from fedloom.federation.protocol.wire import state_chunks
from fedloom.nets.densenet import DenseNet
from fedloom.nets.model import Model, seeded
from fedloom.networks.building import build_model
from fedloom.rng import rng
from fedloom.spaces import space_for
from fedloom.spaces.cells.networks import darts_v2, supernet
from fedloom.spaces.mixed import Mixed, fresh_alpha, plain, supernet_model
from fedloom.spaces.options import SpaceOptions
from fedloom.types import State, Task

LABELS = ("a", "b", "c")


def task(shape=(3, 8, 8), kind="image"):
    channels = () if kind == "text" else (1.5, 100.0, 3.25)[: shape[0]]
    return Task(
        "fedavg", {}, kind, shape, LABELS, 0, channels, tuple(2 * value for value in channels)
    )


def moved(net):
    """A network whose BN statistics are not the initial ones."""
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 1.5)
    return net


def written(net, place, shape, channels_last=False):
    """The result of `model.load()`, from a model.py written for the network."""
    exported = program(traced(Whole(net)))
    weights = {name: tensor.contiguous() for name, tensor in exported.weights.items()}
    (place / "weights.safetensors").write_bytes(b"".join(state_chunks(State(weights))))
    (place / "model.py").write_text(
        model_file(exported.classes, version="0", shape=shape, channels_last=channels_last)
    )
    spec = importlib.util.spec_from_file_location("written_model", place / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, exported


@torch.no_grad()
def compare(net, place, shape, *, kind="image", channels_last=False):
    net = moved(net).eval()
    draw = torch.Generator().manual_seed(1)
    top, dtype = (len(LABELS), torch.int64) if kind == "text" else (256, torch.uint8)
    x = torch.randint(0, top, (5, *shape), generator=draw, dtype=dtype)
    module, exported = written(net, place, shape, channels_last)
    again = module.load()
    with seeded(3):
        mine = net(x)
    with seeded(3):
        theirs = again(x)
    assert torch.equal(mine, theirs) and mine.std() > 0
    assert not again.training
    return exported.classes


FIXED = {
    "cnn": ((1, 8, 8), 0.5),
    "alexnet": ((3, 8, 8), 0.05),
    "vgg16": ((3, 8, 8), 0.05),
    "resnet18": ((3, 8, 8), 0.1),
}


@pytest.mark.parametrize("name", FIXED)
def test_fixed_networks_to_the_bit(name, tmp_path):
    shape, width = FIXED[name]
    compare(build_model(task(shape), name, width), tmp_path, shape, channels_last=True)


def test_the_lstm_to_the_bit(tmp_path):
    compare(build_model(task((6,), "text"), "lstm", 0.05), tmp_path, (6,), kind="text")


def model(net, shape=(3, 8, 8)):
    description = task(shape)
    return Model(net, description.mean, description.std)


def test_a_densenet_to_the_bit(tmp_path):
    net = model(DenseNet((3, 8, 8), 3, 0.5, depth=16))
    text = compare(net, tmp_path, (3, 8, 8))
    assert text.count("class ") == 2  # one class for all layers, made with their channels
    assert text.count("Block(in_channels=") == 6 or text.count("Block(num_features=") == 6


@pytest.mark.parametrize(
    "make", [partial(darts_v2, width=0.125), partial(supernet, width=0.125, nodes=2, cells=3)]
)
def test_networks_of_cells_to_the_bit(make, tmp_path):
    """This includes images with odd sides, where a reduction pads."""
    compare(model(make((3, 9, 9), 3), (3, 9, 9)), tmp_path, (3, 9, 9))


OPTIONS = SpaceOptions(ops="s2", cells=3, nodes=2, channels=4)
BENCH = SpaceOptions(space="nasbench201", cells=1, channels=4)


@pytest.mark.parametrize(("options", "shape"), [(OPTIONS, (1, 8, 8)), (BENCH, (3, 8, 8))])
def test_a_cut_network_to_the_bit(options, shape, tmp_path):
    """As in training, it is in another memory format, which a single channel does not show."""
    arch = space_for(options).sample(rng(0, "cut"))
    compare(
        plain(supernet_model(task(shape), options, arch=arch)), tmp_path, shape, channels_last=True
    )


def test_a_mixture_to_the_bit(tmp_path):
    description = task((3, 8, 8))
    alpha = {name: 300 * row for name, row in fresh_alpha(OPTIONS, 0).items()}
    net = Mixed(supernet_model(description, OPTIONS), alpha)
    exported = compare(net, tmp_path, (3, 8, 8), channels_last=True)
    assert "softmax" not in exported  # what α says is a number by now


def test_an_operation_of_noise_to_the_bit(tmp_path):
    options = SpaceOptions(**{**OPTIONS.model_dump(), "ops": "s4"})
    compare(supernet_model(task(), options), tmp_path, (3, 8, 8), channels_last=True)


def test_a_resnet_can_be_read(tmp_path):
    text = compare(build_model(task(), "resnet18", 0.1), tmp_path, (3, 8, 8))
    assert "    blocks_0 = self.blocks_0(stem)" in text
    assert "class Block(nn.Module):\n    def __init__(self, in_channels: int) -> None:" in text
    assert "return torch.relu" in text or "relu = torch.relu(residual + self.shortcut(x))" in text
    assert text.count("class ") == 3 and max(map(len, text.splitlines())) < 125


def test_labels_and_probabilities(tmp_path):
    module, _ = written(build_model(task((1, 8, 8)), "cnn", 0.25), tmp_path, (1, 8, 8))
    odd = ["</script>", '"; import os', "ü"]
    (tmp_path / "architecture.json").write_text(json.dumps({"labels": odd}))
    answers = module.predict(torch.zeros(3, 1, 8, 8))
    assert [label in odd for label, _ in answers] == [True] * 3 and all(
        1 / 3 < chance < 1 for _, chance in answers
    )


class Doubled(nn.Module):
    """One layer used twice, a step in place, an odd name, a reshaped value."""

    def __init__(self, shape, classes, width=1.0):
        super().__init__()
        self.add_module("my layer", nn.Conv2d(shape[0], shape[0], 3, padding=1))
        self.scale = nn.Parameter(torch.tensor([2.0]))
        self.parts = nn.ModuleDict(
            {"a": nn.Sequential(nn.Linear(shape[0], 4, bias=False), nn.Tanh())}
        )
        self.last = nn.Linear(4, classes)

    def forward(self, x):
        layer = getattr(self, "my layer")
        y = layer(layer(x) * self.scale)
        y += x
        y = y.mean(dim=(2, 3)).reshape(x.shape[0], -1)
        return self.last(functional.gelu(self.parts["a"](y)))[:, :]


def test_a_network_of_ones_own(tmp_path):
    compare(model(Doubled((3, 8, 8), 3)), tmp_path, (3, 8, 8))


class Branching(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))


class Foreign(nn.Module):
    def forward(self, x):
        return OUTSIDE(x).mean((2, 3))


fx.wrap("OUTSIDE")


def OUTSIDE(x):
    return x + 1


@pytest.mark.parametrize(
    ("net", "found"), [(Branching(), "torch.fx cannot follow it"), (Foreign(), "it calls")]
)
def test_what_cannot_be_written_is_named(net, found):
    with pytest.raises(FedloomError, match=found):
        program(traced(Whole(net)))


def test_a_subclass_that_computes_otherwise_is_followed():
    class Halved(nn.Linear):
        def forward(self, x):
            return functional.linear(x, self.weight / 2, self.bias)

    net = nn.Sequential(nn.Flatten(), Halved(4, 2))
    exported = program(traced(Whole(net)))
    assert "nn.Linear" not in exported.classes and "/ 2" in exported.classes


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Conv2d(3, 4, 3, padding=1, bias=False), "nn.Conv2d(3, 4, 3, padding=1, bias=False)"),
        (nn.Conv2d(3, 4, (3, 5)), "nn.Conv2d(3, 4, (3, 5))"),
        (nn.BatchNorm2d(4, affine=False), "nn.BatchNorm2d(4, affine=False)"),
        (
            nn.AvgPool2d(2, count_include_pad=False),
            "nn.AvgPool2d(2, stride=2, count_include_pad=False)",
        ),
        (nn.LSTM(8, 4, 2, batch_first=True), "nn.LSTM(8, 4, num_layers=2, batch_first=True)"),
        (nn.Linear(2, 3), "nn.Linear(2, 3)"),
        (
            nn.Sequential(nn.ReLU(inplace=True), nn.Identity()),
            "nn.Sequential(nn.ReLU(inplace=True), nn.Identity())",
        ),
    ],
)
def test_layers_as_text(layer, text):
    assert without_marks(layer_text(layer)) == text


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("cells.3.pre0.conv", "cells.3"),
        ("encoder.conv", "encoder"),
        ("classifier", ""),
        ("features.0", ""),
    ],
)
def test_whose_a_layer_is(path, block):
    assert block_of(path) == block


def test_names_are_words_used_once():
    names = Names(["x"])
    assert [names.new(wanted) for wanted in ("x", "x", "class", "3", "a-b!", "é")] == [
        "x_2",
        "x_3",
        "_class",
        "_3",
        "a_b",
        "value",
    ]


def test_a_step_in_place_on_anothers_value_stays_in_place():
    graph = fx.Graph()
    x = graph.placeholder("x")
    added = graph.call_function(operator.iadd, (x, 1))
    graph.output((added, x))
    writer = Writer({x: "x"}, lambda node: "")
    writer.write([added], [added])
    assert writer.lines == ["iadd = x.add_(1)"]
