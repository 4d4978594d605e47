"""The NAS-Bench-201 cell: Dong, Yang, ICLR 2020. Four nodes, six edges, five operations, 15,625 cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedloom.errors import FedloomError, shortened, unknown
from fedloom.spaces import Slot
from fedloom.types import Arch

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NOTATION = re.compile(
    "[+]".join(r"\|" + "".join(rf"([^|~]+)~{source}\|" for source in range(node)) for node in (1, 2, 3))
)
EDGES = tuple((source, target) for target in range(1, 4) for source in range(target))


@dataclass(frozen=True)
class NasBench201:
    name: ClassVar[str] = "nasbench201"
    edges: ClassVar[tuple[tuple[int, int], ...]] = EDGES
    slots: ClassVar[tuple[Slot, ...]] = tuple(Slot(f"{source}-{target}", OPS) for source, target in EDGES)

    def full(self) -> Arch:
        return Arch(self.name, (tuple(range(len(OPS))),) * len(EDGES))

    def sample(self, rng: np.random.Generator) -> Arch:
        return Arch(self.name, tuple((int(op),) for op in rng.integers(len(OPS), size=len(EDGES))))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        slot = int(rng.integers(len(EDGES)))
        others = [op for op in range(len(OPS)) if (op,) != arch.choice[slot]]
        choice = list(arch.choice)
        choice[slot] = (int(rng.choice(others)),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        return Arch(self.name, tuple((int(np.argmax(row)),) for row in strength))

    def check(self, arch: Arch) -> None:
        if arch.space != self.name or len(arch.choice) != len(EDGES):
            found = f"it is of {arch.space} with {len(arch.choice)} slots"
            must = f"an architecture must be of {self.name} with {len(EDGES)} slots"
            raise FedloomError(must, found, "use its own space")
        for slot, live in zip(self.slots, arch.choice, strict=True):
            if any(not 0 <= op < len(OPS) for op in live) or len(set(live)) != len(live):
                options = ", ".join(f"{number} {name}" for number, name in enumerate(OPS))
                found = f"got {shortened(repr(list(live)), 80)}"
                raise FedloomError(f"slot {slot.name} must choose among {options}", found, "mend it")


def from_string(text: str) -> Arch:
    """The benchmark's own notation, `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`."""
    found = NOTATION.fullmatch(text)
    if found is None:
        must = "a NAS-Bench-201 cell must look like |op~0|+|op~0|op~1|+|op~0|op~1|op~2|"
        raise FedloomError(must, f"got {text!r}", "mend it")
    names = found.groups()
    for op in names:
        if op not in OPS:
            raise unknown("an operation of NAS-Bench-201", op, OPS)
    return Arch(NasBench201.name, tuple((OPS.index(op),) for op in names))
