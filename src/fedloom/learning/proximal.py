"""The proximal term μ/2·‖w − wᵗ‖² of FedProx, Ditto and SPIDER, which pulls weights towards wᵗ."""

from __future__ import annotations

import torch
from torch import nn

from fedloom.learning.training import AfterBackward
from fedloom.types import Tensors


def pull_towards(anchor: Tensors, mu: float) -> AfterBackward:
    """Returns a function that adds the proximal term's gradient μ(w − wᵗ), where wᵗ is `anchor`."""

    @torch.no_grad()
    def add(net: nn.Module) -> None:
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                distance = parameter - anchor[name].to(parameter.device)
                parameter.grad.add_(distance, alpha=mu)

    return add
