"""The size of a network: its parameters, and the multiply-accumulates of one sample."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedloom.cost.meter import Meter


def parameters(net: nn.Module) -> int:
    """Shared parameters count once."""
    return sum(parameter.numel() for parameter in net.parameters())


def macs(net: nn.Module, shape: tuple[int, ...]) -> int:
    """Measured on one sample of zeros in eval mode; leaves the network as it was, flag by flag."""
    like = next(net.parameters(), torch.empty(0))
    sample = torch.zeros(1, *shape, dtype=like.dtype, device=like.device)
    with _evaluating(net), torch.no_grad(), Meter() as meter:
        net(sample)
    return meter.macs


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[None]:
    """Flags are set one by one: `net.train()` would wake modules that were frozen in eval mode."""
    flags = [(module, module.training) for module in net.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training
