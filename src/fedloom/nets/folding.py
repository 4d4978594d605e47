"""Folds BN into operations that are evaluated many times with the same weights.

In evaluation mode, BN is a factor and a shift per channel, so it can be folded into the convolution
before it. Where every sample takes its own operations, an edge has many small products, and calling
the modules takes as long as the products. Inside `weights_stay`, an operation is folded at its
first use, and its products are then computed without its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from fedloom.nets.reported_macs import LISTENERS, report_macs

Folded = Callable[[torch.Tensor], torch.Tensor]

# The operations that have been folded so far; None: outside of `weights_stay`.
FOLDED: ContextVar[dict[nn.Module, Folded] | None] = ContextVar("folded", default=None)


@contextmanager
def weights_stay() -> Iterator[None]:
    """Inside, the caller changes no weight, so that folded operations can be reused."""
    token = FOLDED.set({})
    try:
        yield
    finally:
        FOLDED.reset(token)


def product(conv: nn.Conv2d, bn: nn.BatchNorm2d | None = None) -> Folded:
    """Folds a convolution and the BN after it, if there is one."""
    weight: torch.Tensor = conv.weight
    bias: torch.Tensor | None = None
    if bn is not None:
        factor, bias = affine_of(bn)
        weight = weight * factor.view(-1, 1, 1, 1)
    stride = conv.stride
    padding = conv.padding
    dilation = conv.dilation
    groups = conv.groups
    assert not isinstance(padding, str)

    def compute(x: torch.Tensor) -> torch.Tensor:
        result = torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
        if LISTENERS:
            report_macs(result.numel() * weight[0].numel())
        return result

    return compute


def affine_of(bn: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the factor and the shift of every channel by BN in evaluation mode."""
    assert bn.running_mean is not None and bn.running_var is not None
    factor = torch.rsqrt(bn.running_var + bn.eps)
    if bn.weight is None:
        return factor, -bn.running_mean * factor
    factor.mul_(bn.weight)
    return factor, torch.addcmul(bn.bias, bn.running_mean, factor, value=-1)


def norm_alone(bn: nn.BatchNorm2d) -> Folded:
    """Returns BN in evaluation mode, where no convolution precedes it."""
    weight = bn.weight
    bias = bn.bias
    eps = bn.eps
    mean = bn.running_mean
    var = bn.running_var
    cudnn = torch.backends.cudnn.enabled

    def compute(x: torch.Tensor) -> torch.Tensor:
        return torch.batch_norm(x, weight, bias, mean, var, False, 0.0, eps, cudnn)

    return compute
