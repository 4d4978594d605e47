"""The client prior: the logarithm of a client's class proportions, added to the network's scores.

Clients with different class proportions pull the scores of a shared network in different
directions. If a client adds the logarithm of its own proportions to the scores, in the loss and in
every answer, the shared network only has to learn what a class looks like, not how common it is at
which client. The counts never leave the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedloom.errors import FedloomError

HALF = 0.5  # added to every count: a class without samples is unlikely, not impossible


def log_prior(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """log((n_c + ½) / Σ(n + ½)) for every class c; without labels the same for all classes."""
    counts = torch.bincount(labels.flatten().cpu(), minlength=classes).double() + HALF
    return (counts / counts.sum()).log()


@contextmanager
def shifted(net: nn.Module, shift: torch.Tensor | None) -> Iterator[None]:
    """Inside this context `shift` is added to the network's scores; None adds nothing.

    The shift is not part of the weights: what is trained inside is the network without it.
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
    """Add the shift to the bias of the last layer, in place."""
    if shift is None:
        return
    bias = score_layer(net, len(shift)).bias
    bias.copy_((bias.double() + shift.to(bias.device)).to(bias.dtype))


def score_layer(net: nn.Module, classes: int) -> nn.Linear:
    """The layer that computes the scores: the last linear layer with one output per class."""
    layers = []
    for part in net.modules():
        if isinstance(part, nn.Linear) and part.out_features == classes and part.bias is not None:
            layers.append(part)
    if not layers:
        raise FedloomError(
            "a client's prior needs a network that ends in a fully connected layer with a bias",
            f"{type(net).__name__} has none with {classes} outputs",
            "choose another network, or set prior=off",
        )
    return layers[-1]
