"""A client's prior: how often each class has come up at it, as a shift of the network's scores.

Clients whose classes come up in other proportions disagree about the scores of everything. With
the logarithm of its own proportions added to the scores, in the loss and in every answer, a client
teaches the shared network what a sample looks like, and keeps to itself how common its class is
there. The counts never leave the client: only its scores know of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedloom.errors import FedloomError

HALF = 0.5  # added to every count: a class that never came up is unlikely, not impossible


def log_prior(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """log((n_c + ½) / Σ(n + ½)), a number a class. Without labels all classes have the same."""
    counts = torch.bincount(labels.flatten().cpu(), minlength=classes).double() + HALF
    return (counts / counts.sum()).log()


@contextmanager
def shifted(net: nn.Module, shift: torch.Tensor | None) -> Iterator[None]:
    """Inside, a network's scores are those that it has by itself plus `shift`; None: no shift.

    Its weights know nothing of it, so what is learnt inside is the network without the shift.
    """
    if shift is None:
        yield
        return
    layer = score_layer(net, len(shift))
    on_device = shift.to(layer.weight.dtype).to(layer.weight.device)

    def add(module: nn.Module, inputs: Any, scores: torch.Tensor) -> torch.Tensor:
        return scores + on_device.to(scores.device)

    hook = layer.register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def fold_shift(net: nn.Module, shift: torch.Tensor | None) -> None:
    """The same for good, in place: the shift becomes part of the last layer's bias."""
    if shift is None:
        return
    bias = score_layer(net, len(shift)).bias
    bias.copy_((bias.double() + shift.to(bias.device)).to(bias.dtype))


def score_layer(net: nn.Module, classes: int) -> nn.Linear:
    """The layer that makes the scores: the last linear one with an output for every class."""
    layers = []
    for part in net.modules():
        if isinstance(part, nn.Linear) and part.out_features == classes and part.bias is not None:
            layers.append(part)
    if not layers:
        raise FedloomError(
            "a client's prior needs a network that ends in a fully connected layer with a bias",
            f"{type(net).__name__} has none with {classes} outputs",
            "choose another network, or say prior=off",
        )
    return layers[-1]
