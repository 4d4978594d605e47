"""A search space under test, and a network of it that is small enough for a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from fedloom.nets.model import seeded
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.checking import made_up
from fedloom.spaces.choice import Choice
from fedloom.spaces.space import NONE, Size, Space
from fedloom.spaces.supernet import Supernet
from fedloom.testing.subject import Exempting
from fedloom.types import Arch

NOISE = 7  # the seed of what a network draws by itself while it computes
DRAWN = 3  # architectures that are built


@dataclass(frozen=True)
class SpaceToy:
    """A space, and what its networks are built for."""

    space: Space
    kind: str = "image"
    shape: tuple[int, ...] = (3, 8, 8)
    classes: int = 3
    size: Size = field(default=Size(cells=2, channels=4))

    def supernet(self, *, arch: Arch | None = None, affine: bool = False) -> Supernet:
        """As a seed makes it, with running statistics that are not those of a fresh one."""
        with seeded(0):
            net = self.space.network(self.shape, self.classes, self.size, arch=arch, affine=affine)
        with torch.no_grad(), seeded(NOISE):
            net.train()(self.samples())
        return net

    def samples(self) -> torch.Tensor:
        return made_up(self.kind, self.shape, self.classes)

    def labels(self) -> torch.Tensor:
        return torch.arange(len(self.samples())) % self.classes

    def drawn(self) -> list[Arch]:
        """A few architectures that a search could find."""
        return [self.space.sample(rng(number, "architecture")) for number in range(DRAWN)]

    def extremes(self) -> list[Arch]:
        """Everything alive, and nothing, where the network can do without."""
        bare = self.space.bare()
        if bare is None:
            return [self.space.full()]
        return [self.space.full(), bare]

    def useful(self) -> Iterator[tuple[int, int]]:
        """Every slot with each of its options that computes something."""
        for number, slot in enumerate(self.space.slots):
            for op, name in enumerate(slot.options):
                if name != NONE:
                    yield number, op


class SpaceSubject(Exempting):
    """What a test class says of its space."""

    space: ClassVar[str]  # a registered name or path/file.py:Name, with its parameters
    kind: ClassVar[str] = "image"
    shape: ClassVar[tuple[int, ...]] = (3, 8, 8)  # of one sample
    classes: ClassVar[int] = 3
    size: ClassVar[Size] = Size(cells=2, channels=4)

    @pytest.fixture
    def toy(self) -> SpaceToy:
        return SpaceToy(open_space(self.space), self.kind, self.shape, self.classes, self.size)


def answer(net: torch.nn.Module, x: torch.Tensor, *choice: Choice) -> torch.Tensor:
    """The same each time, also of a network that draws while it computes."""
    with seeded(NOISE):
        scores: torch.Tensor = net(x, *choice)
    return scores
