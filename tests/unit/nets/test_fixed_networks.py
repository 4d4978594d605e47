import json
import re

import numpy as np
import pytest
import torch
from torch import nn

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError
from fedloom.nets.densenet import DenseNet
from fedloom.nets.heads import takes_head
from fedloom.nets.model import seeded
from fedloom.networks import NETWORKS
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.net import CellNetwork
from fedloom.spaces.cells.space import DARTS_V2, from_genotype
from fedloom.spaces.nasbench201 import NasBench201Cells

FIXED = ("alexnet", "darts-v2", "densenet", "resnet18", "vgg16")


def build(name: str, shape=(3, 32, 32), classes: int = 10, width: float = 1.0) -> nn.Module:
    """With the head of the papers, whose sizes these are."""
    make = NETWORKS.get(name)
    if takes_head(make):
        return make(shape, classes, width, head="mean")
    return make(shape, classes, width)


def counted(name: str, **more) -> int:
    with torch.device("meta"):
        return parameters(build(name, **more))


def conv(inputs: int, outputs: int, kernel: int, bias: bool = False) -> int:
    return inputs * outputs * kernel**2 + outputs * bias


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", 11_173_962),  # the usual count of the CIFAR form
        ("densenet", 769_162),  # L = 100, k = 12: the paper's 0.8 M
        ("vgg16", 14_728_266),  # the usual count with BN and a linear head
        ("alexnet", 3_760_522),  # FINCH's table has 3.8 M
    ],
)
def test_parameters(name, expected):
    assert counted(name) == expected


def test_parameters_by_hand():
    def block(inputs, outputs, projected):
        return conv(inputs, outputs, 3) + conv(outputs, outputs, 3) + 4 * outputs + projected * (
            conv(inputs, outputs, 1) + 2 * outputs
        )  # fmt: skip

    sizes = (8, 16, 32, 64)  # width 1/8
    expected = conv(1, 8, 3) + 16 + 64 * 5 + 5
    for before, size in zip((8, *sizes), sizes, strict=False):
        expected += block(before, size, before != size) + block(size, size, False)
    assert counted("resnet18", shape=(1, 28, 28), classes=5, width=1 / 8) == expected
    stages = (8, 8, 16, 16, 32, 32, 32, *[64] * 6)
    expected = (
        sum(conv(a, b, 3, True) + 2 * b for a, b in zip((2, *stages), stages, strict=False))
        + 64 * 5
        + 5
    )
    assert counted("vgg16", shape=(2, 8, 8), classes=5, width=1 / 8) == expected
    layers = ((1, 12, 5), (12, 32, 5), (32, 48, 3), (48, 48, 3), (48, 32, 3))
    expected = (
        sum(conv(*layer, bias=True) for layer in layers) + 32 * 2 * 1 * 5 + 5
    )  # 9×8 comes down to 2×1
    assert counted("alexnet", shape=(1, 9, 8), classes=5, width=1 / 8) == expected


def test_a_densenet_by_hand():
    """Depth 10, growth 2: one layer a block; channels 4 → 6 → 3 → 5 → 2 → 4."""

    def layer(inputs):
        return 2 * inputs + conv(inputs, 8, 1) + 16 + conv(8, 2, 3)

    expected = (
        conv(3, 4, 3)
        + layer(4)
        + 12
        + conv(6, 3, 1)
        + layer(3)
        + 10
        + conv(5, 2, 1)
        + layer(2)
        + 8
        + 4 * 7
        + 7
    )
    assert parameters(DenseNet((3, 8, 8), 7, growth=2, depth=10, head="mean")) == expected
    assert (
        parameters(DenseNet((3, 8, 8), 7, 0.5, growth=4, depth=10, head="mean")) == expected
    )  # width scales growth


