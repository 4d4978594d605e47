"""What a client keeps between rounds: a personal model's weights and its optimiser's memory.

One state holds both: weights by their own names, momentum under `momentum/`, Adam's moments under
`adam/`.
"""

from __future__ import annotations

import torch

from fedloom.learning.training import ADAM, MOMENTUM, weights_of
from fedloom.types import State, Tensors


def own_state(net: torch.nn.Module, momentum: Tensors) -> State:
    """The weights of `net`, and the momentum of the optimiser that trained it."""
    return State({**weights_of(net), **with_prefix(MOMENTUM, momentum)})


def weights_in(own: State) -> dict[str, torch.Tensor]:
    memory = (MOMENTUM, ADAM)
    return {name: tensor for name, tensor in own.tensors.items() if not name.startswith(memory)}


def weights_or(own: State | None, received: Tensors) -> Tensors:
    """The weights of a client's own model; the received ones while it has none."""
    if own is None:
        return received
    return weights_in(own)


def momentum_in(own: State | None) -> dict[str, torch.Tensor]:
    if own is None:
        return {}
    return without_prefix(MOMENTUM, own.tensors)


def with_prefix(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """The same tensors, each under the prefix and its name."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """The tensors that stand under a prefix, by their names behind it."""
    chosen = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            chosen[name.removeprefix(prefix)] = tensor
    return chosen
