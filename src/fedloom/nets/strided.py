"""The 1×1 convolution with a stride that every network here uses.

Torch's own, `nn.Conv2d(…, 1, stride)`, corrupts memory. The gradient of its weight, in
channels_last and with fewer input channels than a block of oneDNN (8 with AVX2, 16 with AVX-512),
is written past the end of its workspace: the process crashes sooner or later, hangs, or goes on
with wrong gradients (torch 2.13; oneDNN's issue 6035). So the stride never reaches oneDNN: the
pixels that it would read are sliced out first, and convolved with stride 1. The result is the same
up to rounding: for a convolution with a stride, oneDNN may choose a kernel that adds in another
order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def strided_pointwise(
    layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, stride: int
) -> torch.Tensor:
    """Applies `layer`, which begins with a 1×1 convolution, to every `stride`-th row and column."""
    if stride == 1:
        return layer(x)
    return layer(every(stride, x))


def every(step: int, x: torch.Tensor) -> torch.Tensor:
    """Returns every `step`-th row and column."""
    return x[:, :, ::step, ::step]
