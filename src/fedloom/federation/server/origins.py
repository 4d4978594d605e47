"""Which checkpoint contains a tensor already, so that it need not be written again."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch

from fedloom.types import Tensors


class Origins:
    """Which checkpoint contains the tensors that a run works with.

    It holds weak references only, so it keeps no tensor alive.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Origin] = {}

    def remember(self, number: int, tensors: Tensors) -> None:
        self.by_id = {
            key: origin for key, origin in self.by_id.items() if origin.tensor() is not None
        }
        for name, tensor in tensors.items():
            if version_of(tensor) >= 0:
                origin = Origin(weakref.ref(tensor), version_of(tensor), number, name)
                self.by_id[id(tensor)] = origin

    def of(self, tensors: Tensors) -> int | None:
        """The round whose checkpoint has all these tensors, unchanged and under their names."""
        rounds = set()
        for name, tensor in tensors.items():
            origin = self.by_id.get(id(tensor))
            if origin is None or not origin.has(tensor, name):
                return None
            rounds.add(origin.round)
        if len(rounds) != 1:
            return None
        return rounds.pop()


@dataclass(frozen=True)
class Origin:
    """The checkpoint that a tensor was read from or written to."""

    tensor: weakref.ref[torch.Tensor]
    version: int  # a counter that torch increments whenever the tensor is changed in place
    round: int
    name: str

    def has(self, tensor: torch.Tensor, name: str) -> bool:
        """Whether the checkpoint has exactly this tensor, unchanged, under this name."""
        is_same = self.tensor() is tensor and version_of(tensor) == self.version
        return is_same and self.name == name


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; -1 if torch does not count its changes."""
    if tensor.is_inference():
        return -1
    return tensor._version
