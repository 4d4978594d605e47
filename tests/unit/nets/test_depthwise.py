"""Depthwise convolutions with fast gradients: torch's results, in every case that cells have."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedloom.cost.meter import Meter
from fedloom.nets.depthwise import DepthwiseConv, as_plain

CASES = []  # kernel, stride, dilation and size of the map
for kernel in (3, 5):
    for stride, dilation in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2)):
        for size in ((8, 8), (7, 5), (2, 2), (1, 3), (4, 9)):
            CASES.append((kernel, stride, dilation, size))
FAST = "FastBackwardBackward"


def pair(kernel: int, stride: int, dilation: int) -> tuple[DepthwiseConv, nn.Conv2d]:
    """Ours, and torch's own with the same weights."""
    ours = DepthwiseConv(6, kernel, stride, dilation).double()
    theirs = DepthwiseConv(6, kernel, stride, dilation).double()
    theirs.load_state_dict(ours.state_dict())
    as_plain(theirs)
    assert type(theirs) is nn.Conv2d
    return ours, theirs


def samples(size: tuple[int, int]) -> torch.Tensor:
    x = torch.randn(3, 6, *size, dtype=torch.float64)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_torch(case):
    *shape, size = case
    ours, theirs = pair(*shape)
    x = samples(size)
    actual = ours(x)
    expected = theirs(x)
    assert torch.equal(actual, expected)
    outer = torch.randn_like(expected)
    of_ours = torch.autograd.grad(actual, [x, ours.weight], outer)
    of_theirs = torch.autograd.grad(expected, [x, theirs.weight], outer)
    torch.testing.assert_close(of_ours, of_theirs)


@pytest.mark.parametrize("case", CASES)
def test_one_gradient_alone_is_the_same(case):
    *shape, size = case
    ours, theirs = pair(*shape)
    x = samples(size)
    outer = torch.randn_like(theirs(x))
    expected = torch.autograd.grad(theirs(x), [x, theirs.weight], outer)
    of_weight = torch.autograd.grad(ours(x.detach()), [ours.weight], outer)
    torch.testing.assert_close(of_weight[0], expected[1])
    ours.weight.requires_grad_(False)
    of_x = torch.autograd.grad(ours(x), [x], outer)
    torch.testing.assert_close(of_x[0], expected[0])


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "size", "ours"),
    [
        (3, 1, 2, (8, 8), True),
        (5, 2, 2, (8, 8), True),
        (3, 1, 1, (2, 8), True),
        (3, 1, 1, (8, 8), False),
        (3, 2, 1, (2, 2), False),
        (3, 3, 2, (8, 8), False),
    ],
)
def test_only_what_torch_does_slowly_is_done_otherwise(kernel, stride, dilation, size, ours):
    layer = DepthwiseConv(6, kernel, stride, dilation).double()
    assert (layer(samples(size)).grad_fn.name() == FAST) == ours
    with torch.no_grad():
        assert layer(samples(size)).grad_fn is None


def test_gradients_of_gradients():
    layer = DepthwiseConv(2, 3, dilation=2).double()
    x = torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,))


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_the_meter_counts_what_it_counts_of_torchs_own(inward, trains):
    counts = []
    for layer in pair(3, 1, 2):
        layer.weight.requires_grad_(trains)
        x = samples((6, 6)).requires_grad_(inward)
        with Meter() as meter:
            scores = layer(x)
            if inward or trains:
                scores.sum().backward()
        counts.append(meter.macs)
    forward = 3 * 6 * 36 * 9
    assert counts == [forward * (1 + inward + trains)] * 2
