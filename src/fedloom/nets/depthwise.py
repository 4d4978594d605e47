"""Depthwise convolutions whose gradients torch computes slowly, computed fast.

The forward pass is torch's own, to the bit. Backwards, oneDNN has no fast kernel in two cases that
cell spaces are full of: a dilated kernel (its gradients take 5 to 40 times as long as without
dilation), and a kernel that is larger than the map (the gradient of its weight: 5 times as long).
Both are written here as convolutions that do have one:

- With dilation d, a pixel meets only pixels that lie a multiple of d away. So a map falls apart
  into d·d smaller ones, side by side in the batch, and on each of them the kernel is not dilated.
  With a stride of d, only the first of them is looked at.
- A map that is smaller than the kernel is padded with zeros, whose products add nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.remade import is_transformed, maker_of, remake

Gradients = tuple[torch.Tensor | None, torch.Tensor | None]


class DepthwiseConv(nn.Conv2d):
    """A convolution of every channel by itself, with `nn.Conv2d`'s parameters and results.

    The padding keeps the map's size, or rounds it up if a stride divides it.
    """

    def __init__(self, channels: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
        padding = kernel // 2 * dilation
        super().__init__(
            channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False
        )

    # `forward` stays torch's own, by which an export knows that this is a plain convolution
    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        return depthwise(input, weight, self.stride[0], self.dilation[0])


def depthwise(x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int) -> torch.Tensor:
    """A convolution of every channel by itself, padded as `DepthwiseConv` says."""
    kernel = weight.shape[-1]
    ours = is_slow(x, kernel, stride, dilation) or can_forget(x, stride, dilation)
    if ours and can_differentiate(x, weight):
        return with_fast_backward(x, weight, stride, dilation)
    padding = kernel // 2 * dilation
    return functional.conv2d(x, weight, None, stride, padding, dilation, weight.shape[0])


def is_slow(x: torch.Tensor, kernel: int, stride: int, dilation: int) -> bool:
    """Whether torch's own backward pass would be, and ours covers it."""
    if dilation > 1:
        return stride in (1, dilation)
    return stride == 1 and min(x.shape[-2:]) < kernel


def can_forget(x: torch.Tensor, stride: int, dilation: int) -> bool:
    """Whether the input need not be kept for the backward pass, and ours covers it."""
    return stride in (1, dilation) and maker_of(x) is not None


