"""The search step of small maps: what is alike is computed in one call, where calls cost the most.

A call of a convolution takes some 50 µs before it computes anything, which for maps of 8×8 is
nearly all of its time. So two things are done side by side:

- The same operation on several edges of a cell whose sources are there at the same time, in the
  channels of one map: depthwise convolutions and BN, which know every channel by itself, and 1×1
  convolutions as groups.
- The two batches of a search step, training and validation samples, in one batch. BN normalises
  either by its own statistics and notes those of the training samples alone; weights learn from
  the training samples alone; and nothing is propagated back where neither weights nor α want it,
  so that as many MACs are computed as for one batch after the other.

The numbers are those of single calls up to rounding. It is for mixtures alone that train, of which
no cut network has to answer the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from fedloom.nets.parted import (
    Block,
    Chain,
    Convs,
    DepthwiseConvs,
    Norms,
    Note,
    PointwiseConvs,
    Reach,
    joined,
)
from fedloom.nets.remade import is_transformed
from fedloom.nets.strided import every
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

MOST_ELEMENTS = 1 << 15  # of a cell's input, for one batch: beyond, computing outweighs calling
BLOCK = 8  # oneDNN computes groups of whole blocks of channels fast
KNOWN = (SepConv, DilConv, FactorizedReduce, ReluConv, MaxPool, AvgPool, Skip, Noise)


def pays(x: torch.Tensor, channels: int) -> bool:
    """Whether calls are what costs, for a batch of these images and a first cell so wide."""
    if not isinstance(x, torch.Tensor) or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    if len(x) * channels * x.shape[-2] * x.shape[-1] > MOST_ELEMENTS or channels % BLOCK:
        return False
    if len(x) < 2:  # BN itself says what is wrong with it
        return False
    return torch.is_grad_enabled() and not x.requires_grad and not is_transformed()


def can_merge(ops: Sequence[Op]) -> bool:
    """Whether all are known here, and their BNs train and have no weights of their own."""
    for op in ops:
        if type(op) not in KNOWN:  # one from outside may compute anything
            return False
        for bn in norms_of(op):
            if not bn.training or bn.weight is not None or bn.momentum is None:
                return False
    return True


def norms_of(op: Op) -> list[nn.BatchNorm2d]:
    """Its BNs; what it ends in is the last of them."""
    if isinstance(op, SepConv):
        return [op.bn1, op.bn2]
    if isinstance(op, DilConv | FactorizedReduce | ReluConv | Pool):
        return [op.bn]
    return []


class State(NamedTuple):
    """A map of all samples."""

    map: torch.Tensor
    inward: int  # the first so many samples' gradient is wanted


@dataclass(frozen=True)
class SideBySide:
    """A `Run` (spaces/edges.py) over states, of samples to train on and of others behind them."""

    trained: int
    notes: list[Note] = field(default_factory=list)

    def __call__(self, work: Callable[..., torch.Tensor], *inputs: Any) -> State:
        states = [value for value in inputs if isinstance(value, State)]
        inward = max(state.inward for state in states)
        if isinstance(work, Stem):
            return State(self._stem(work, states[0].map), self.trained)
        if isinstance(work, nn.Linear):
            return State(self._linear(work, states[0].map), inward)
        if isinstance(work, Op):
            (state,) = states
            together = [Waiting(work, state, None)]
            return self.compute(kind_of(work, state), together)[0]
        arguments = [value.map if isinstance(value, State) else value for value in inputs]
        return State(work(*arguments), inward)

    def one_by_one(self, op: Op, state: State, scale: torch.Tensor) -> State:
        """An operation without weights; α learns from all samples."""
        return State(op(state.map, scale), state.map.shape[0])

    def compute(self, kind: Kind, waiting: Sequence[Waiting]) -> list[State]:
        """What each of them makes of its source."""
        ops: list[Any] = [one.op for one in waiting]
        pieces: dict[int, torch.Tensor] = {}  # by the source; edges that leave it share them
        for op, source, _ in waiting:
            if id(source) not in pieces:
                pieces[id(source)] = piece_of(op, source.map)
        scales = None
        inward = kind.inward
        if waiting[0].scale is not None:
            scales = [one.scale for one in waiting if one.scale is not None]
            inward = kind.size[0]  # α learns from all samples
        chain = Chain(blocks_of(ops), Reach(self.trained, kind.inward), self.notes)
        y = chain(joined([pieces[id(one.source)] for one in waiting], dim=1), scales)
        if len(waiting) == 1:
            return [State(y, inward)]
        return [State(part, inward) for part in y.chunk(len(waiting), dim=1)]

    def _stem(self, stem: Stem, x: torch.Tensor) -> torch.Tensor:
        """There is nothing to learn of others than those to train on."""
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
    """Operations of one kind can be merged."""

    type: type[Op]
    kernel: int
    stride: int
    size: torch.Size  # of its source
    inward: int  # samples for which the gradient of its source is wanted
    is_constant: bool  # the source: no gradient of it is computed


class Waiting(NamedTuple):
    """An operation with its source, to be computed with others of its kind."""

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
    return Kind(type(op), kernel, stride, source.map.shape, source.inward, is_constant)


def piece_of(op: Op, x: torch.Tensor) -> torch.Tensor:
    """What an operation's first convolutions take of its source."""
    if isinstance(op, FactorizedReduce):
        piece: torch.Tensor = EvenAndOdd.apply(x, op.pad)  # type: ignore[no-untyped-call]
        return piece
    if isinstance(op, ReluConv):
        return every(op.stride, x)
    return x


class EvenAndOdd(torch.autograd.Function):
    """What the halves of a `FactorizedReduce` look at, side by side in the channels.

    Slices of slices would each leave a map of zeros with a few gradients in it.
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
        of_x = torch.zeros(ctx.size, dtype=outer[0].dtype)
        of_x = of_x.to(memory_format=torch.channels_last)
        of_x[:, :, ::2, ::2] = outer[0][:, :channels]
        of_x[:, :, 1::2, 1::2] = outer[0][:, channels:, : height // 2, : width // 2]
        return of_x, None


def blocks_of(ops: Sequence[Any]) -> tuple[Block, ...]:
    """Operations of one type side by side, each with its part of the channels."""
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
    return (Block((), norms),)  # a pool is BN alone


def separable(ops: Sequence[Any], depth: str, point: str) -> tuple[Convs, ...]:
    """The depthwise and the 1×1 convolutions of these names."""
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
