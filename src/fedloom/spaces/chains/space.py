"""What can be chosen in a chain: one operation a layer. A path is a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fedloom.errors import FedloomError, shortened
from fedloom.spaces.chains.definition import Definition, from_json
from fedloom.spaces.space import Size, Slot, Space
from fedloom.types import Arch

RECURRENT_NAMES = ("stem", "branch", "block", "shortcut")  # of two sums of two, as in FedorAS


@dataclass(frozen=True, eq=False)
class ChainSpace(Space):
    """A chain whose every layer is one of several operations."""

    refillable: ClassVar[bool] = True
    has_own_size: ClassVar[bool] = True
    shipped: ClassVar[Definition | None] = None  # of a space that has a name of its own

    definition: Definition

    def __post_init__(self) -> None:
        size = Size(self.definition.layers, self.definition.channels)
        object.__setattr__(self, "usual", size)

    @classmethod
    def named(cls, parameters: str) -> Self:
        if cls.shipped is None:
            return cls(from_json(parameters))
        if parameters:
            rule = f"the space {cls.family} must be named without anything behind it"
            raise FedloomError(rule, f"got {shortened(repr(parameters), 80)}", f"say {cls.family}")
        return cls(cls.shipped)

    @classmethod
    def configured(cls, parameters: Any) -> Self:
        if cls.shipped is None:
            rule = f"a space of the family {cls.family} must be named by a TOML file"
            raise FedloomError(rule, f"got {cls.family}", "say --space path/file.toml")
        return cls.named("")

    @property
    def parameters(self) -> str:
        if self.shipped is not None:
            return ""
        return self.definition.to_json()

    @property
    def title(self) -> str:
        return self.definition.name

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self._slots

    @cached_property
    def _slots(self) -> tuple[Slot, ...]:
        """`2.1` is the first layer of the second stage."""
        slots = []
        for number, stage in enumerate(self.definition.stage, 1):
            for layer, names in enumerate(stage.ops, 1):
                slots.append(Slot(f"{number}.{layer}", names))
        if self.definition.is_text and [stage.layers for stage in self.definition.stage] == [2, 2]:
            return tuple(
                Slot(name, slot.options) for name, slot in zip(RECURRENT_NAMES, slots, strict=True)
            )
        return tuple(slots)

    def sample(self, rng: np.random.Generator) -> Arch:
        choice = [(int(rng.integers(len(slot.options))),) for slot in self.slots]
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """One layer drawn anew; where no layer has a choice, the same path."""
        slots = [number for number, slot in enumerate(self.slots) if len(slot.options) > 1]
        if not slots:
            return arch
        slot = int(rng.choice(slots))
        options = range(len(self.slots[slot].options))
        others = [op for op in options if (op,) != arch.choice[slot]]
        choice = list(arch.choice)
        choice[slot] = (int(rng.choice(others)),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        return Arch(self.name, tuple((int(np.argmax(row)),) for row in strength))

    def check(self, arch: Arch) -> None:
        """A part of the network may have several operations in a layer, but not none."""
        super().check(arch)
        for slot, live in zip(self.slots, arch.choice, strict=True):
            if not live:
                rule = f"layer {slot.name} of {self.title} must have an operation"
                raise FedloomError(rule, "it has none", "choose one")
