"""Finds the head of a network: the linear layer that classifies the representation of a sample."""

from __future__ import annotations

from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.model import Model


def head_of(model: Model) -> str:
    """Returns the name of the last linear layer: `classifier`, or whichever is defined last."""
    if isinstance(getattr(model.net, "classifier", None), nn.Linear):
        return "net.classifier"
    linear_layers: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            linear_layers.append(name)
    if not linear_layers:
        rule = "a network with a head must end in a linear layer"
        problem = f"{type(model.net).__name__} has none"
        raise FedloomError(rule, problem, "let it end in an nn.Linear")
    return linear_layers[-1]
