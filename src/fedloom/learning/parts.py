"""Training of one part of a network. The rest, its BN statistics included, does not change."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from fedloom.learning.training import batch_norms


@contextmanager
def training_only(net: nn.Module, names: Collection[str]) -> Iterator[list[nn.Module]]:
    """Inside this context, only the parameters of these names learn.

    It yields the BN layers that must stay in evaluation mode meanwhile: those without a tensor
    among `names`, which are names in the network's `state_dict`.
    """
    frozen = []
    for name, weight in net.named_parameters():
        if name not in names and weight.requires_grad:
            frozen.append(weight)
    for weight in frozen:
        weight.requires_grad_(False)
    try:
        yield resting_norms(net, names)
    finally:
        for weight in frozen:
            weight.requires_grad_(True)


def resting_norms(net: nn.Module, names: Collection[str]) -> list[nn.Module]:
    """Returns the BN layers that have tensors, none of which is among `names`."""
    norms = set(batch_norms(net))
    resting: list[nn.Module] = []
    for prefix, module in net.named_modules():
        if module not in norms:
            continue
        tensors = [f"{prefix}.{name}" for name in module.state_dict()]
        if tensors and not any(name in names for name in tensors):
            resting.append(module)
    return resting
