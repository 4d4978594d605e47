"""The operations on the edges of cells, each with its cost formula.

An operation says what it takes from its source (`takes`): the state itself, its ReLU, or a pooled
version. The cell computes each of these once per source, however many operations use it. An
operation that ends in a BN applies its weight in a mixture (`scale`) there, as if it were the BN's
own weight: no scaled copy is created, and none is kept for the backward pass.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.depthwise import DepthwiseConv
from fedloom.nets.folding import Folded, norm_alone, product
from fedloom.nets.recomputed import norm, norm_relu, worth_recomputing
from fedloom.nets.strided import strided_pointwise
from fedloom.spaces.space import NONE, Cost

CROSSED = "conv_7x1"  # the kind of `conv_7x1_1x7`, as `OpName.parse` splits names

Takes = Literal["raw", "relu", "max", "avg"]


class Step(NamedTuple):
    """A row of a latency table: the name of the work, and what it does to a map."""

    op: str
    stride: int
    outputs: int  # channels of the result


class Op(nn.Module):
    takes: ClassVar[Takes] = "raw"

    def step(self, channels: int) -> Step | None:
        """Its row in a latency table, for a source of `channels`; None: it has no work to do."""
        raise NotImplementedError

    def folded(self) -> Folded | None:
        """The operation in evaluation mode with its BN folded in; None: it is called as it is."""
        return None

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError


def normalised(x: torch.Tensor, bn: nn.BatchNorm2d, scale: torch.Tensor | None) -> torch.Tensor:
    """Returns the result of the BN, times `scale`.

    If `scale` is a single number, γ and β are scaled instead, which costs nothing.
    """
    if scale is None or scale.dim() > 0:
        y: torch.Tensor = bn(x)
        return scaled(y, scale)
    running_mean = bn.running_mean
    running_var = bn.running_var
    if bn.training and not bn.track_running_stats:
        # They stay unchanged, as in nn.BatchNorm2d.
        running_mean = None
        running_var = None
    elif bn.training and bn.num_batches_tracked is not None:
        bn.num_batches_tracked.add_(1)
    weight = scaled_weight(bn, scale)
    bias = None if bn.bias is None else scale * bn.bias
    momentum = 0.0 if bn.momentum is None else bn.momentum
    if bn.training and worth_recomputing(x):
        return norm(x, weight, bias, running_mean, running_var, momentum, bn.eps)
    return functional.batch_norm(
        x, running_mean, running_var, weight, bias, bn.training, momentum, bn.eps
    )


def scaled_weight(bn: nn.BatchNorm2d, scale: torch.Tensor) -> torch.Tensor:
    """Returns γ times a number; a BN without weights has γ = 1."""
    if bn.weight is not None:
        return scale * bn.weight
    # contiguous: torch's channels-last kernel reads γ by its address, and an expanded tensor has
    # only one element in memory
    return scale.expand(bn.num_features).contiguous()


def scaled(x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Returns `x` times a number, or times one number for every sample."""
    if scale is None:
        return x
    if scale.dim() == 0:
        return scale * x
    one_per_sample = (-1,) + (1,) * (x.dim() - 1)
    return scale.view(one_per_sample) * x


def bn(channels: int, *, affine: bool) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, affine=affine)