@pytest.mark.parametrize("name", FIXED)
def test_width(name):
    half, whole, double = (counted(name, width=width) for width in (0.5, 1.0, 2.0))
    assert 3 < whole / half < 4.5
    assert 3 < double / whole < 4.5
    assert counted(name, width=1e-9) < (
        22_000 if name == "densenet" else 10_000
    )  # one channel everywhere
    if name != "darts-v2":
        assert build(name, width=0.125).architecture == f"{name}:0.125"


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (4, 4, 9), (2, 11, 5)])
def test_scores(name, shape):
    net = build(name, shape, 7, width=0.1).eval()
    with torch.no_grad():
        assert net(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", ["alexnet", "vgg16"])
def test_poolings_leave_something_of_the_smallest_images(name):
    assert build(name, (1, 1, 1), 3, 0.1).eval()(torch.zeros(2, 1, 1, 1)).shape == (2, 3)


@pytest.mark.parametrize("name", ["resnet18", "densenet", "darts-v2"])
def test_too_small_images(name):
    with pytest.raises(FedloomError, match=r"must be at least 4×4, but these are 3×8;"):
        build(name, (1, 3, 8))


def test_a_densenet_of_another_depth():
    assert DenseNet((1, 4, 4), 2, depth=16, growth=1).eval()(torch.zeros(1, 1, 4, 4)).shape == (
        1,
        2,
    )
    for depth in (4, 12, 99):
        with pytest.raises(
            FedloomError, match=rf"must have 6·n \+ 4 layers, n at least 1, but got {depth}"
        ):
            DenseNet((1, 4, 4), 2, depth=depth)


@pytest.mark.parametrize("name", FIXED)
def test_the_seed_alone_decides_the_weights(name):
    states = []
    for seed in (1, 1, 2):
        torch.rand(seed)  # the global generator stands elsewhere each time
        with seeded(seed):
            states.append(build(name, (1, 8, 8), 3, 0.1).state_dict())
    first, same, other = states
    assert are_equal(first, same)
    assert not are_equal(first, other)


def are_equal(one, other):
    return all(torch.equal(tensor, other[key]) for key, tensor in one.items())


@pytest.mark.parametrize("name", FIXED)
def test_a_step_of_training(name):
    with seeded(0):
        net = build(name, (1, 8, 8), 3, 0.2).train()
        x = torch.randn(6, 1, 8, 8)
        y = torch.tensor([0, 1, 2] * 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_macs_of_resnet18():
    """0.56 G for 32×32, as usually stated."""
    assert macs(build("resnet18", width=0.25), (3, 32, 32)) == pytest.approx(
        0.5564e9 / 16, rel=0.02
    )


def test_darts_v2_is_the_published_genotype():
    net = build("darts-v2", width=0.25)
    assert isinstance(net, CellNetwork)
    assert (net.arch, len(net.cells)) == (from_genotype(DARTS_V2, DartsCells("full", 4)), 8)
    assert net.architecture == net.arch.to_plain()
    assert net.stem[0].out_channels == 3 * 4
    assert isinstance(
        net.cells[0].edges.get_submodule("0.sep_conv_3x3.bn1").weight, nn.Parameter
    )  # affine


def test_names_and_their_one_line():
    assert set(FIXED) | {"cnn"} <= set(NETWORKS.names())
    for name in FIXED:
        line = (NETWORKS.get(name).__doc__ or "").strip().splitlines()[0]
        assert 20 < len(line) <= 110


# Genotypes from files


def write(path, content):
    path.write_text(json.dumps(content))
    return str(path)


def test_a_published_genotype_from_a_file_is_the_one_by_name(tmp_path):
    genotype = {}
    for kind, pairs in DARTS_V2.items():
        genotype[kind] = [list(pair) for pair in pairs]
    file = write(tmp_path / "v2.json", genotype)
    for width in (0.25, 1.0):
        with seeded(3):
            ours = build(file, width=width)
        with seeded(3):
            theirs = build("darts-v2", width=width)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        assert are_equal(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize(
    "space", [DartsCells("s2", 2), DartsCells("full", 3), NasBench201Cells()], ids=lambda s: s.name
)
def test_what_a_run_found_can_be_trained_as_it_is(space, tmp_path):
    arch = space.sample(np.random.default_rng(0))
    net = build(
        write(tmp_path / "client-0.json", {**arch.to_plain(), "cells": 3}), (1, 8, 8), 4, 0.25
    )
    assert net.arch == arch and net(torch.randn(2, 1, 8, 8)).shape == (2, 4)
    assert len(net.cells) == (9 if isinstance(space, NasBench201Cells) else 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must be a genotype in JSON, but it names no space, and no space prints"),
        ([1], "must be a genotype in JSON"),
        (
            {"normal": [["sep_conv_3x3", 0]] * 4, "reduce": []},
            "cell must take two different inputs",
        ),
        (
            {
                "normal": [["sep_conv_3x3", 0], ["conv", 1]],
                "reduce": [["skip_connect", 0], ["skip_connect", 1]],
            },
            "conv",
        ),
        (
            {"normal": [["skip_connect", 0], ["skip_connect", 1]], "reduce": []},
            "a genotype's reduce cell must have 2",
        ),
        ({"space": "darts:s2:2", "choice": [[0]]}, "slots"),
        ({"space": "none", "choice": []}, "search space must be a known name, but got 'none'"),
        (
            {"space": "darts:s2:1", "choice": [[0], [1], [0], [1]], "cells": 0},
            "cells: Input should be greater than or equal to 1",
        ),
    ],
)
def test_a_file_that_is_no_genotype(content, message, tmp_path):
    with pytest.raises(FedloomError, match=re.escape(message)):
        NETWORKS.get(write(tmp_path / "g.json", content))


def test_a_genotype_that_is_not_there(tmp_path):
    with pytest.raises(FedloomError, match="must be a genotype in JSON"):
        NETWORKS.get(str(tmp_path / "none.json"))
