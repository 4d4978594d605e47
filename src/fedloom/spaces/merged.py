"""A faster search step for small maps: operations of one kind are computed in a single call.

A call of a convolution takes some 50 µs before it computes anything, which for maps of 8×8 is
nearly all of its time. So two things are computed side by side:

- The same operation on several edges of a cell whose sources are ready at the same time, in the
  channels of one map: depthwise convolutions and BN, which treat every channel separately, and 1×1
  convolutions as groups.
- The two batches of a search step, training and validation samples, in one batch. BN normalises
  each by its own statistics and records only those of the training samples; weights learn only
  from the training samples; and nothing is propagated back where neither weights nor α need it, so
  that as many MACs are computed as for one batch after the other.

The results equal those of single calls up to rounding. So it is used only for mixtures in training:
no cut network has to reproduce their scores to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from fedloom.nets.recomputed import is_transformed
from fedloom.nets.strided import every
from fedloom.nets.two_part_batches import (
    Block,
    BlockSequence,
    Convs,
    DepthwiseConvs,
    Norms,
    PointwiseConvs,
    Reach,
    TrainingStatistics,
    joined,
)
from fedloom.spaces.ops import (
    AvgPool,
    DilConv,
    FactorizedReduce,
    MaxPool,
    Noise,
    Op,
    Pool,
    ReluConv,
    SepConv,
    Skip,
    Stem,
)

# The most elements of a cell's input, for one batch: above, computing takes longer than calling.
MOST_ELEMENTS = 1 << 15
BLOCK = 8  # oneDNN is fast for groups that are whole blocks of channels
MERGEABLE = (SepConv, DilConv, FactorizedReduce, ReluConv, MaxPool, AvgPool, Skip, Noise)


def pays(x: torch.Tensor, channels: int) -> bool:
    """Whether merging is faster, for a batch of these images and a first cell of this width."""
    if not isinstance(x, torch.Tensor) or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    if len(x) * channels * x.shape[-2] * x.shape[-1] > MOST_ELEMENTS or channels % BLOCK:
        return False
    if len(x) < 2:  # BN itself raises the error
        return False
    return torch.is_grad_enabled() and not x.requires_grad and not is_transformed()


def can_merge(ops: Sequence[Op]) -> bool:
    """Whether all operations can be merged: their BNs train and have no weights."""
    for op in ops:
        if type(op) not in MERGEABLE:  # an operation that is not ours may compute anything
            return False
        for bn in norms_of(op):
            if not bn.training or bn.weight is not None or bn.momentum is None:
                return False
    return True


def norms_of(op: Op) -> list[nn.BatchNorm2d]:
    """Returns the BNs of an operation. It ends in the last of them."""
    if isinstance(op, SepConv):
        return [op.bn1, op.bn2]
    if isinstance(op, DilConv | FactorizedReduce | ReluConv | Pool):
        return [op.bn]
    return []


class State(NamedTuple):
    """A map of all samples."""

    map: torch.Tensor
    grad_samples: int  # gradients are needed for this many samples, counted from the first


@dataclass(frozen=True)
class SideBySide:
    """Computes the steps of a supernet's `flow`, in place of the usual `Run` (spaces/edges.py).

    Its maps are `State`s, which hold the training samples first, then all others.
    """

    trained: int  # the number of training samples
    training_statistics: list[TrainingStatistics] = field(default_factory=list)

    def __call__(self, work: Callable[..., torch.Tensor], *inputs: Any) -> State:
        states = [value for value in inputs if isinstance(value, State)]
        grad_samples = max(state.grad_samples for state in states)
        if isinstance(work, Stem):
            return State(self._stem(work, states[0].map), self.trained)
        if isinstance(work, nn.Linear):
            return State(self._linear(work, states[0].map), grad_samples)
        if isinstance(work, Op):
            (state,) = states
            (result,) = self.compute(kind_of(work, state), [Waiting(work, state, None)])
            return result
        arguments = [value.map if isinstance(value, State) else value for value in inputs]
        return State(work(*arguments), grad_samples)

    def one_by_one(self, op: Op, state: State, scale: torch.Tensor) -> State:
        """Computes an operation without weights; α learns from all samples."""
        return State(op(state.map, scale), state.map.shape[0])

    def compute(self, kind: Kind, waiting: Sequence[Waiting]) -> list[State]:
        """Returns the result of each waiting operation on its source."""
        input_of: dict[int, torch.Tensor] = {}  # by the source: the edges that leave it share it
        inputs = []
        for op, source, _ in waiting:
            if id(source) not in input_of:
                input_of[id(source)] = convolution_input(op, source.map)
            inputs.append(input_of[id(source)])
        scales = [entry.scale for entry in waiting if entry.scale is not None]
        blocks = blocks_of([entry.op for entry in waiting])
        reach = Reach(self.trained, kind.grad_samples)
        sequence = BlockSequence(blocks, reach, self.training_statistics)
        y = sequence(joined(inputs, dim=1), scales or None)
        grad_samples = kind.grad_samples
        if scales:
            grad_samples = kind.size[0]  # α learns from all samples
        if len(waiting) == 1:
            return [State(y, grad_samples)]
        return [State(part, grad_samples) for part in y.chunk(len(waiting), dim=1)]

    def _stem(self, stem: Stem, x: torch.Tensor) -> torch.Tensor:
        """Computes the stem, with gradients only for the training samples."""
        if self.trained == x.shape[0]:
            y: torch.Tensor = stem(x)
            return y
        conv, bn = stem
        assert isinstance(bn, nn.BatchNorm2d)
        with torch.no_grad():
            others = conv(x[self.trained :])
            others = functional.batch_norm(
                others, None, None, bn.weight, bn.bias, True, 0.0, bn.eps
            )
        return torch.cat([stem(x[: self.trained]), others])

    def _linear(self, linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if self.trained == x.shape[0]:
            scores: torch.Tensor = linear(x)
            return scores
        constants = {name: weight.detach() for name, weight in linear.named_parameters()}
        others = functional_call(linear, constants, (x[self.trained :],))
        return torch.cat([linear(x[: self.trained]), others])


class Kind(NamedTuple):
    """What operations must have in common to be merged."""

    type: type[Op]
    kernel: int
    stride: int
    size: torch.Size  # the shape of the source
    grad_samples: int  # samples for which the gradient of the source is needed
    is_constant: bool  # whether the source needs no gradient at all


class Waiting(NamedTuple):
    """An operation and its source, waiting to be computed with others of its kind."""

    op: Op
    source: State
    scale: torch.Tensor | None


def kind_of(op: Op, source: State) -> Kind:
    kernel = 1
    stride = 1
    if isinstance(op, SepConv):
        kernel = op.depth1.kernel_size[0]
        stride = op.depth1.stride[0]
    elif isinstance(op, DilConv):
        kernel = op.depth.kernel_size[0]
        stride = op.depth.stride[0]
    is_constant = not source.map.requires_grad
    return Kind(type(op), kernel, stride, source.map.shape, source.grad_samples, is_constant)


def convolution_input(op: Op, x: torch.Tensor) -> torch.Tensor:
    """Returns the pixels of a source that an operation's first convolutions read."""
    if isinstance(op, FactorizedReduce):
        pixels: torch.Tensor = EvenAndOdd.apply(x, op.pad)  # type: ignore[no-untyped-call]
        return pixels
    if isinstance(op, ReluConv):
        return every(op.stride, x)
    return x


