"""Training one part of a network: the rest keeps its bits, its BN statistics too."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from fedloom.learning.training import batch_norms


@contextmanager
def training_only(net: nn.Module, names: Collection[str]) -> Iterator[list[nn.Module]]:
    """Inside, only parameters of these names learn.

    It gives the BNs that must stay in evaluation mode meanwhile: those without a tensor among
    `names`, which are names in the network's `state_dict`.
    """
    frozen = [weight for name, weight in net.named_parameters() if name not in names]
    learning = [weight for weight in frozen if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield resting_norms(net, names)
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def resting_norms(net: nn.Module, names: Collection[str]) -> list[nn.Module]:
    norms = set(batch_norms(net))
    resting: list[nn.Module] = []
    for prefix, module in net.named_modules():
        if module not in norms:
            continue
        tensors = [f"{prefix}.{name}" for name in module.state_dict()]
        if tensors and not any(name in names for name in tensors):
            resting.append(module)
    return resting
