"""What is made again in the backward pass: torch's bits, and no memory of its own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.nets import recomputed
from fedloom.nets.depthwise import DepthwiseConv
from fedloom.nets.recomputed import max_pool, norm_relu, worth_recomputing
from fedloom.spaces.ops import SepConv, normalised

CHANNELS = 8


def samples(*, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(4, CHANNELS, 9, 7, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


def kept_elements(work, *inputs):
    """Of all tensors that a result keeps for its backward pass."""
    sizes = {}

    def note(tensor):
        sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = work(*inputs)
    return result, sum(sizes.values())


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("kernel", [3, 5])
def test_norm_and_relu_before_a_convolution_have_torchs_bits(affine, tracks, kernel):
    torch.manual_seed(0)
    bns = [nn.BatchNorm2d(CHANNELS, affine=affine) for _ in range(2)]
    for bn in bns:
        bn.track_running_stats = tracks
    conv = DepthwiseConv(CHANNELS, kernel)
    x = samples()
    ours = conv(norm_relu(x, bns[0]))
    theirs = conv(functional.relu(bns[1](x)))
    assert torch.equal(ours, theirs)
    outer = torch.randn_like(ours)
    of_ours = torch.autograd.grad(ours, [x, conv.weight, *bns[0].parameters()], outer)
    of_theirs = torch.autograd.grad(theirs, [x, conv.weight, *bns[1].parameters()], outer)
    for actual, expected in zip(of_ours, of_theirs, strict=True):
        assert torch.equal(actual, expected)
    for name, buffer in bns[0].named_buffers():
        assert torch.equal(buffer, bns[1].get_buffer(name))


@pytest.mark.parametrize("affine", [False, True])
def test_a_scaled_norm_has_torchs_bits_at_every_size(affine, monkeypatch):
    torch.manual_seed(0)
    bns = [nn.BatchNorm2d(CHANNELS, affine=affine) for _ in range(2)]
    scale = torch.tensor(0.3, requires_grad=True)
    x = samples()
    theirs = normalised(x, bns[0], scale)
    monkeypatch.setattr(recomputed, "LEAST_ELEMENTS", 1)
    ours = normalised(x, bns[1], scale)
    assert ours.grad_fn.name() == "NormBackward"
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()
    outer = torch.randn_like(ours)
    of_ours = torch.autograd.grad(ours, [x, scale, *bns[1].parameters()], outer)
    of_theirs = torch.autograd.grad(theirs, [x, scale, *bns[0].parameters()], outer)
    for actual, expected in zip(of_ours, of_theirs, strict=True):
        assert torch.equal(actual, expected)
    for name, buffer in bns[0].named_buffers():
        assert torch.equal(buffer, bns[1].get_buffer(name))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_max_pool_has_torchs_bits(stride):
    x = samples()
    ours = max_pool(x, stride)
    theirs = functional.max_pool2d(x, 3, stride, 1)
    assert torch.equal(ours, theirs)
    outer = torch.randn_like(ours)
    of_ours = torch.autograd.grad(ours, [x], outer)
    of_theirs = torch.autograd.grad(theirs, [x], outer)
    assert torch.equal(of_ours[0], of_theirs[0])


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 2), (2, 2), (2, 1)])
def test_a_relu_that_several_convolutions_take_has_torchs_bits(stride, dilation):
    torch.manual_seed(0)
    convs = [DepthwiseConv(CHANNELS, kernel, stride, dilation) for kernel in (3, 5)]
    x = samples()
    weights = [conv.weight for conv in convs]
    gradients = []
    for relu in (recomputed.relu, functional.relu):
        shared = relu(x)
        total = convs[0](shared) + convs[1](shared)
        gradients.append(torch.autograd.grad(total.square().sum(), [x, *weights]))
    for actual, expected in zip(*gradients, strict=True):
        assert torch.equal(actual, expected)


def test_gradients_can_be_differentiated_again():
    torch.manual_seed(0)
    bn = nn.BatchNorm2d(CHANNELS).double()
    conv = DepthwiseConv(CHANNELS, 3).double()
    x = samples(dtype=torch.float64)

    def second(result):
        first = torch.autograd.grad(result.square().sum(), [x, conv.weight], create_graph=True)
        scalar = first[0].square().sum() + first[1].square().sum()
        return torch.autograd.grad(scalar, [x, conv.weight, bn.weight])

    ours = second(conv(max_pool(norm_relu(x, bn), 1) + conv(norm_relu(x, bn))))
    relu = functional.relu(bn(x))
    theirs = second(conv(functional.max_pool2d(relu, 3, 1, 1) + conv(relu)))
    torch.testing.assert_close(ours, theirs)


def test_a_separable_convolution_of_a_mixture_keeps_a_map_less(monkeypatch):
    torch.manual_seed(0)
    op = SepConv(CHANNELS, 3, 1, affine=False)
    x = samples()
    scale = torch.tensor(0.3, requires_grad=True)
    plain, before = kept_elements(op, x, scale)
    monkeypatch.setattr(recomputed, "LEAST_ELEMENTS", 1)
    small, after = kept_elements(op, x, scale)
    assert torch.equal(plain, small)
    assert before - after >= x.numel()
    parameters = [x, scale, *op.parameters()]
    pairs = zip(
        torch.autograd.grad(plain.sum(), parameters),
        torch.autograd.grad(small.sum(), parameters),
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_max_pool_keeps_its_input_alone():
    x = samples()
    _, elements = kept_elements(max_pool, x, 1)
    assert elements == x.numel()


def test_small_maps_and_passes_without_gradients_are_left_alone():
    side = math.isqrt(recomputed.LEAST_ELEMENTS // 2)
    large = torch.zeros(1, 2, side, side).contiguous(memory_format=torch.channels_last)
    large.requires_grad_()
    assert worth_recomputing(large)
    assert not worth_recomputing(large[..., 1:])
    assert not worth_recomputing(large.contiguous())
    assert not worth_recomputing(large.detach())
    with torch.no_grad():
        assert not worth_recomputing(large)


@pytest.mark.parametrize("dilation", [1, 2])
def test_torch_func_gets_torchs_own_operations(dilation):
    conv = DepthwiseConv(CHANNELS, 3, 1, dilation)
    x = samples().detach()

    def work(x):
        return conv(x).square().sum()

    expected = torch.autograd.grad(work(x.requires_grad_()), [x])
    torch.testing.assert_close(torch.func.grad(work)(x), expected[0], rtol=1e-4, atol=1e-4)
