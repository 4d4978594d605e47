"""What the classifier sees of a network's last map."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedloom.cost.count import parameters
from fedloom.errors import FedloomError
from fedloom.learning.training import NetworkOptions
from fedloom.nets.heads import DEFAULT, ends_in_map, settled, takes_head, vector_length
from fedloom.nets.pooling import as_vector
from fedloom.networks import NETWORKS
from fedloom.networks.building import build_model
from fedloom.options import as_before
from fedloom.runs.comparison import nearest_width
from fedloom.runs.configure import resolve_options
from fedloom.runs.heads import has_room_for_head
from fedloom.runs.notices import of_head
from fedloom.spaces import space_for
from fedloom.spaces.genotype import read
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task

TASK = Task("fedavg", {}, "image", (3, 32, 32), tuple("0123456789"), 0, (0.0,) * 3, (1.0,) * 3)
WITH_MAP = ["cnn", "resnet18", "densenet", "vgg16", "darts-v2", "supernet", "supernet:s2:2:3"]
GENOTYPE = {
    "normal": [["sep_conv_3x3", 0], ["sep_conv_3x3", 1]],
    "reduce": [["skip_connect", 0], ["sep_conv_3x3", 1]],
    "cells": 3,
    "channels": 4,
}


def test_a_grid_by_hand():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert as_vector(x, "mean").tolist() == [[7.5]]
    assert as_vector(x, "grid").tolist() == [[2.5, 4.5, 10.5, 12.5]]
    two = torch.stack([x[0], -x[0]], dim=1)  # channels stay side by side, each with its quarters
    assert as_vector(two, "grid").tolist() == [[2.5, 4.5, 10.5, 12.5, -2.5, -4.5, -10.5, -12.5]]


@pytest.mark.parametrize("name", WITH_MAP)
def test_every_network_with_a_map_has_both_and_the_same_default(name):
    task = replace(TASK, shape=(3, 64, 64))  # vgg16 leaves 2×2 of it
    heads = {}
    for head in ("auto", "mean", "grid"):
        model = build_model(task, name, 0.125, head=head)
        heads[head] = model.head
        classifier = model.net.classifier
        assert isinstance(classifier, nn.Linear)
        channels = build_model(task, name, 0.125, head="mean").net.classifier.in_features
        assert classifier.in_features == vector_length(model.head, channels)
        assert model.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 10)
    assert heads == {"auto": DEFAULT, "mean": "mean", "grid": "grid"}


def test_the_grid_is_what_the_classifier_sees():
    model = build_model(TASK, "resnet18", 0.125, head="grid").eval()
    x = torch.randn(2, 3, 32, 32)
    last_map = model.net.blocks(model.net.stem(model.normalised(x)))
    assert last_map.shape[-2:] == (4, 4)
    quarters = last_map.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2)).flatten(1)
    expected = model.net.classifier(quarters)
    assert torch.allclose(model(x), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "side"), [("vgg16", 32), ("resnet18", 8), ("cnn", 4)])
def test_a_map_without_room_for_a_grid_is_averaged(name, side):
    model = build_model(replace(TASK, shape=(3, side, side)), name, 0.125, head="grid")
    assert model.head == "mean"
    mean = build_model(replace(TASK, shape=(3, side, side)), name, 0.125, head="mean")
    assert parameters(model) == parameters(mean)


@pytest.mark.parametrize("head", ["mean", "grid"])
@pytest.mark.parametrize("network", ["alexnet", "lstm", "outside"])
def test_others_refuse_it_in_words(network, head, monkeypatch):
    class Outside(nn.Module):
        kinds = ("image", "text")

        def __init__(self, shape, classes, width):
            super().__init__()
            self.classifier = nn.Linear(1, classes)

    get = NETWORKS.get
    monkeypatch.setattr(NETWORKS, "get", lambda name: Outside if name == "outside" else get(name))
    kind = "text" if network == "lstm" else "image"
    with pytest.raises(
        FedloomError, match=f"network {network} must end in a feature map to have head={head}"
    ):
        build_model(replace(TASK, kind=kind), network, 1.0, head=head)
    assert not takes_head(Outside) and takes_head(ends_in_map(Outside))


def test_a_space_without_one_refuses_it_in_words(tmp_path):
    file = tmp_path / "spaces.py"
    file.write_text(
        "from fedloom.spaces.cells import DartsCells\n\n\n"
        "class Headless(DartsCells):\n    family = 'headless'\n    takes_head = False\n"
    )
    assert SpaceOptions(space=f"{file}:Headless").head == "auto"
    sentence = "--head must be given for a space whose networks end in a map and say so"
    with pytest.raises(FedloomError, match=sentence):
        SpaceOptions(space=f"{file}:Headless", head="grid")


def test_old_runs_keep_what_they_had():
    old = as_before(NetworkOptions, {"network": "resnet18"})["head"]
    assert as_before(SpaceOptions, {})["head"] == old == "old"
    assert settled("old", 8, 8) == "mean"  # as all cells had it
    small = replace(
        TASK, shape=(3, 4, 4)
    )  # where the cnn's map is one pixel, it had a grid of four equal ones
    assert build_model(small, "cnn", 1.0, head=old).net.classifier.in_features == 4 * 64
    assert build_model(TASK, "cnn", 1.0, head=old).head == "grid"
    assert build_model(TASK, "resnet18", 0.125, head=old).head == "mean"
    assert build_model(replace(TASK, kind="text"), "lstm", 0.1, head=old).head is None
    assert settled("old", 1, 1, old="grid") == "grid"


def test_a_genotype_says_its_head(tmp_path):
    def built(more, **asked):
        file = tmp_path / "genotype.json"
        file.write_text(json.dumps({**GENOTYPE, **more}))
        return read(file)((3, 16, 16), 10, **asked).head

    assert built({}) == "mean"  # as papers print it
    assert built({"head": "grid"}) == "grid"
    assert built({"head": "grid"}, head="mean") == "mean"
    assert built({}, head="grid") == "grid"
    assert built({"head": "grid"}, head="old") == "mean"  # when nobody could say otherwise
    with pytest.raises(FedloomError, match="head"):
        built({"head": "tail"})


def test_a_width_is_matched_with_the_head_in_it():
    def build(head):
        return lambda width: build_model(TASK, "cnn", width, head=head)

    target = 20_000.0
    widths = {head: nearest_width(build(head), target) for head in ("mean", "grid")}
    assert widths["mean"] > widths["grid"]
    for head, width in widths.items():
        assert abs(parameters(build(head)(width)) - target) / target < 0.02


@pytest.mark.parametrize(
    ("options", "side", "room"),
    [
        ({"network": "resnet18", "width": 0.125, "head": "auto"}, 8, False),
        ({"network": "resnet18", "width": 0.125, "head": "mean"}, 8, True),
        ({"network": "resnet18", "width": 0.125, "head": "grid"}, 16, True),
        ({"network": "alexnet", "width": 0.125, "head": "auto"}, 8, True),
        ({"width": 0.125, "head": "auto"}, 4, False),
    ],
)
def test_a_run_knows_whether_there_is_room_for_a_grid(options, side, room):
    task = replace(TASK, shape=(3, side, side), options=options)
    assert has_room_for_head(task) is room


SMALL_CELLS = {"cells": 3, "channels": 2, "ops": "s2"}


@pytest.mark.parametrize(
    ("method", "options", "side", "room"),
    [
        ("fednas", SMALL_CELLS, 4, False),
        ("fednas", SMALL_CELLS, 8, True),
        ("spider", SMALL_CELLS, 4, False),
        ("fedoras", {"space": "cnn-tiny", "head": "grid"}, 8, False),
        ("fedoras", {"space": "cnn-tiny", "head": "grid"}, 16, True),
        ("fedoras", {"space": "auto", "head": "grid"}, 8, False),
        ("fedoras", {"space": "cnn-tiny", "head": "mean"}, 8, True),
    ],
)
def test_a_search_knows_whether_there_is_room_for_a_grid(method, options, side, room):
    settled_options = resolve_options(method, options)
    task = replace(TASK, method=method, shape=(3, side, side), options=settled_options)
    assert has_room_for_head(task) is room


@pytest.mark.parametrize(("head", "notices"), [("grid", 1), ("auto", 0), ("mean", 0)])
@pytest.mark.parametrize("method", ["fednas", "spider", "fedoras"])
def test_a_grid_that_was_asked_for_and_has_no_room_is_told(method, head, notices):
    options = resolve_options(method, {"space": "cnn-tiny", "head": head})
    texts = of_head(replace(TASK, method=method, shape=(3, 8, 8), options=options))
    assert len(texts) == notices
    assert all("last map is smaller than 2×2" in text for text in texts)


@pytest.mark.parametrize("head", ["auto", "grid"])
def test_a_genotype_without_a_head_has_room_for_a_grid_all_the_same(tmp_path, head):
    """It means the mean by itself, which says nothing of its last map."""
    file = tmp_path / "genotype.json"
    choice = [[1], [1], [], [0], [0], [0], [1], [], [1], [0]]
    file.write_text(
        json.dumps({"space": "darts:s2:2", "choice": choice, "cells": 3, "channels": 4})
    )
    options = {"network": str(file), "width": 1.0, "head": head}
    assert has_room_for_head(replace(TASK, method="fedavg", shape=(3, 8, 8), options=options))


def test_a_space_may_be_named_with_its_parameters():
    named = space_for(SpaceOptions(space="darts:s2:3"))
    assert named == space_for(SpaceOptions(ops="s2", nodes=3))
    assert SpaceOptions(space="darts:s2:3", head="grid").size.head == "grid"
    with pytest.raises(
        FedloomError, match=r"OPS in darts:OPS:NODES must be 'full', .* but got darts:s9:3"
    ):
        SpaceOptions(space="darts:s9:3")
