"""`cells:FILE` and `space:NAME`: networks from a search, or drawn from a space by the seed."""

import json

import pytest
import torch

from fedloom.config.variants import Variant, without_folders
from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError
from fedloom.networks import NETWORKS, network_for
from fedloom.networks.building import build_model
from fedloom.registry import absolute, is_file
from fedloom.rng import rng
from fedloom.runs.configure import full_network_name
from fedloom.spaces import open_space
from fedloom.spaces.chains.definition import of_path
from fedloom.spaces.chains.shipped import CNN_TINY, RNN
from fedloom.spaces.drawn import is_connected
from fedloom.spaces.nasbench201.space import from_string
from fedloom.types import Task

IMAGES = Task("auto", {}, "image", (1, 8, 8), ("a", "b", "c"), 0, (0.5,), (0.3,))
TEXT = Task("auto", {}, "text", (12,), ("a", "b", "c", "d"), 0, (), ())
SIZES = (1, 0.7, 0.5, 0.35)


def built(name, width=1.0, task=IMAGES):
    return build_model(task, name, width)


def of_seed(seed):
    return Task("auto", {}, "image", (1, 8, 8), ("a", "b", "c"), seed, (0.5,), (0.3,))


@pytest.fixture
def genotype(tmp_path):
    """A genotype as a finished run has it under architectures/, with a size."""
    arch = open_space("darts:s2:2").sample(rng(3, "test"))
    file = tmp_path / "client-0.json"
    file.write_text(json.dumps({**arch.to_plain(), "cells": 2, "channels": 10}))
    return file


def test_cells_are_a_file(genotype, monkeypatch):
    same = built(str(genotype))
    assert built(f"cells:{genotype}").architecture == same.architecture
    renamed = genotype.rename(genotype.with_suffix(".txt"))  # behind `cells:` any name will do
    assert parameters(built(f"cells:{renamed}")) == parameters(same)
    monkeypatch.chdir(genotype.parent)
    assert absolute("cells:client-0.txt") == f"cells:{renamed}"
    assert is_file("cells:client-0.txt")  # no site reads one
    assert not NETWORKS.is_built_in(
        "cells:client-0.txt"
    )  # another file may have the name next time


@pytest.mark.parametrize(("size", "channels"), [(1, 10), (0.7, 7), (0.5, 5), (0.35, 4)])
def test_sizes_scale_the_channels_of_cells(genotype, size, channels):
    """0.35 of 10 channels are 3.5, and the nearest even number is 4."""
    net = built(f"cells:{genotype}", size).net
    assert (net.size.cells, net.size.channels) == (2, channels)


@pytest.mark.parametrize(
    "name",
    [
        "space:darts:s2:2",
        "space:nasbench201",
        "space:stacks:1:1:1",
        "space:group:s2:2:2",
        "space:cnn-tiny",
        "resnet18",
    ],
)
def test_every_size_is_smaller_and_has_the_same_operations(name):
    nets = [built(name, size) for size in SIZES]
    assert nets[0](torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    costs = [macs(net, IMAGES.shape) for net in nets]
    assert costs == sorted(set(costs), reverse=True)
    names = [set(net.state_dict()) for net in nets]
    assert all(each == names[0] for each in names)


def test_a_space_for_text_takes_sizes():
    nets = [built("space:rnn", size, TEXT) for size in SIZES]
    assert [net.net.space.definition.hidden for net in nets] == [128, 90, 64, 45]
    assert [net.net.space.definition.embedding for net in nets] == [8, 6, 4, 3]
    assert nets[3](torch.zeros(2, 12, dtype=torch.long)).shape == (2, 4)


def test_the_seed_draws_the_network():
    first = built("space:darts:s2:2")
    assert built("space:darts:s2:2").architecture == first.architecture
    others = [
        build_model(of_seed(seed), "space:darts:s2:2", 1.0).architecture for seed in range(1, 5)
    ]
    assert any(other != first.architecture for other in others)
    expected = open_space("darts:s2:2").sample(rng(0, "network of a space", "darts:s2:2"))
    assert first.architecture == expected.to_plain()
    assert network_for("space:darts:s2:2", 0).arch == expected


def test_a_space_has_its_usual_parameters():
    assert NETWORKS.get("space:stacks").space == open_space("stacks:3:1:2")
    assert NETWORKS.get("space:nasbench201").space == open_space("nasbench201")


def test_a_network_that_leads_nowhere_is_drawn_anew():
    dead = from_string("|none~0|+|none~0|none~1|+|none~0|none~1|nor_conv_3x3~2|")
    alive = from_string("|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|")
    space = open_space("nasbench201")
    assert not is_connected(space, dead)
    assert is_connected(space, alive)
    for seed in range(150):
        assert is_connected(space, network_for("space:nasbench201", seed).arch)
    draws = [space.sample(rng(seed, "network of a space", "nasbench201")) for seed in range(150)]
    assert not all(is_connected(space, arch) for arch in draws)  # some were drawn anew


def test_a_narrow_chain_has_the_nearest_channels_that_suit_its_operations():
    """Half of 18·c/8 channels must be whole numbers in the third stage for ds3e0.5."""
    free = of_path(CNN_TINY, ("conv1",) * 6, 0.7)
    assert free.stem.channels == 6  # 5.6
    bound = of_path(CNN_TINY, ("ds3e0.5",) * 6, 0.7)
    # Of 5, 6 and 7 no number of channels can be halved three times.
    assert bound.inputs[:3] == [8, 12, 18]
    names = []
    for stage in free.stage:
        names += stage.ops
    assert names == [("conv1",)] * 6
    assert of_path(RNN, ("lstm", "zero", "identity", "zero"), 0.01).hidden == 1


def test_a_toml_file_travels_as_its_definition(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nkind = "image"\nstem = {channels = 4}\n'
        '[[stage]]\nlayers = 1\nops = ["conv3"]\n'
    )
    name = full_network_name(f"space:{file}")
    assert name.startswith('space:map-chain:{"name":"own"') and not is_file(name)
    assert built(name, 0.5).net.space.definition.stem.channels == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cells:", "cells: must name a genotype's file, but got cells:"),
        ("space:", "a network of a space must name it, but got space:"),
        ("space:drts", "search space must be a known name, but got 'drts'; did you mean darts?"),
        ("space:darts:s9:2", "s9"),
        ("space:map-chain", "must be named by a TOML file"),
        ("cells:/nowhere/x.json", "/nowhere/x.json must be a genotype in JSON"),
        ("spce:darts", "network must be a known name"),
    ],
)
def test_what_is_no_network_is_one_sentence(name, says):
    with pytest.raises(FedloomError) as caught:
        NETWORKS.get(name)
    assert says in str(caught.value)


def test_another_kind_of_data_is_refused():
    with pytest.raises(
        FedloomError, match="network space:darts:s2:2 must be for text data, but it is for image"
    ):
        built("space:darts:s2:2", 1.0, TEXT)


def test_tables_name_files_without_folders():
    variant = "auto:network=cells:/runs/a/client-0.json,lr=0.1"
    assert without_folders(variant) == "auto:network=cells:client-0.json,lr=0.1"
    assert Variant.parse(variant).with_absolute_paths() == variant
    assert (
        Variant.parse("auto:network=space:darts:s2:4").with_absolute_paths()
        == "auto:network=space:darts:s2:4"
    )
