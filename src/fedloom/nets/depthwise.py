"""Depthwise convolutions with fast gradients, where torch's own are slow.

The forward pass is torch's own, to the bit. For the backward pass, oneDNN has no fast kernel in two
cases that are frequent in cell spaces: a dilated kernel (its gradients take 5 to 40 times as long
as without dilation), and a kernel that is larger than the map (the gradient of its weight takes 5
times as long). Both are rewritten here as convolutions that have a fast kernel:

- With dilation d, a pixel is combined only with pixels at distances that are multiples of d. So a
  map separates into d·d smaller maps, which are put side by side in the batch, and on which the
  kernel is not dilated. With a stride of d, only the first of these maps is used.
- A map that is smaller than the kernel is padded with zeros, which add nothing to the products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.recomputed import is_transformed, recompute, recomputing_node


class Wanted(NamedTuple):
    """Which gradients autograd asks for."""

    x: bool
    weight: bool


class Gradients(NamedTuple):
    """The gradients of the input and of the weight; None: not wanted."""

    x: torch.Tensor | None
    weight: torch.Tensor | None


ONLY_X = Wanted(x=True, weight=False)
ONLY_WEIGHT = Wanted(x=False, weight=True)


class DepthwiseConv(nn.Conv2d):
    """A depthwise convolution with the parameters and results of `nn.Conv2d`.

    The padding keeps the map's size; with a stride, the divided size is rounded up.
    """

    def __init__(self, channels: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
        padding = kernel // 2 * dilation
        super().__init__(
            channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False
        )

    # `forward` is not overridden: by it, an export recognises a plain convolution.
    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        return depthwise(input, weight, self.stride[0], self.dilation[0])


def depthwise(x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int) -> torch.Tensor:
    """Computes a depthwise convolution, padded like `DepthwiseConv`."""
    kernel = weight.shape[-1]
    is_faster = is_slow(x, kernel, stride, dilation)
    saves_memory = can_recompute_input(x, stride, dilation)
    if (is_faster or saves_memory) and can_differentiate(x, weight):
        return with_fast_backward(x, weight, stride, dilation)
    padding = kernel // 2 * dilation
    return functional.conv2d(x, weight, None, stride, padding, dilation, weight.shape[0])


def is_slow(x: torch.Tensor, kernel: int, stride: int, dilation: int) -> bool:
    """Whether torch's own backward pass would be slow, and `FastBackward` supports the case."""
    if dilation > 1:
        return stride in (1, dilation)
    return stride == 1 and min(x.shape[-2:]) < kernel


def can_recompute_input(x: torch.Tensor, stride: int, dilation: int) -> bool:
    """Whether the backward pass can recompute the input, and `FastBackward` supports the case."""
    return stride in (1, dilation) and recomputing_node(x) is not None


