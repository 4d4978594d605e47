"""The operations of a chain as modules, over maps or over sequences of vectors.

All convolutions are without bias, and followed by BN with weights and ReLU. No activation follows
the sum of a residual connection.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.depthwise import DepthwiseConv
from fedloom.nets.lstm import Recurrent
from fedloom.spaces.chains.cells import LiGRU, QuasiRNN
from fedloom.spaces.chains.grammar import IDENTITY, ZERO, map_op
from fedloom.spaces.chains.plan import MapSize, StagePlan, reduced
from fedloom.spaces.ops import Step, scaled

# Over maps


class ConvNormRelu(nn.Sequential):
    """A convolution, BN and ReLU. The map keeps its size, or it is divided by the stride."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: int | None = None,
    ) -> None:
        if padding is None:
            padding = kernel // 2
        if groups == inputs == outputs and padding == kernel // 2:
            conv: nn.Conv2d = DepthwiseConv(inputs, kernel, stride)
        else:
            conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Stem(nn.Module):
    """The first convolution of a chain, which is not a slot."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = ConvNormRelu(inputs, outputs, kernel, stride=stride)
        self.name = f"stem_conv{kernel}"
        self.stride = stride
        self.outputs = outputs

    def step(self, channels: int) -> Step:
        return Step(self.name, self.stride, self.outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return y


class MapOperation(nn.Module):
    """The base class of operations over maps. They keep the channels and the size of the map."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def step(self, channels: int) -> Step | None:
        return Step(self.name, 1, channels)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(self.unscaled(x), scale)

    def unscaled(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the result of the operation, without its weight in a mixture."""
        raise NotImplementedError


class PlainConv(MapOperation):
    """`conv{k}`: a convolution without a residual connection."""

    def __init__(self, name: str, channels: int, kernel: int) -> None:
        super().__init__(name)
        self.conv = ConvNormRelu(channels, channels, kernel)

    def unscaled(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return y


class DepthwiseSeparable(MapOperation):
    """`ds{k}e{x}`: depthwise to x times the channels, then 1×1 back, + input."""

    def __init__(self, name: str, channels: int, inner: int, kernel: int) -> None:
        super().__init__(name)
        groups = min(channels, inner)
        self.depthwise = ConvNormRelu(channels, inner, kernel, groups=groups)
        self.pointwise = ConvNormRelu(inner, channels, 1)

    def unscaled(self, x: torch.Tensor) -> torch.Tensor:
        both: torch.Tensor = x + self.pointwise(self.depthwise(x))
        return both


class FusedBottleneck(MapOperation):
    """`mb{k}e{x}`: full convolution to x times the channels, squeeze-excite, 1×1 back, + input."""

    def __init__(self, name: str, channels: int, inner: int, kernel: int) -> None:
        super().__init__(name)
        self.full = ConvNormRelu(channels, inner, kernel)
        self.excite = SqueezeExcite(inner)
        self.pointwise = ConvNormRelu(inner, channels, 1)

    def unscaled(self, x: torch.Tensor) -> torch.Tensor:
        both: torch.Tensor = x + self.pointwise(self.excite(self.full(x)))
        return both


class SqueezeExcite(nn.Module):
    """Multiplies each channel by a number between 0 and 1, computed from the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels, 1)
        self.relu = nn.ReLU(inplace=True)
        self.expand = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean((2, 3), keepdim=True)
        weights = torch.sigmoid(self.expand(self.relu(self.squeeze(means))))
        return x * weights


class Identity(nn.Module):
    """Returns its input times its weight in a mixture."""

    def step(self, channels: int) -> Step | None:
        return None

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(x, scale)


def build_map_op(name: str, channels: int) -> nn.Module:
    op = map_op(name)
    if op.kind == IDENTITY:
        return Identity()
    if op.kind == "conv":
        return PlainConv(name, channels, op.kernel)
    if op.kind == "ds":
        return DepthwiseSeparable(name, channels, op.inner(channels), op.kernel)
    return FusedBottleneck(name, channels, op.inner(channels), op.kernel)


