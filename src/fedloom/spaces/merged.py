"""The same operation on several edges of a cell, computed in one call where calls cost the most.

A call of a convolution takes some 50 µs before it computes anything, which for maps of 8×8 is
nearly all of its time. What is the same on several edges whose sources are there at the same time
is therefore computed side by side, in the channels of one map: depthwise convolutions and BN, which
know every channel by itself, and 1×1 convolutions as groups of one. Only the gradients of 1×1
weights are computed one by one, because in groups they are added up in another order.

Every number stays what it is without merging, to the bit where oneDNN has AVX2 alone (with wider
instructions it was not seen; no promise rests on it). For that, gradients must also be added up
in the same order where edges leave one source: autograd adds them in the reverse order of the
forward pass, so every edge takes its input, as a view of its own, when its turn would have been.

It is for mixtures alone, of which no cut network has to answer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets import products
from fedloom.nets.depthwise import can_differentiate, depthwise
from fedloom.nets.remade import is_transformed
from fedloom.nets.strided import every
from fedloom.spaces.ops import FactorizedReduce, Op, SepConv, normalised

MOST_ELEMENTS = 1 << 15  # of one edge's input: beyond, computing takes longer than calling
BLOCK = 8  # 1×1 convolutions in groups of whole blocks have the bits of single ones,
MOST_CHANNELS = 32  # up to so many channels


class Waiting(NamedTuple):
    """An operation of an edge with its input, to be computed with others of its kind."""

    edge: int
    number: int  # of the option
    op: Op
    pieces: list[torch.Tensor]  # of its source, each a view of its own
    scale: torch.Tensor


class Kind(NamedTuple):
    """Operations of one kind can be merged."""

    type: type[Op]
    kernel: int
    stride: int
    inward: bool  # whether the gradient of its input is wanted


def can_merge(state: torch.Tensor, channels: int) -> bool:
    """Whether merging pays for edges that leave states like this one."""
    if not isinstance(state, torch.Tensor) or state.device.type != "cpu":
        return False
    if state.numel() > MOST_ELEMENTS or state.dtype != torch.float32:
        return False
    if channels % BLOCK or channels > MOST_CHANNELS:
        return False
    if not torch.is_grad_enabled() or is_transformed():
        return False
    return state.is_contiguous(memory_format=torch.channels_last)


def kind_of(op: nn.Module, x: torch.Tensor, scale: torch.Tensor) -> Kind | None:
    """None: this one is computed by itself."""
    if scale.dim() > 0:
        return None
    if type(op) is SepConv and is_plain(op.bn1) and is_plain(op.bn2):
        return Kind(SepConv, op.depth1.kernel_size[0], op.depth1.stride[0], x.requires_grad)
    if type(op) is FactorizedReduce and is_plain(op.bn) and has_whole_halves(op):
        return Kind(FactorizedReduce, 1, 2, x.requires_grad)
    return None


def has_whole_halves(op: FactorizedReduce) -> bool:
    outputs = op.even.out_channels
    return outputs == op.odd.out_channels and outputs % BLOCK == 0


def is_plain(bn: nn.BatchNorm2d) -> bool:
    """Training, without weights of its own."""
    return bn.training and bn.weight is None and bn.momentum is not None


def pieces_of(op: Op, x: torch.Tensor) -> list[torch.Tensor]:
    """What an operation convolves of its source."""
    if isinstance(op, FactorizedReduce):
        return [every(2, x), every(2, op.shifted(x))]
    return [x.view_as(x)]


def compute(kind: Kind, waiting: Sequence[Waiting]) -> list[torch.Tensor]:
    """What each of them makes of its input.

    The last BN is each one's own: its backward pass has other bits for a gradient that comes as a
    part of a larger map, and so it comes to the last node of a cell.
    """
    first = waiting[0]
    if len(waiting) == 1 and kind.type is SepConv:
        return [first.op(first.pieces[0], first.scale)]
    pieces = []
    for one in waiting:
        pieces += one.pieces
    ops: list[Any] = [one.op for one in waiting]
    x = torch.cat(pieces, dim=1)
    if kind.type is SepConv:
        y = before_last_norms(x, ops)
        last_norms = [op.bn2 for op in ops]
    else:
        y = pointwise_convs(x, halves(ops))
        last_norms = [op.bn for op in ops]
    results = []
    for part, bn, one in zip(y.chunk(len(waiting), dim=1), last_norms, waiting, strict=True):
        own = part.contiguous(memory_format=torch.channels_last)
        results.append(normalised(own, bn, one.scale))
    return results


def before_last_norms(x: torch.Tensor, ops: Sequence[SepConv]) -> torch.Tensor:
    x = depthwise_convs(x, [op.depth1 for op in ops])
    x = pointwise_convs(x, [op.point1 for op in ops])
    x = norms(x, [op.bn1 for op in ops]).relu_()
    x = depthwise_convs(x, [op.depth2 for op in ops])
    return pointwise_convs(x, [op.point2 for op in ops])


def halves(ops: Sequence[FactorizedReduce]) -> list[nn.Conv2d]:
    convs = []
    for op in ops:
        convs += [op.even, op.odd]
    return convs


def depthwise_convs(x: torch.Tensor, convs: Sequence[nn.Conv2d]) -> torch.Tensor:
    weight = torch.cat([conv.weight for conv in convs])
    y = depthwise(x, weight, convs[0].stride[0], convs[0].dilation[0])
    products.tell(y.numel() * weight[0].numel(), x, y)
    return y


def pointwise_convs(x: torch.Tensor, convs: Sequence[nn.Conv2d]) -> torch.Tensor:
    weights = [conv.weight for conv in convs]
    y: torch.Tensor
    if can_differentiate(x, weights[0]):
        y = GroupedPointwise.apply(x, *weights)  # type: ignore[no-untyped-call]
    else:
        y = functional.conv2d(x, torch.cat(weights), groups=len(weights))
    products.tell(y.numel() * weights[0].shape[1], x, y)
    return y


class GroupedPointwise(torch.autograd.Function):
    """1×1 convolutions, each of its own part of the channels."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, *weights)
        return functional.conv2d(x, torch.cat(weights), groups=len(weights))

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = gradient(outer[0], x, torch.cat(weights), groups=len(weights), of_weight=False)
        of_weights: list[torch.Tensor | None] = [None] * len(weights)
        parts_of_outer = outer[0].chunk(len(weights), dim=1)
        parts_of_x = x.chunk(len(weights), dim=1)
        for number, weight in enumerate(weights):
            if ctx.needs_input_grad[1 + number]:  # else it is frozen
                of_weights[number] = gradient(
                    parts_of_outer[number], parts_of_x[number], weight, groups=1, of_weight=True
                )
        return of_x, *of_weights


