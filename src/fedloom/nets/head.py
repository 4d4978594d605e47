"""A network in two parts: what represents a sample, and the linear layer that classifies it."""

from __future__ import annotations

from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.model import Model


def head_of(model: Model) -> str:
    """The name of the last linear layer: `classifier`, or whichever is defined last."""
    if isinstance(getattr(model.net, "classifier", None), nn.Linear):
        return "net.classifier"
    found: list[str] = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    if not found:
        must = "a network with a head must end in a linear layer"
        raise FedloomError(
            must, f"{type(model.net).__name__} has none", "let it end in an nn.Linear"
        )
    return found[-1]