class TwoWays(nn.Module):
    """The reduction `dw+proj`: a depthwise and a 1×1 convolution, plus a 2×2 convolution.

    The latter has no padding, so both ignore the last row or column of a map with an odd side.
    """

    def __init__(self, stage: StagePlan) -> None:
        super().__init__()
        channels = stage.inputs
        self.depthwise = ConvNormRelu(channels, channels, 3, stride=2, groups=channels)
        self.pointwise = ConvNormRelu(channels, stage.outputs, 1)
        self.projection = ConvNormRelu(channels, stage.outputs, 2, stride=2, padding=0)
        self.outputs = stage.outputs
        self.rows = 2 * stage.after[0]
        self.columns = 2 * stage.after[1]
        self.is_odd = stage.size != (self.rows, self.columns)

    def step(self, channels: int) -> Step:
        return Step("reduce_dw+proj", 2, self.outputs)

    def size_after(self, height: int, width: int) -> MapSize:
        return reduced("dw+proj", (height, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_odd:
            x = x[:, :, : self.rows, : self.columns]
        both: torch.Tensor = self.pointwise(self.depthwise(x)) + self.projection(x)
        return both


class PooledPointwise(nn.Module):
    """The reduction `pool`: 3×3 average pooling and a 1×1 convolution."""

    def __init__(self, stage: StagePlan) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, 2, 1)
        self.pointwise = ConvNormRelu(stage.inputs, stage.outputs, 1)
        self.outputs = stage.outputs

    def step(self, channels: int) -> Step:
        return Step("reduce_pool", 2, self.outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.pointwise(self.pool(x))
        return y


def build_reduction(stage: StagePlan) -> nn.Module:
    if stage.reduce == "dw+proj":
        return TwoWays(stage)
    if stage.reduce == "pool":
        return PooledPointwise(stage)
    return nn.Identity()


# Over symbols: [samples, symbols, numbers per symbol]


class GatedRecurrent(nn.GRU):
    """torch's GRU, which counts its own MACs: autograd does not show them to the meter."""

    def count_macs(self, inputs: tuple[Any, ...], output: Any) -> int:
        symbols = inputs[0].shape[0] * inputs[0].shape[1]
        return int(symbols * 3 * self.hidden_size * (self.input_size + self.hidden_size))


class SequenceOperation(nn.Module):
    """The base class of operations over symbols. They return `hidden` numbers per symbol."""

    def __init__(self, name: str, hidden: int) -> None:
        super().__init__()
        self.name = name
        self.hidden = hidden

    def step(self, channels: int) -> Step:
        return Step(f"sequence_{self.name}", 1, self.hidden)


class TorchCell(SequenceOperation):
    """`lstm` and `gru`: torch's own cells, which have two biases."""

    def __init__(self, name: str, cell: nn.RNNBase) -> None:
        super().__init__(name, cell.hidden_size)
        self.cell = cell

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        outputs: torch.Tensor = self.cell(x)[0]  # the outputs of every symbol, not the last state
        return scaled(outputs, scale)


class OwnCell(SequenceOperation):
    """`ligru` and `qrnn`, which torch does not have."""

    def __init__(self, name: str, cell: nn.Module, hidden: int) -> None:
        super().__init__(name, hidden)
        self.cell = cell

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(self.cell(x), scale)


class SymbolLinear(SequenceOperation):
    """`linear`: a linear layer on each symbol, and a sigmoid."""

    def __init__(self, name: str, inputs: int, hidden: int) -> None:
        super().__init__(name, hidden)
        self.linear = nn.Linear(inputs, hidden)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return scaled(torch.sigmoid(self.linear(x)), scale)


class CausalConv(SequenceOperation):
    """`conv5`: a convolution of each symbol and the four before it, and a sigmoid."""

    def __init__(self, name: str, inputs: int, hidden: int) -> None:
        super().__init__(name, hidden)
        self.conv = nn.Conv1d(inputs, hidden, 5)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        padded = functional.pad(x.transpose(1, 2), (4, 0))
        return scaled(torch.sigmoid(self.conv(padded)).transpose(1, 2), scale)


def build_sequence_op(name: str, inputs: int, hidden: int) -> nn.Module | None:
    """Builds an operation over symbols; None for `zero`, which is never computed."""
    if name == ZERO:
        return None
    if name == IDENTITY:
        return Identity()
    if name == "lstm":
        return TorchCell(name, Recurrent(inputs, hidden, batch_first=True))
    if name == "gru":
        return TorchCell(name, GatedRecurrent(inputs, hidden, batch_first=True))
    if name == "ligru":
        return OwnCell(name, LiGRU(inputs, hidden), hidden)
    if name == "qrnn":
        return OwnCell(name, QuasiRNN(inputs, hidden), hidden)
    if name == "linear":
        return SymbolLinear(name, inputs, hidden)
    return CausalConv(name, inputs, hidden)