class Stem(nn.Sequential):
    """The first layers of a network of cells: a 3×3 convolution and BN.

    The stem is not an operation of a slot.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs))
        self.outputs = outputs

    def step(self, channels: int) -> Step:
        return Step("stem", 1, self.outputs)


class SepConv(Op):
    """Depthwise and pointwise convolution, twice."""

    takes = "relu"

    def __init__(self, channels: int, kernel: int, stride: int, *, affine: bool) -> None:
        super().__init__()
        self.depth1 = DepthwiseConv(channels, kernel, stride)
        self.point1 = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn1 = bn(channels, affine=affine)
        self.relu = nn.ReLU(inplace=True)
        self.depth2 = DepthwiseConv(channels, kernel)
        self.point2 = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn2 = bn(channels, affine=affine)

    def step(self, channels: int) -> Step:
        return Step(f"sep_conv_{square(self.depth1)}", self.depth1.stride[0], channels)

    def folded(self) -> Folded:
        depth1 = product(self.depth1)
        point1 = product(self.point1, self.bn1)
        depth2 = product(self.depth2)
        point2 = product(self.point2, self.bn2)

        def compute(x: torch.Tensor) -> torch.Tensor:
            between = point1(depth1(x)).relu_()
            return point2(depth2(between))

        return compute

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        x = self.point1(self.depth1(x))
        trains = self.bn1.training and self.bn1.momentum is not None
        if scale is not None and trains and worth_recomputing(x):
            x = norm_relu(x, self.bn1)
        else:
            x = self.relu(self.bn1(x))
        return normalised(self.point2(self.depth2(x)), self.bn2, scale)


class DilConv(Op):
    """Dilated depthwise and pointwise convolution."""

    takes = "relu"

    def __init__(self, channels: int, kernel: int, stride: int, *, affine: bool) -> None:
        super().__init__()
        self.depth = DepthwiseConv(channels, kernel, stride, dilation=2)
        self.point = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn = bn(channels, affine=affine)

    def step(self, channels: int) -> Step:
        return Step(f"dil_conv_{square(self.depth)}", self.depth.stride[0], channels)

    def folded(self) -> Folded:
        depth = product(self.depth)
        point = product(self.point, self.bn)
        return lambda x: point(depth(x))

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return normalised(self.point(self.depth(x)), self.bn, scale)


class CrossedConv(Op):
    """A full 1×7 convolution, a full 7×1 convolution and one BN."""

    takes = "relu"

    def __init__(self, channels: int, kernel: int, stride: int, *, affine: bool) -> None:
        super().__init__()
        pad = kernel // 2
        self.across = nn.Conv2d(channels, channels, (1, kernel), (1, stride), (0, pad), bias=False)
        self.down = nn.Conv2d(channels, channels, (kernel, 1), (stride, 1), (pad, 0), bias=False)
        self.bn = bn(channels, affine=affine)

    def step(self, channels: int) -> Step:
        kernel = self.down.kernel_size[0]
        return Step(f"conv_{kernel}x1_1x{kernel}", self.down.stride[0], channels)

    def folded(self) -> Folded:
        across = product(self.across)
        down = product(self.down, self.bn)
        return lambda x: down(across(x))

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return normalised(self.down(self.across(x)), self.bn, scale)


class ReluConv(Op):
    """A full convolution and BN on the source's ReLU.

    Cells use it as preprocessing, and NAS-Bench-201 for its convolutions.
    """

    takes = "relu"

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, *, affine: bool
    ) -> None:
        super().__init__()
        self.stride = stride
        if kernel == 1:
            self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        else:
            self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = bn(outputs, affine=affine)

    def step(self, channels: int) -> Step:
        return Step(f"conv_{square(self.conv)}", self.stride, self.conv.out_channels)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        if self.conv.kernel_size == (1, 1):
            return normalised(strided_pointwise(self.conv, x, self.stride), self.bn, scale)
        return normalised(self.conv(x), self.bn, scale)


class FactorizedReduce(Op):
    """Halves the map without losing pixels.

    It has two 1×1 convolutions of stride 2; the second reads the map shifted by one pixel.
    """

    takes = "relu"

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int], *, affine: bool) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        self.bn = bn(outputs, affine=affine)
        # A map with an odd side needs one more pixel before it is shifted by one.
        self.pad = (0, size[1] % 2, 0, size[0] % 2)

    def step(self, channels: int) -> Step:
        return Step("reduce", 2, self.even.out_channels + self.odd.out_channels)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        even = strided_pointwise(self.even, x, 2)
        odd = strided_pointwise(self.odd, self.shifted(x), 2)
        return normalised(torch.cat([even, odd], dim=1), self.bn, scale)

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the map shifted by one pixel in both directions."""
        if any(self.pad):
            x = functional.pad(x, self.pad)
        return x[:, :, 1:, 1:]


class Pool(Op):
    """BN on the pooled state of the source, which the cell computes."""

    def __init__(self, channels: int, *, affine: bool) -> None:
        super().__init__()
        self.bn = bn(channels, affine=affine)

    def step(self, channels: int) -> Step:
        return Step("batch_norm", 1, channels)

    def folded(self) -> Folded:
        return norm_alone(self.bn)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return normalised(x, self.bn, scale)


class MaxPool(Pool):
    takes = "max"


class AvgPool(Pool):
    takes = "avg"


class PlainAvgPool(Op):
    """Average pooling without BN, as in NAS-Bench-201."""

    takes = "avg"

    def step(self, channels: int) -> None:
        return None

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(x, scale)


class Skip(Op):
    def step(self, channels: int) -> None:
        return None

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(x, scale)


class Noise(Op):
    """Gaussian noise with the size of the source.

    No search should keep this operation (Zela et al. 2020, s4).
    """

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def step(self, channels: int) -> Step:
        return Step("noise", self.stride, channels)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        noise = torch.randn_like(x[:, :, :: self.stride, :: self.stride])
        return scaled(noise, scale)