def can_differentiate(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether there will be a backward pass on a CPU.

    Compilers and tracers get torch's own operation instead.
    """
    if x.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if is_transformed():
        return False
    return x.requires_grad or weight.requires_grad


def as_plain(net: nn.Module) -> None:
    """Turns every `DepthwiseConv` of a network into `nn.Conv2d`, in place, with its tensors."""
    for module in net.modules():
        if isinstance(module, DepthwiseConv):
            # `setattr`, because mypy refuses to assign a base class.
            setattr(module, "__class__", nn.Conv2d)  # noqa: B010


class FastBackward(torch.autograd.Function):
    """torch's convolution, with gradients computed by undilated convolutions.

    It supports double differentiation. An input that can be recomputed is not kept.
    """

    # There is no `setup_context`: with it, torch would inspect this method's signature in every
    # call.
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int
    ) -> torch.Tensor:
        ctx.stride = stride
        ctx.dilation = dilation
        ctx.input_node = recomputing_node(x)
        if ctx.input_node is None:
            ctx.save_for_backward(x, weight)
        else:
            ctx.save_for_backward(weight)
        padding = weight.shape[-1] // 2 * dilation
        return functional.conv2d(x, weight, None, stride, padding, dilation, weight.shape[0])

    @staticmethod
    def backward(
        ctx: Any, *outer: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        if ctx.input_node is None:
            x, weight = ctx.saved_tensors
        else:
            (weight,) = ctx.saved_tensors
            x = recompute(ctx.input_node)
        wanted = Wanted(*ctx.needs_input_grad[:2])
        x_grad, weight_grad = gradients(outer[0], x, weight, ctx.stride, ctx.dilation, wanted)
        return x_grad, weight_grad, None, None


def with_fast_backward(
    x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int
) -> torch.Tensor:
    y: torch.Tensor = FastBackward.apply(  # type: ignore[no-untyped-call]
        x, weight, stride, dilation
    )
    return y


def gradients(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int,
    dilation: int,
    wanted: Wanted,
) -> Gradients:
    """Computes the wanted gradients of the input and of the weight in the fastest way.

    `outer` is the gradient of the result.
    """
    if stride == dilation:
        return first_map_gradients(outer, x, weight, stride, wanted)
    if stride == 1:
        return all_maps_gradients(outer, x, weight, dilation, wanted)
    return torch_gradients(outer, x, weight, wanted, stride, dilation)


def first_map_gradients(
    outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, step: int, wanted: Wanted
) -> Gradients:
    """The case that stride = dilation: only every `step`-th row and column is used."""
    used_grad, weight_grad = undilated(outer, x[:, :, ::step, ::step], weight, wanted)
    if used_grad is None or step == 1:
        return Gradients(used_grad, weight_grad)
    x_grad = torch.zeros_like(x)
    x_grad[:, :, ::step, ::step] = used_grad
    return Gradients(x_grad, weight_grad)


def all_maps_gradients(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    dilation: int,
    wanted: Wanted,
) -> Gradients:
    """The case of stride 1: all `dilation`² maps are used, side by side in the batch."""
    height, width = x.shape[-2:]
    maps = split_by_phase(padded(x, -height % dilation, -width % dilation), dilation)
    outer_maps = split_by_phase(padded(outer, -height % dilation, -width % dilation), dilation)
    maps_grad, weight_grad = undilated(outer_maps, maps, weight, wanted)
    if maps_grad is None:
        return Gradients(None, weight_grad)
    x_grad = joined_phases(maps_grad, dilation)[:, :, :height, :width]
    return Gradients(x_grad, weight_grad)


def undilated(
    outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted
) -> Gradients:
    """Computes the gradients of a convolution with stride 1 that keeps the map's size.

    Only the weight's gradient needs a map that is no smaller than the kernel. The input's gradient
    is computed without padded zeros, so that its bits do not depend on whether the weight's is
    wanted.
    """
    kernel = weight.shape[-1]
    rows = max(kernel - x.shape[-2], 0)
    columns = max(kernel - x.shape[-1], 0)
    if not wanted.weight or rows == columns == 0:
        return torch_gradients(outer, x, weight, wanted)
    x_grad = None
    if wanted.x:
        x_grad = torch_gradients(outer, x, weight, ONLY_X).x
    padded_outer = padded(outer, rows, columns)
    padded_x = padded(x, rows, columns)
    weight_grad = torch_gradients(padded_outer, padded_x, weight, ONLY_WEIGHT).weight
    return Gradients(x_grad, weight_grad)


def torch_gradients(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: Wanted,
    stride: int = 1,
    dilation: int = 1,
) -> Gradients:
    padding = weight.shape[-1] // 2 * dilation
    x_grad, weight_grad, _ = torch.ops.aten.convolution_backward(
        outer,
        x,
        weight,
        None,  # no bias
        [stride, stride],
        [padding, padding],
        [dilation, dilation],
        False,  # not transposed,
        [0, 0],  # so there is no output padding
        weight.shape[0],  # a group for each channel
        [wanted.x, wanted.weight, False],
    )
    return Gradients(x_grad, weight_grad)


def padded(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Appends this many rows of zeros below, and columns of zeros to the right."""
    if rows == 0 and columns == 0:
        return x
    return functional.pad(x, (0, columns, 0, rows))


def split_by_phase(x: torch.Tensor, step: int) -> torch.Tensor:
    """Splits a map into `step`² maps of every `step`-th pixel, side by side in the batch."""
    batch, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(
        batch, height // step, step, width // step, step, channels
    )
    maps = pixels.permute(2, 4, 0, 1, 3, 5).reshape(
        step * step * batch, height // step, width // step, channels
    )
    return maps.permute(0, 3, 1, 2)


def joined_phases(maps: torch.Tensor, step: int) -> torch.Tensor:
    """The inverse of `split_by_phase`."""
    count, channels, height, width = maps.shape
    pixels = maps.permute(0, 2, 3, 1).reshape(step, step, count // step**2, height, width, channels)
    x = pixels.permute(2, 3, 0, 4, 1, 5).reshape(
        count // step**2, height * step, width * step, channels
    )
    return x.permute(0, 3, 1, 2)
