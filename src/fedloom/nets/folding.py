"""Operations that are evaluated many times with the same weights: BN becomes part of them.

In evaluation BN is a factor and a shift for every channel, so it can be put into the convolution
before it. Where every sample takes its own operations, an edge has many small products, and asking
the modules for each of them takes as long as the product. Inside `weights_stay` an operation is
folded when it is first met, and its products are computed without its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from fedloom.nets.products import LISTENING, tell

Folded = Callable[[torch.Tensor], torch.Tensor]

# What was folded so far, by operation; None: outside of `weights_stay`.
FOLDED: ContextVar[dict[nn.Module, Folded] | None] = ContextVar("folded", default=None)


@contextmanager
def weights_stay() -> Iterator[None]:
    """Inside, the caller changes no weight: what is made of weights may be used again."""
    token = FOLDED.set({})
    try:
        yield
    finally:
        FOLDED.reset(token)


def product(conv: nn.Conv2d, bn: nn.BatchNorm2d | None = None) -> Folded:
    """A convolution and, if there is one, the BN behind it."""
    weight: torch.Tensor = conv.weight
    bias: torch.Tensor | None = None
    if bn is not None:
        factor, bias = affine_of(bn)
        weight = weight * factor.view(-1, 1, 1, 1)
    stride, padding, dilation, groups = conv.stride, conv.padding, conv.dilation, conv.groups
    assert not isinstance(padding, str)

    def compute(x: torch.Tensor) -> torch.Tensor:
        result = torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
        if LISTENING:
            tell(result.numel() * weight[0].numel())
        return result

    return compute


def affine_of(bn: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """What BN does to a channel in evaluation: a factor and a shift."""
    assert bn.running_mean is not None and bn.running_var is not None
    factor = torch.rsqrt(bn.running_var + bn.eps)
    if bn.weight is None:
        return factor, -bn.running_mean * factor
    factor.mul_(bn.weight)
    return factor, torch.addcmul(bn.bias, bn.running_mean, factor, value=-1)


def norm_alone(bn: nn.BatchNorm2d) -> Folded:
    """BN where no convolution is before it."""
    weight, bias, eps = bn.weight, bn.bias, bn.eps
    mean, var = bn.running_mean, bn.running_var
    cudnn = torch.backends.cudnn.enabled

    def compute(x: torch.Tensor) -> torch.Tensor:
        return torch.batch_norm(x, weight, bias, mean, var, False, 0.0, eps, cudnn)

    return compute
