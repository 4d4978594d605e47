"""Maps that the backward pass recomputes instead of keeping them in memory.

They are recomputed with the same kernel, to the same bits:

- The result of BN and ReLU between two convolutions. A convolution keeps its input for the gradient
  of its weight: after BN and ReLU, that is one more map for every map that BN keeps itself, or
  about an eighth of everything that a supernet keeps. `norm_relu` keeps only BN's input. A
  `DepthwiseConv` after it keeps no map, and asks for its input when it computes its gradients.
- The ReLU of a state, for the depthwise convolutions that take it.
- The positions of the largest values of a max pool: eight bytes for a value of four.

Recomputing takes time and additional calls, so it is used only for maps whose memory matters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.graph import Node
from torch.nn import functional

LEAST_ELEMENTS = 1 << 17  # of a map: half a megabyte
ROOM = 256  # additional elements: see `roomy_like`


def worth_recomputing(x: torch.Tensor) -> bool:
    """Whether there will be a backward pass, and this map is large enough to be worth it."""
    if not isinstance(x, torch.Tensor):  # a tracer's proxy
        return False
    elements = x.numel()
    if not isinstance(elements, int):  # an exporter's symbol: comparing it would bound the batch
        return False
    if elements < LEAST_ELEMENTS or x.device.type != "cpu":
        return False
    if is_transformed():
        return False
    if not x.is_contiguous(memory_format=torch.channels_last):  # the layout of `roomy_like`
        return False
    return torch.is_grad_enabled() and x.requires_grad


def is_transformed() -> bool:
    """Whether a compiler, a tracer or `torch.func` is active: these get torch's own operations."""
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return True
    return torch._C._are_functorch_transforms_active()


def norm_relu(x: torch.Tensor, bn: nn.BatchNorm2d) -> torch.Tensor:
    """Computes `relu(bn(x))` in training mode, to the bit, and keeps only BN's input."""
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
    """BN and ReLU in training mode, which supports double differentiation."""

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
        ctx.recomputed = None
        return y.relu_()

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, _, mean, deviation = ctx.saved_tensors
        y = recompute(ctx)
        ctx.recomputed = None
        norm_grad = torch.ops.aten.threshold_backward(outer[0], y, 0)
        return norm_gradients(ctx, norm_grad, x, weight, mean, deviation)


class Norm(torch.autograd.Function):
    """BN in training mode, to the bit, whose result is allocated by `roomy_like`."""

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
        return norm_gradients(ctx, outer[0], x, weight, mean, deviation)


def norm_gradients(
    ctx: Any,
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Returns a gradient, or None, for each argument of `NormRelu` and `Norm`.

    `outer` is the gradient of the BN's result.
    """
    wanted = list(ctx.needs_input_grad[:3])
    x_grad, weight_grad, bias_grad = torch.ops.aten.native_batch_norm_backward(
        outer, x, weight, None, None, mean, deviation, True, ctx.eps, wanted
    )
    return x_grad, weight_grad, bias_grad, None, None, None, None


def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """Computes torch's `batch_norm` in training mode, to the bit, for maps whose memory matters."""
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
    """Returns the result of BN, the mean of every channel and its inverse deviation."""
    results = (roomy_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1]))
    torch.native_batch_norm(
        x, weight, bias, running_mean, running_var, True, momentum, eps, out=results
    )
    return results


def roomy_like(x: torch.Tensor) -> torch.Tensor:
    """Allocates a channels-last map of this shape that leaves space for another one when freed.

    torch asks for addresses that are multiples of 64, for which glibc needs a little more memory
    than the map itself. So a map never fits where another of its size was, and a map that is
    allocated between two maps that are kept would leave a hole for the rest of the forward pass.
    """
    batch, channels, height, width = x.shape
    numbers = x.new_empty(x.numel() + ROOM)[: x.numel()]
    return numbers.view(batch, height, width, channels).permute(0, 3, 1, 2)


def relu(x: torch.Tensor) -> torch.Tensor:
    """Computes torch's ReLU, to the bit; the backward pass can recompute the result."""
    result: torch.Tensor = RecomputedRelu.apply(x)  # type: ignore[no-untyped-call]
    return result


class RecomputedRelu(torch.autograd.Function):
    """A ReLU whose result can be recomputed; it supports double differentiation."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.recomputed = None
        return torch.clamp_min(x, 0, out=roomy_like(x))  # torch's ReLU does the same

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        ctx.recomputed = None
        x_grad: torch.Tensor = torch.ops.aten.threshold_backward(outer[0], x, 0)
        return x_grad


# The names that autograd gives to the nodes of `NormRelu` and `RecomputedRelu`.
RECOMPUTING_NODES = ("NormReluBackward", "RecomputedReluBackward")


def recomputing_node(x: torch.Tensor) -> Node | None:
    """Returns the autograd node that can recompute this tensor; None: it has to be kept."""
    node = x.grad_fn
    if node is not None and node.name() in RECOMPUTING_NODES:
        return node
    return None


def recompute(node: Any) -> torch.Tensor:
    """Recomputes the result of a node, and keeps it until the backward pass of that node."""
    if node.recomputed is None:
        x, *norm_tensors = node.saved_tensors
        if norm_tensors:
            weight, bias, _, _ = norm_tensors
            y = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, node.eps)[0]
            node.recomputed = y.relu_()
        else:
            node.recomputed = functional.relu(x)
    result: torch.Tensor = node.recomputed
    return result


def max_pool(x: torch.Tensor, stride: int) -> torch.Tensor:
    """Computes `max_pool2d(x, 3, stride, 1)`, to the bit, without keeping its indices."""
    result: torch.Tensor = MaxPool.apply(x, stride)  # type: ignore[no-untyped-call]
    return result


class MaxPool(torch.autograd.Function):
    """A max pool whose backward pass recomputes its indices; it supports double differentiation."""

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
            _, indices = torch.ops.aten.max_pool2d_with_indices(x, *window)
        x_grad = torch.ops.aten.max_pool2d_with_indices_backward(outer[0], x, *window, indices)
        return x_grad, None
