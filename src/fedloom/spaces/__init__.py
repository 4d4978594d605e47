"""What can be chosen. A space has slots; an architecture says which operations of every slot are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from fedloom.types import Arch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class Slot(NamedTuple):
    """One place where a choice is made, and the names of what can be chosen there."""

    name: str
    options: tuple[str, ...]


class Space(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def slots(self) -> tuple[Slot, ...]: ...

    def full(self) -> Arch:
        """Everything alive: the supernet."""
        ...

    def sample(self, rng: np.random.Generator) -> Arch:
        """A network that could be the result of a search, uniformly."""
        ...

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """A neighbour: one decision drawn anew."""
        ...

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """The network that a strength for every operation of every slot (softmax of α) stands for."""
        ...

    def check(self, arch: Arch) -> None:
        """Refuses what does not fit, naming the slot and its options."""
        ...


def space_of(name: str) -> Space:
    """The space an architecture belongs to, from its name: `darts:s2:4` or `nasbench201`."""
    from fedloom.spaces.cells.space import CellSpace
    from fedloom.spaces.nasbench201.space import NasBench201

    return NasBench201() if name == NasBench201.name else CellSpace.from_name(name)