def gradient(
    outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, groups: int, of_weight: bool
) -> torch.Tensor:
    """torch's own of a 1×1 convolution, of its weight or of its input."""
    wanted = [not of_weight, of_weight, False]
    gradients = torch.ops.aten.convolution_backward(
        outer, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], groups, wanted
    )
    found: torch.Tensor = gradients[1] if of_weight else gradients[0]
    return found


def norms(x: torch.Tensor, bns: Sequence[nn.BatchNorm2d]) -> torch.Tensor:
    """BNs without weights of their own, each of its part of the channels."""
    channels = bns[0].num_features
    momentum = bns[0].momentum
    assert momentum is not None
    eps = bns[0].eps
    if not bns[0].track_running_stats:
        return functional.batch_norm(x, None, None, None, None, True, momentum, eps)
    means = [bn.get_buffer("running_mean") for bn in bns]
    variances = [bn.get_buffer("running_var") for bn in bns]
    mean = torch.cat(means)
    variance = torch.cat(variances)
    y = functional.batch_norm(x, mean, variance, None, None, True, momentum, eps)
    torch._foreach_copy_(means + variances, [*mean.split(channels), *variance.split(channels)])
    torch._foreach_add_([bn.get_buffer("num_batches_tracked") for bn in bns], 1)
    return y