def can_differentiate(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether there will be a backward pass on a CPU.

    Compilers and tracers get torch's own operation.
    """
    if x.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if is_transformed():
        return False
    return x.requires_grad or weight.requires_grad


def as_plain(net: nn.Module) -> None:
    """Makes torch's own layers of all that are in this network, in place; their tensors stay."""
    for module in net.modules():
        if isinstance(module, DepthwiseConv):
            setattr(module, "__class__", nn.Conv2d)  # noqa: B010  # mypy sees no way back to a base class


class FastBackward(torch.autograd.Function):
    """torch's convolution, with gradients by way of undilated ones.

    They can be differentiated again. An input that can be made again is not kept.
    """

    # With `setup_context` torch would look up this method's signature in every call.
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int
    ) -> torch.Tensor:
        ctx.stride = stride
        ctx.dilation = dilation
        ctx.maker = maker_of(x)
        if ctx.maker is None:
            ctx.save_for_backward(x, weight)
        else:
            ctx.save_for_backward(weight)
        padding = weight.shape[-1] // 2 * dilation
        return functional.conv2d(x, weight, None, stride, padding, dilation, weight.shape[0])

    @staticmethod
    def backward(
        ctx: Any, *outer: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        if ctx.maker is None:
            x, weight = ctx.saved_tensors
        else:
            (weight,) = ctx.saved_tensors
            x = remake(ctx.maker)
        of_x, of_weight = gradients(
            outer[0], x, weight, ctx.stride, ctx.dilation, ctx.needs_input_grad[:2]
        )
        return of_x, of_weight, None, None


def with_fast_backward(
    x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int
) -> torch.Tensor:
    scores: torch.Tensor = FastBackward.apply(x, weight, stride, dilation)  # type: ignore[no-untyped-call]
    return scores


def gradients(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int,
    dilation: int,
    wanted: tuple[bool, bool],
) -> Gradients:
    """Of the input and of the weight, by the fastest way there is."""
    if stride == dilation:
        return of_first_map(outer, x, weight, stride, wanted)
    if stride == 1:
        return of_all_maps(outer, x, weight, dilation, wanted)
    return torchs_own(outer, x, weight, wanted, stride, dilation)


def of_first_map(
    outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, step: int, wanted: tuple[bool, bool]
) -> Gradients:
    """Stride and dilation are the same: only every `step`-th row and column is looked at."""
    of_seen, of_weight = undilated(outer, x[:, :, ::step, ::step], weight, wanted)
    if of_seen is None or step == 1:
        return of_seen, of_weight
    of_x = torch.zeros_like(x)
    of_x[:, :, ::step, ::step] = of_seen
    return of_x, of_weight


def of_all_maps(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    dilation: int,
    wanted: tuple[bool, bool],
) -> Gradients:
    """Stride 1: all `dilation`² maps, side by side in the batch."""
    height, width = x.shape[-2:]
    maps = split_by_phase(padded(x, -height % dilation, -width % dilation), dilation)
    outer_maps = split_by_phase(padded(outer, -height % dilation, -width % dilation), dilation)
    of_maps, of_weight = undilated(outer_maps, maps, weight, wanted)
    if of_maps is None:
        return None, of_weight
    return joined_phases(of_maps, dilation)[:, :, :height, :width], of_weight


def undilated(
    outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: tuple[bool, bool]
) -> Gradients:
    """The gradients of a convolution with stride 1 that keeps the map's size.

    Only the weight's needs a map that is no smaller than the kernel. The input's is computed
    without the zeros, so that its bits do not depend on whether the other one is wanted.
    """
    kernel = weight.shape[-1]
    rows = max(kernel - x.shape[-2], 0)
    columns = max(kernel - x.shape[-1], 0)
    if not wanted[1] or rows == columns == 0:
        return torchs_own(outer, x, weight, wanted)
    of_x = None
    if wanted[0]:
        of_x, _ = torchs_own(outer, x, weight, (True, False))
    _, of_weight = torchs_own(
        padded(outer, rows, columns), padded(x, rows, columns), weight, (False, True)
    )
    return of_x, of_weight


def torchs_own(
    outer: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: tuple[bool, bool],
    stride: int = 1,
    dilation: int = 1,
) -> Gradients:
    padding = weight.shape[-1] // 2 * dilation
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(
        outer,
        x,
        weight,
        None,
        [stride, stride],
        [padding, padding],
        [dilation, dilation],
        False,
        [0, 0],
        weight.shape[0],
        [*wanted, False],
    )
    return of_x, of_weight


def padded(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """With so many rows of zeros below, and columns to the right."""
    if rows == 0 and columns == 0:
        return x
    return functional.pad(x, (0, columns, 0, rows))


def split_by_phase(x: torch.Tensor, step: int) -> torch.Tensor:
    """A map as `step`² maps of every `step`-th pixel, side by side in the batch."""
    batch, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(
        batch, height // step, step, width // step, step, channels
    )
    maps = pixels.permute(2, 4, 0, 1, 3, 5).reshape(
        step * step * batch, height // step, width // step, channels
    )
    return maps.permute(0, 3, 1, 2)


def joined_phases(maps: torch.Tensor, step: int) -> torch.Tensor:
    """What `split_by_phase` was given."""
    count, channels, height, width = maps.shape
    pixels = maps.permute(0, 2, 3, 1).reshape(step, step, count // step**2, height, width, channels)
    x = pixels.permute(2, 3, 0, 4, 1, 5).reshape(
        count // step**2, height * step, width * step, channels
    )
    return x.permute(0, 3, 1, 2)
