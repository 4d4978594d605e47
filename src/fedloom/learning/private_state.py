"""The private state of a client: a personal model's weights and its optimiser's memory.

One state holds both: weights under their own names, momentum under `momentum/`, Adam's moments
under `adam/`.
"""

from __future__ import annotations

import torch

from fedloom.learning.training import ADAM, MOMENTUM, weights_of
from fedloom.types import State, Tensors


def own_state(net: torch.nn.Module, momentum: Tensors) -> State:
    """Returns the weights of `net` and the momentum of the optimiser that trained it."""
    return State({**weights_of(net), **with_prefix(MOMENTUM, momentum)})


def weights_in(own: State) -> dict[str, torch.Tensor]:
    weights = {}
    for name, tensor in own.tensors.items():
        is_memory = name.startswith((MOMENTUM, ADAM))
        if not is_memory:
            weights[name] = tensor
    return weights


def weights_or(own: State | None, received: Tensors) -> Tensors:
    """Returns the weights of a client's own model, or the received ones if it has none yet."""
    if own is None:
        return received
    return weights_in(own)


def momentum_in(own: State | None) -> dict[str, torch.Tensor]:
    if own is None:
        return {}
    return without_prefix(MOMENTUM, own.tensors)


def with_prefix(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns the same tensors with the prefix before each name."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns the tensors whose names have the prefix, by their names without it."""
    chosen = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            chosen[name.removeprefix(prefix)] = tensor
    return chosen