def square(conv: nn.Conv2d) -> str:
    """Returns the kernel size as it is written in names: `3x3`."""
    return f"{conv.kernel_size[0]}x{conv.kernel_size[1]}"


class OpName(NamedTuple):
    """The parts of a name such as `sep_conv_3x3`."""

    kind: str
    kernel: int

    @classmethod
    def parse(cls, name: str) -> OpName:
        kind, size = name.rsplit("_", 1)
        return cls(kind, int(size[-1]))


def build_op(
    name: str,
    channels: int,
    stride: int,
    size: tuple[int, int],
    *,
    affine: bool,
) -> Op | None:
    """Builds the operation of an edge, for a source of `size`.

    It returns None for `none`, which is never computed.
    """
    if name == NONE:
        return None
    if name == "skip_connect" and stride == 1:
        return Skip()
    if name == "skip_connect":
        return FactorizedReduce(channels, channels, size, affine=affine)
    if name == "noise":
        return Noise(stride)
    kind, kernel = OpName.parse(name)
    if kind == CROSSED:
        return CrossedConv(channels, kernel, stride, affine=affine)
    if kind == "max_pool":
        return MaxPool(channels, affine=affine)
    if kind == "avg_pool":
        return AvgPool(channels, affine=affine)
    if kind == "nor_conv":
        return ReluConv(channels, channels, kernel, stride, affine=affine)
    if kind == "sep_conv":
        return SepConv(channels, kernel, stride, affine=affine)
    return DilConv(channels, kernel, stride, affine=affine)


def op_cost(name: str, channels: int, stride: int, size: tuple[int, int], *, affine: bool) -> Cost:
    """Returns the cost of an operation by formula, for a source of `size`.

    The source's ReLU is not included, because operations share it.
    """
    out = area(size, stride)
    if name == NONE:
        return Cost()
    if name == "noise":
        return Cost(activations=channels * out)
    if name == "skip_connect" and stride == 1:
        return Cost()
    if name == "skip_connect":
        return reduce_cost(channels, channels, size, affine=affine)
    norm = norm_params(channels, affine=affine)
    kind, kernel = OpName.parse(name)
    if kind in ("max_pool", "avg_pool"):
        return Cost(params=norm, activations=2 * channels * out)  # the pooled map and BN
    if kind == "nor_conv":
        return conv_cost(channels, channels, kernel, stride, size, affine=affine)
    if kind == CROSSED:
        return crossed_cost(channels, kernel, stride, size, affine=affine)
    repetitions = 1  # of depthwise convolution, 1×1 convolution and BN
    if kind == "sep_conv":
        repetitions = 2
    weights = channels * kernel**2 + channels * channels
    return Cost(
        params=repetitions * (weights + norm),
        macs=repetitions * weights * out,
        activations=repetitions * 3 * channels * out,
    )


def conv_cost(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int,
    size: tuple[int, int],
    *,
    affine: bool,
) -> Cost:
    """The cost of a full convolution and its BN."""
    weights = inputs * outputs * kernel**2
    out = area(size, stride)
    return Cost(weights + norm_params(outputs, affine=affine), weights * out, 2 * outputs * out)


def crossed_cost(
    channels: int, kernel: int, stride: int, size: tuple[int, int], *, affine: bool
) -> Cost:
    """The cost of a `CrossedConv`, whose first convolution reduces only one side of the map."""
    weights = channels * channels * kernel
    between = size[0] * -(-size[1] // stride)
    out = area(size, stride)
    return Cost(
        2 * weights + norm_params(channels, affine=affine),
        weights * (between + out),
        channels * (between + 2 * out),
    )


def reduce_cost(inputs: int, outputs: int, size: tuple[int, int], *, affine: bool) -> Cost:
    """The cost of a `FactorizedReduce`: its two halves, their concatenation and BN.

    A source with an odd side is copied and padded first.
    """
    weights = inputs * outputs
    out = area(size, 2)
    activations = 3 * outputs * out
    if size[0] % 2 or size[1] % 2:
        activations += inputs * 4 * out
    return Cost(weights + norm_params(outputs, affine=affine), weights * out, activations)


def norm_params(channels: int, *, affine: bool) -> int:
    """The number of elements of γ and β of a BN, if it has them."""
    if not affine:
        return 0
    return 2 * channels


def area(size: tuple[int, int], stride: int) -> int:
    """The number of pixels of the result: padded operations round the size up."""
    return -(-size[0] // stride) * -(-size[1] // stride)
