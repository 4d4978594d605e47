"""What a client keeps to itself between rounds: the weights of a personal model and the memory of its optimiser.

One state holds both: weights by their own names, momentum under `momentum/`, Adam's moments under `adam/`.
"""

from __future__ import annotations

import torch

from fedloom.learning.training import ADAM, MOMENTUM, weights_of
from fedloom.types import State


def own_state(net: torch.nn.Module, momentum: dict[str, torch.Tensor]) -> State:
    return State({**weights_of(net), **{f"{MOMENTUM}{name}": buffer for name, buffer in momentum.items()}})


def weights_in(own: State) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in own.tensors.items() if not name.startswith((MOMENTUM, ADAM))}


def momentum_in(own: State | None) -> dict[str, torch.Tensor]:
    tensors = {} if own is None else own.tensors
    return {name.removeprefix(MOMENTUM): buffer for name, buffer in tensors.items() if name.startswith(MOMENTUM)}