class EvenAndOdd(torch.autograd.Function):
    """The pixels that the two halves of a `FactorizedReduce` read, side by side in the channels.

    It is an autograd function because the backward pass of each slice would create a map that is
    mostly zeros.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
        ctx.size = x.shape
        odd = x[:, :, 1::2, 1::2]
        if any(pad):
            odd = functional.pad(odd, pad)
        return torch.cat([every(2, x), odd], dim=1)

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor, None]:
        _, channels, height, width = ctx.size
        x_grad = torch.zeros(ctx.size, dtype=outer[0].dtype)
        x_grad = x_grad.to(memory_format=torch.channels_last)
        x_grad[:, :, ::2, ::2] = outer[0][:, :channels]
        x_grad[:, :, 1::2, 1::2] = outer[0][:, channels:, : height // 2, : width // 2]
        return x_grad, None


def blocks_of(ops: Sequence[Any]) -> tuple[Block, ...]:
    """Returns the blocks of several operations of one type, each on its part of the channels."""
    first = ops[0]
    if isinstance(first, SepConv):
        return (
            Block(separable(ops, "depth1", "point1"), norms_named("bn1", ops)),
            Block(separable(ops, "depth2", "point2"), norms_named("bn2", ops)),
        )
    norms = norms_named("bn", ops)
    if isinstance(first, DilConv):
        return (Block(separable(ops, "depth", "point"), norms),)
    if isinstance(first, ReluConv):
        return (Block((PointwiseConvs(tuple(op.conv.weight for op in ops)),), norms),)
    if isinstance(first, FactorizedReduce):
        halves = []
        for op in ops:
            halves += [op.even.weight, op.odd.weight]
        return (Block((PointwiseConvs(tuple(halves)),), norms),)
    return (Block((), norms),)  # a pool has only a BN


def separable(ops: Sequence[Any], depth: str, point: str) -> tuple[Convs, ...]:
    """Returns the depthwise and the 1×1 convolutions that have these attribute names."""
    depthwise = [getattr(op, depth) for op in ops]
    pointwise = [getattr(op, point) for op in ops]
    return (
        DepthwiseConvs(
            tuple(conv.weight for conv in depthwise),
            depthwise[0].stride[0],
            depthwise[0].dilation[0],
        ),
        PointwiseConvs(tuple(conv.weight for conv in pointwise)),
    )


def norms_named(name: str, ops: Sequence[Any]) -> Norms:
    return Norms(tuple(getattr(op, name) for op in ops))
