import pytest
import torch
from torch import nn

from fedloom.cost.steps import Piece, Steps, model_of, step_of_module
from fedloom.errors import FedloomError
from fedloom.options import as_before
from fedloom.rng import rng
from fedloom.spaces.mixed import plain, supernet_model
from fedloom.spaces.ops import Stem, Step
from fedloom.spaces.options import SpaceOptions
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task


def task(space="darts", shape=(2, 9, 10), **options):
    sizes = {"space": space, "ops": "full", "cells": 3, "nodes": 2, "channels": 4, **options}
    return Task(
        "x", sizes, "image", shape, ("a", "b", "c"), 0, (0.0,) * shape[0], (1.0,) * shape[0]
    )


def supernet(given: Task):
    """The supernet of the space that the options name, as an earlier run stored them."""
    return model_of(given, SpaceOptions(**as_before(SpaceOptions, given.options)).searched(given))


def real_shapes(steps: Steps, arch: Arch | None):
    """The shapes that a real forward pass goes through, step by step."""
    shapes = []

    def run(work, *inputs):
        out = work(*inputs)
        shapes.append(tuple(out.shape))
        return out

    with torch.no_grad():
        steps.net.flow(run, torch.rand(1, *steps.net.shape), arch)
    return shapes


def walked_shapes(steps: Steps, arch: Arch | None, monkeypatch):
    """The shapes that `Steps` passes on."""
    shapes = []
    flow = steps.net.flow

    def watched(run, x, choice):
        def noting(work, *inputs):
            shapes.append(tuple(run(work, *inputs)))
            return type(x)(shapes[-1])

        return flow(noting, x, choice)

    with monkeypatch.context() as patch:
        patch.setattr(steps.net, "flow", watched)
        steps.of(arch)
    return shapes


@pytest.mark.parametrize(
    ("space", "ops", "shape"), [("darts", "full", (2, 9, 10)), ("nasbench201", "full", (1, 8, 12))]
)
def test_the_walk_goes_through_the_shapes_of_the_network(space, ops, shape, monkeypatch):
    steps = Steps(supernet(task(space, shape, ops=ops)))
    nothing = Arch(steps.net.space.name, ((),) * len(steps.net.space.slots))
    for arch in (None, steps.net.space.sample(rng(0, "x")), nothing):
        assert walked_shapes(steps, arch, monkeypatch) == real_shapes(steps, arch)


def test_pieces_by_hand():
    """Three NAS-Bench-201 stages of one cell with a single convolution from input to output."""
    steps = Steps(supernet(task("nasbench201", (1, 8, 8), cells=1)))
    slots = steps.net.space.slots
    last = len(slots) - 3  # the edge from the cell's input to its output
    choice = [
        (slots[last].options.index("nor_conv_3x3"),) if edge == last else ()
        for edge in range(len(slots))
    ]
    counts = steps.of(Arch("nasbench201", tuple(choice)))
    assert (
        counts[Piece("conv_3x3", 4, 4, 8, 8, 1)] == counts[Piece("conv_3x3", 16, 16, 2, 2, 1)] == 1
    )
    assert counts[Piece("residual", 4, 8, 8, 8, 2)] == 1
    assert counts[Piece("zero", 4, 4, 8, 8, 1)] == 2  # the cell's two inner nodes
    assert counts[Piece("stem", 1, 4, 8, 8, 1)] == counts[Piece("classifier", 16, 3, 1, 1, 1)] == 1
    assert not any(piece.op == "add" for piece in counts)
    assert (
        sum(counts.values()) == 3 * (1 + 1 + 2) + 2 + 6
    )  # ReLU, conv, zeros; residuals; ends: normalise … classifier


def test_a_sum_of_four_is_three_additions():
    steps = Steps(supernet(task(ops="s2", nodes=1, cells=1)))
    everything = steps.of()
    assert everything[Piece("add", 8, 8, 5, 5, 1)] == 3  # two edges of two operations into one node


def test_every_piece_of_any_architecture_has_an_example_to_measure():
    for space, shape in (("darts", (2, 9, 10)), ("nasbench201", (1, 8, 12))):
        steps = Steps(supernet(task(space, shape)))
        pieces = steps.all_pieces()
        for seed in range(5):
            assert set(steps.of(steps.net.space.sample(rng(seed, "x")))) <= pieces
        for piece in pieces:
            work, inputs = steps.examples[piece]
            with torch.no_grad():
                assert work(*steps.tensors(inputs)).shape[1] == piece.outputs


def test_the_cut_network_is_what_the_walk_says():
    """The convolutions of the cut network, counted by hand in its modules."""
    given = task()
    steps = Steps(supernet(given))
    arch = steps.net.space.sample(rng(3, "x"))
    cut = plain(supernet_model(given, SpaceOptions(**given.options), arch=arch, affine=True))
    convs = sum(isinstance(part, torch.nn.Conv2d) for part in cut.modules())
    inside = {"sep": 4, "dil": 2, "conv": 1, "reduce": 2, "stem": 1}
    assert convs == sum(
        inside.get(piece.op.split("_")[0], 0) * count for piece, count in steps.of(arch).items()
    )


def conv(kernel, **more):
    return nn.Conv2d(4, 8, kernel, **{"padding": kernel // 2, **more})


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (conv(3), Step("conv_3x3", 1, 8)),
        (conv(5, stride=2), Step("conv_5x5", 2, 8)),
        (conv(3, padding="same"), Step("conv_3x3", 1, 8)),
        (conv(3, padding=2, dilation=2, groups=4), Step("conv_3x3_dilated2_groups4", 1, 8)),
        (
            nn.Sequential(conv(3, stride=2), nn.BatchNorm2d(8), nn.ReLU()),
            Step("conv_3x3+batch_norm+relu", 2, 8),
        ),
        (nn.Sequential(conv(3, stride=2), nn.Conv2d(8, 2, 1, 2)), Step("conv_3x3+conv_1x1", 4, 2)),
        (nn.Sequential(nn.Identity()), None),
        (Stem(4, 6), Step("stem", 1, 6)),
    ],
)
def test_layers_are_known_by_what_decides_their_time(module, expected):
    assert step_of_module(module, 4) == expected
    x = torch.zeros(1, 4, 9, 9)
    stride = 1 if expected is None else expected.stride
    assert module(x).shape[2:] == (-(-9 // stride), -(-9 // stride))


@pytest.mark.parametrize(
    "module", [conv(3, padding=0), conv(2), nn.Softmax(), nn.Sequential(nn.Softmax())]
)
def test_a_module_that_nobody_knows_must_name_itself(module):
    with pytest.raises(
        FedloomError, match="must have a name in latency tables, but it has no method `step`"
    ):
        step_of_module(module, 4)


def test_other_networks_have_no_pieces():
    other = Task(
        "x", {"network": "cnn", "width": 0.25}, "image", (1, 8, 8), ("a", "b"), 0, (0.0,), (1.0,)
    )
    assert model_of(other, None) is None
    text = Task("x", {}, "text", (4,), ("a", "b"), 0, (), ())
    assert model_of(text, None) is None
    fixed = Task(
        "x",
        {"network": "supernet:s2:1:2", "width": 0.25},
        "image",
        (1, 8, 8),
        ("a", "b"),
        0,
        (0.0,),
        (1.0,),
    )
    model = model_of(fixed, None)
    assert model is not None and isinstance(model.net, Supernet) and model.net.size[:2] == (2, 4)
