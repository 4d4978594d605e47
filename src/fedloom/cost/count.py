"""The size of a network: its parameters, and the multiply-accumulates of one sample."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedloom.cost.meter import Meter


def parameters(net: nn.Module) -> int:
    """The number of parameters; those that modules share count once."""
    return sum(parameter.numel() for parameter in net.parameters())


def macs(net: nn.Module, shape: tuple[int, ...]) -> int:
    """The multiply-accumulates of one sample, measured on zeros in eval mode.

    Afterwards every module is in the mode that it was in before.
    """
    like = next(net.parameters(), torch.empty(0))
    sample = torch.zeros(1, *shape, dtype=like.dtype, device=like.device)
    with _evaluating(net), torch.no_grad(), Meter() as meter:
        net(sample)
    return meter.macs


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and restore each one's own mode afterwards.

    `net.train()` would also wake modules that were frozen in eval mode.
    """
    flags = [(module, module.training) for module in net.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training
