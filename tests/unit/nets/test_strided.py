"""1×1 convolutions with a stride, without torch's own: it corrupts memory (nets/strided.py)."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.resnet import Block
from fedloom.nets.strided import strided_pointwise
from fedloom.spaces.ops import FactorizedReduce, ReluConv

LAYOUTS = (torch.contiguous_format, torch.channels_last)


class BareReduce(FactorizedReduce):
    """As it was: the stride is the convolutions' own."""

    def forward(self, x, scale=None):
        padded = functional.pad(x, self.pad) if any(self.pad) else x
        even = functional.conv2d(x, self.even.weight, stride=2)
        odd = functional.conv2d(padded[:, :, 1:, 1:], self.odd.weight, stride=2)
        return self.bn(torch.cat([even, odd], dim=1))


class BareBlock(Block):
    def forward(self, x):
        conv, norm = self.shortcut
        return torch.relu(
            self.residual(x) + norm(functional.conv2d(x, conv.weight, stride=self.stride))
        )


def tensors_of(net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Returns what a step computes: the output, all gradients and the statistics."""
    x = x.detach().requires_grad_()
    y = net(x)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    (y * direction.to(y.dtype)).sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad for p in net.parameters()), *net.buffers()]


def inputs(channels: int, size: tuple[int, int], layout: torch.memory_format) -> torch.Tensor:
    x = torch.randn(5, channels, *size, generator=torch.Generator().manual_seed(1))
    return x.contiguous(memory_format=layout)


def built(make, layout: torch.memory_format) -> nn.Module:
    torch.manual_seed(0)
    return make().to(memory_format=layout)


PAIRS = {
    "reduce": (
        lambda c, s: FactorizedReduce(c, 6, s, affine=True),
        lambda c, s: BareReduce(c, 6, s, affine=True),
    ),
    "block": (lambda c, _: Block(c, 2 * c, 2), lambda c, _: BareBlock(c, 2 * c, 2)),
}


def assert_rounding_alone(
    actual: list[torch.Tensor], expected: list[torch.Tensor], most: float
) -> None:
    """Differences are measured by the largest element of each tensor."""
    for mine, theirs in zip(actual, expected, strict=True):
        scale = max(float(theirs.abs().max()), 1.0)
        assert float((mine - theirs).abs().max()) <= most * scale


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [16, 17, 24, 48])
@pytest.mark.parametrize("size", [(8, 8), (7, 10)])
@pytest.mark.parametrize("pair", PAIRS)
def test_from_sixteen_channels_on_it_is_the_strided_convolution(pair, channels, size, layout):
    """Torch's own is sound there.

    The bits may differ: oneDNN chooses kernels by CPU, size and stride.
    """
    ours, bare = PAIRS[pair]
    x = inputs(channels, size, layout)
    actual = tensors_of(built(lambda: ours(channels, size), layout), x)
    expected = tensors_of(built(lambda: bare(channels, size), layout), x)
    assert_rounding_alone(actual, expected, 1e-5)
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.stride() == theirs.stride()  # the layout of what comes out decides later bits


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 8, 12, 15, 16, 32])
@pytest.mark.parametrize("pair", PAIRS)
def test_its_gradients_are_right(pair, channels, layout):
    """Compared with the strided convolution in float64, which oneDNN does not compute."""
    ours, bare = PAIRS[pair]
    x = inputs(channels, (7, 10), layout)
    actual = tensors_of(built(lambda: ours(channels, (7, 10)), layout), x)
    exact = built(lambda: bare(channels, (7, 10)).double(), torch.contiguous_format)
    expected = tensors_of(exact, x.double().contiguous())
    assert_rounding_alone(
        [tensor.double() for tensor in actual], [tensor.double() for tensor in expected], 1e-5
    )


def test_weights_are_drawn_and_called_as_before():
    torch.manual_seed(0)
    even = nn.Conv2d(4, 3, 1, 2, bias=False)
    odd = nn.Conv2d(4, 4, 1, 2, bias=False)
    net = built(lambda: FactorizedReduce(4, 7, (8, 8), affine=False), torch.contiguous_format)
    assert torch.equal(net.even.weight, even.weight) and torch.equal(net.odd.weight, odd.weight)
    assert [key for key in net.state_dict() if "bn" not in key] == ["even.weight", "odd.weight"]
    assert "shortcut.0.weight" in Block(4, 8, 2).state_dict()


def test_any_stride_and_none():
    conv = nn.Conv2d(2, 3, 1, bias=False)
    x = torch.randn(2, 2, 7, 8)
    for stride in (1, 2, 3):
        expected = functional.conv2d(x, conv.weight, stride=stride)
        torch.testing.assert_close(strided_pointwise(conv, x, stride), expected)


def test_a_relu_convolution_of_one_pixel_has_its_stride_outside():
    op = ReluConv(2, 3, 1, 2, affine=False)
    x = torch.randn(2, 2, 7, 8)
    assert op.conv.stride == (1, 1) and op.stride == 2
    expected = op.bn(functional.conv2d(x, op.conv.weight, stride=2))
    torch.testing.assert_close(op(x), expected)
