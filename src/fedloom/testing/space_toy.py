"""A search space under test, and a network of it that is small enough for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import pytest
import torch

from fedloom.nets.model import seeded
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.checking import check_space, made_up
from fedloom.spaces.choice import Choice
from fedloom.spaces.space import NONE, OpId, Size, Space
from fedloom.spaces.supernet import Supernet
from fedloom.testing.subject import Exempting, beside
from fedloom.types import Arch

NOISE = 7  # the seed of random numbers that a network draws while it computes
DRAWN = 3  # architectures to build
SEARCHABLE = "test_it_can_be_searched"


@dataclass(frozen=True)
class SpaceToy:
    """A space, and what its networks are built for."""

    space: Space
    kind: str = "image"
    shape: tuple[int, ...] = (3, 8, 8)
    classes: int = 3
    size: Size = field(default=Size(cells=2, channels=4))

    def supernet(self, *, arch: Arch | None = None, affine: bool = False) -> Supernet:
        """A supernet with seeded weights, and running statistics after one training step."""
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
        """All operations; and none, if the network can compute without any."""
        bare = self.space.bare()
        if bare is None:
            return [self.space.full()]
        return [self.space.full(), bare]

    def useful(self) -> Iterator[tuple[int, int]]:
        """The pairs of a slot and one of its options, without options that compute nothing."""
        for number, slot in enumerate(self.space.slots):
            for op, name in enumerate(slot.options):
                if name != NONE:
                    yield number, op


class SpaceSubject(Exempting):
    """The attributes by which a test class describes its space."""

    space: ClassVar[str]  # a registered name or path/file.py:Name, with its parameters
    kind: ClassVar[str] = "image"
    shape: ClassVar[tuple[int, ...]] = (3, 8, 8)  # of one sample
    classes: ClassVar[int] = 3
    size: ClassVar[Size] = Size(cells=2, channels=4)

    @pytest.fixture
    def toy(self) -> SpaceToy:
        space = open_space(beside(type(self), self.space))
        return SpaceToy(space, self.kind, self.shape, self.classes, self.size)

    @pytest.fixture(autouse=True)
    def _can_be_searched(self, request: pytest.FixtureRequest, toy: SpaceToy) -> None:
        """Skip all other tests of a space that cannot be searched, so that one says why."""
        test = request.node.originalname
        if test == SEARCHABLE or SEARCHABLE.removeprefix("test_") in self.exempt:
            return
        if not can_be_searched(toy):
            pytest.skip(f"the space cannot be searched: {SEARCHABLE} shows why")


@cache
def can_be_searched(toy: SpaceToy) -> bool:
    """Whether the space passes the checks that a run makes first."""
    try:
        check_space(toy.space, toy.kind, toy.shape, toy.classes, toy.size)
    except Exception:  # of the space's code too; the test raises it again
        return False
    return True


def named(space: Space, op: OpId) -> str:
    slot = space.slots[op.slot]
    return f"{slot.options[op.op]} in slot {slot.name}"


def in_words(space: Space, arch: Arch) -> str:
    """A choice for the message of a failed test: what is alive, slot by slot."""
    slots = []
    for slot, live in zip(space.slots, arch.choice, strict=True):
        options = " + ".join(slot.options[op] for op in live)
        slots.append(f"{slot.name}: {options or 'nothing'}")
    return "; ".join(slots)


def answer(net: torch.nn.Module, x: torch.Tensor, *choice: Choice) -> torch.Tensor:
    """The scores of a network, equal each time even if it draws random numbers."""
    with seeded(NOISE):
        scores: torch.Tensor = net(x, *choice)
    return scores
