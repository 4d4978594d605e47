"""What is made again in the backward pass, with the same kernel and to the same bits, not kept.

- BN and ReLU between two convolutions. A convolution keeps its input for the gradient of its
  weight, which after BN and ReLU is one map more for every map that BN keeps itself: of all that a
  supernet keeps about an eighth. `norm_relu` keeps BN's input alone, and a `DepthwiseConv` behind
  it, which keeps nothing of its own, asks for its input when its gradients are due.
- The ReLU of a state, for the depthwise convolutions that take it.
- Where the largest values of a max pool stood: eight bytes for a value of four.

Making something again takes time, and calls of its own, so it is for maps whose memory counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.graph import Node
from torch.nn import functional

LEAST_ELEMENTS = 1 << 17  # of a map: half a megabyte
ROOM = 256  # elements


def worth_remaking(x: torch.Tensor) -> bool:
    """Whether there will be a backward pass, and what it keeps of this map counts."""
    if not isinstance(x, torch.Tensor):  # a tracer's stand-in for one
        return False
    elements = x.numel()
    if not isinstance(elements, int):  # an exporter's, of any batch: to compare it would bound that
        return False
    if elements < LEAST_ELEMENTS or x.device.type != "cpu":
        return False
    if is_transformed():
        return False
    if not x.is_contiguous(memory_format=torch.channels_last):  # the layout of what is made here
        return False
    return torch.is_grad_enabled() and x.requires_grad


def is_transformed() -> bool:
    """Whether a compiler, a tracer or `torch.func` reads along: they get torch's own operations."""
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return True
    return torch._C._are_functorch_transforms_active()


def norm_relu(x: torch.Tensor, bn: nn.BatchNorm2d) -> torch.Tensor:
    """`relu(bn(x))` to the bit, in training mode."""
    assert bn.training
    running_mean = None
    running_var = None
    if bn.track_running_stats:
        running_mean = bn.running_mean
        running_var = bn.running_var
        assert bn.num_batches_tracked is not None
        bn.num_batches_tracked.add_(1)
    assert bn.momentum is not None
    result: torch.Tensor = NormRelu.apply(  # type: ignore[no-untyped-call]
        x, bn.weight, bn.bias, running_mean, running_var, bn.momentum, bn.eps
    )
    return result


class NormRelu(torch.autograd.Function):
    """Its gradients can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        momentum: float,
        eps: float,
    ) -> torch.Tensor:
        y, mean, deviation = roomy_norm(x, weight, bias, running_mean, running_var, momentum, eps)
        ctx.save_for_backward(x, weight, bias, mean, deviation)
        ctx.eps = eps
        ctx.remade = None
        return y.relu_()

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, _, mean, deviation = ctx.saved_tensors
        y = remake(ctx)
        ctx.remade = None
        of_norm = torch.ops.aten.threshold_backward(outer[0], y, 0)
        wanted = list(ctx.needs_input_grad[:3])
        of_x, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            of_norm, x, weight, None, None, mean, deviation, True, ctx.eps, wanted
        )
        return of_x, of_weight, of_bias, None, None, None, None


class Norm(torch.autograd.Function):
    """BN in training mode, to the bit; its result leaves room when it is freed."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        momentum: float,
        eps: float,
    ) -> torch.Tensor:
        y, mean, deviation = roomy_norm(x, weight, bias, running_mean, running_var, momentum, eps)
        ctx.save_for_backward(x, weight, mean, deviation)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, deviation = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        of_x, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            outer[0], x, weight, None, None, mean, deviation, True, ctx.eps, wanted
        )
        return of_x, of_weight, of_bias, None, None, None, None


def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """torch's `batch_norm` in training mode, to the bit, for maps whose memory counts."""
    result: torch.Tensor = Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, running_mean, running_var, momentum, eps
    )
    return result


def roomy_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, the mean of every channel, and one over its deviation."""
    results = (roomy_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1]))
    torch.native_batch_norm(
        x, weight, bias, running_mean, running_var, True, momentum, eps, out=results
    )
    return results


def roomy_like(x: torch.Tensor) -> torch.Tensor:
    """An empty map like this one, with the channels last, that leaves room for another when freed.

    torch asks for addresses that are multiples of 64, for which glibc looks for a little more than
    the map itself. So a map never fits where another of its size was, and what is made between
    two maps that are kept would leave a hole for the rest of the forward pass.
    """
    batch, channels, height, width = x.shape
    numbers = x.new_empty(x.numel() + ROOM)[: x.numel()]
    return numbers.view(batch, height, width, channels).permute(0, 3, 1, 2)


def relu(x: torch.Tensor) -> torch.Tensor:
    """torch's own, to the bit."""
    result: torch.Tensor = RemadeRelu.apply(x)  # type: ignore[no-untyped-call]
    return result


class RemadeRelu(torch.autograd.Function):
    """Its gradients can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.remade = None
        return torch.clamp_min(x, 0, out=roomy_like(x))  # which is what torch's ReLU does

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        ctx.remade = None
        of_x: torch.Tensor = torch.ops.aten.threshold_backward(outer[0], x, 0)
        return of_x


MAKERS = ("NormReluBackward", "RemadeReluBackward")  # as autograd names them


def maker_of(x: torch.Tensor) -> Node | None:
    """What can make this tensor again; None: it has to be kept."""
    node = x.grad_fn
    if node is not None and node.name() in MAKERS:
        return node
    return None


def remake(maker: Any) -> torch.Tensor:
    """What a maker gave. It is kept from the first time on until the maker's own turn."""
    if maker.remade is None:
        x, *rest = maker.saved_tensors
        if rest:
            weight, bias, _, _ = rest
            y = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, maker.eps)[0]
            maker.remade = y.relu_()
        else:
            maker.remade = functional.relu(x)
    remade: torch.Tensor = maker.remade
    return remade


def max_pool(x: torch.Tensor, stride: int) -> torch.Tensor:
    """`max_pool2d(x, 3, stride, 1)`, to the bit."""
    result: torch.Tensor = MaxPool.apply(x, stride)  # type: ignore[no-untyped-call]
    return result


class MaxPool(torch.autograd.Function):
    """Its gradients can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, stride: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.stride = stride
        return functional.max_pool2d(x, 3, stride, 1)

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        window = ([3, 3], [ctx.stride, ctx.stride], [1, 1], [1, 1], False)
        with torch.no_grad():
            _, places = torch.ops.aten.max_pool2d_with_indices(x, *window)
        of_x = torch.ops.aten.max_pool2d_with_indices_backward(outer[0], x, *window, places)
        return of_x, None
