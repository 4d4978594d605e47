"""What a supernet computes of all that it could: a mixture, a part, or whatever an object answers on the way.

- None: everything that exists, summed.
- `Arch`: only what it names: a mask, or a single path.
- `Mixture`: everything, weighed by a number for every operation of every slot.
- anything else is *asked during the forward pass*, cell by cell, with what goes into the cell; it may answer
  differently for each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import torch

from fedloom.types import Arch


@dataclass(frozen=True)
class Mixture:
    """A weight for every operation of every slot, usually softmax(α)."""

    weights: tuple[torch.Tensor, ...]  # one vector a slot

    @classmethod
    def softmax(cls, alpha: Sequence[torch.Tensor]) -> Mixture:
        return cls(tuple(torch.softmax(row, dim=0) for row in alpha))

    def scales(self, slots: slice) -> list[list[torch.Tensor]]:
        return [list(row.unbind()) for row in self.weights[slots]]


class AskedChoice(Protocol):
    """Decides while the network computes: a sampler that looks at its input, a rule of the user's own."""

    def weights(self, cell: int, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """For every slot of this cell, a weight for each of its options.

        `inputs` is what goes into the cell (or layer). A row is [options], the same for the whole batch, or
        [batch, options]: every sample has weights of its own, 0 and 1 if it takes one way.
        """
        ...


Choice = Mixture | Arch | AskedChoice | None


def is_asked(choice: Choice) -> TypeGuard[AskedChoice]:
    """Whether it decides on the way, instead of being known before."""
    return not (choice is None or isinstance(choice, Mixture | Arch))


def scales_of(answer: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """An answer as a cell takes it: for every slot and option a number, or a number a sample."""
    return [list(row.unbind(dim=-1)) for row in answer]
