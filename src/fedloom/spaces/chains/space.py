"""The choices in a chain: one operation per layer. A path is a network."""

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

# The names of the layers of two stages with two layers each, as in FedorAS.
RECURRENT_NAMES = ("stem", "branch", "block", "shortcut")


@dataclass(frozen=True, eq=False)
class ChainSpace(Space):
    """A chain in which every layer is one of several operations."""

    refillable: ClassVar[bool] = True
    has_own_size: ClassVar[bool] = True
    shipped: ClassVar[Definition | None] = None  # the definition of a space with its own name

    definition: Definition

    def __post_init__(self) -> None:
        size = Size(self.definition.layers, self.definition.channels)
        object.__setattr__(self, "usual", size)

    @classmethod
    def named(cls, parameters: str) -> Self:
        if cls.shipped is None:
            return cls(from_json(parameters))
        if parameters:
            rule = f"the space {cls.family} must be named without parameters"
            raise FedloomError(rule, f"got {shortened(repr(parameters), 80)}", f"use {cls.family}")
        return cls(cls.shipped)

    @classmethod
    def configured(cls, parameters: Any) -> Self:
        if cls.shipped is None:
            rule = f"a space of the family {cls.family} must be named by a TOML file"
            raise FedloomError(rule, f"got {cls.family}", "use --space path/file.toml")
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
        """The slots, one per layer; `2.1` is the first layer of the second stage."""
        slots = []
        for number, stage in enumerate(self.definition.stage, 1):
            for layer, names in enumerate(stage.ops, 1):
                slots.append(Slot(f"{number}.{layer}", names))
        layers = [stage.layers for stage in self.definition.stage]
        if not self.definition.is_text or layers != [2, 2]:
            return tuple(slots)
        renamed = []
        for name, slot in zip(RECURRENT_NAMES, slots, strict=True):
            renamed.append(Slot(name, slot.options))
        return tuple(renamed)

    def sample(self, rng: np.random.Generator) -> Arch:
        choice = [(int(rng.integers(len(slot.options))),) for slot in self.slots]
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """Redraws one layer; if no layer has a choice, returns the same path."""
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
        """A part of the network may have several operations in a layer, but must have one."""
        super().check(arch)
        for slot, live in zip(self.slots, arch.choice, strict=True):
            if not live:
                rule = f"layer {slot.name} of {self.title} must have an operation"
                raise FedloomError(rule, "it has none", "choose one")
