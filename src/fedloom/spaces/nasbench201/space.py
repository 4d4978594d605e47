"""The NAS-Bench-201 cell: Dong, Yang, ICLR 2020.

Four nodes, six edges and five operations make 15,625 cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedloom.errors import FedloomError, unknown
from fedloom.spaces.space import Size, Slot, Space
from fedloom.types import Arch

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
SHORT_NAMES = {
    "skip_connect": "skip",
    "nor_conv_1x1": "conv1",
    "nor_conv_3x3": "conv3",
    "avg_pool_3x3": "avg3",
}
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # (source, target)
NOTATION = re.compile(  # the operation of each edge, node by node
    r"\|([^|~]+)~0\|"
    r"[+]\|([^|~]+)~0\|([^|~]+)~1\|"
    r"[+]\|([^|~]+)~0\|([^|~]+)~1\|([^|~]+)~2\|"
)
SLOTS = tuple(Slot(f"{source}-{target}", OPS) for source, target in EDGES)


@dataclass(frozen=True)
class NasBench201(Space):
    """One cell of six edges, the same in all three stages: NAS-Bench-201 (Dong, Yang 2020)."""

    family: ClassVar[str] = "nasbench201"
    refillable: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    usual: ClassVar[Size] = Size(cells=5, channels=16)  # cells of each of its three stages

    @property
    def slots(self) -> tuple[Slot, ...]:
        return SLOTS

    def short_name(self, option: str) -> str:
        return SHORT_NAMES.get(option, option)

    def bare(self) -> Arch:
        return Arch(self.name, ((),) * len(EDGES))

    def sample(self, rng: np.random.Generator) -> Arch:
        ops = rng.integers(len(OPS), size=len(EDGES))
        return Arch(self.name, tuple((int(op),) for op in ops))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        slot = int(rng.integers(len(EDGES)))
        others = [op for op in range(len(OPS)) if (op,) != arch.choice[slot]]
        choice = list(arch.choice)
        choice[slot] = (int(rng.choice(others)),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        return Arch(self.name, tuple((int(np.argmax(row)),) for row in strength))


def from_string(text: str) -> Arch:
    """Reads the benchmark's own notation, `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`."""
    match = NOTATION.fullmatch(text)
    if match is None:
        rule = "a NAS-Bench-201 cell must look like |op~0|+|op~0|op~1|+|op~0|op~1|op~2|"
        raise FedloomError(rule, f"got {text!r}", "fix it")
    names = match.groups()
    for op in names:
        if op not in OPS:
            raise unknown("an operation of NAS-Bench-201", op, OPS)
    return Arch(NasBench201.family, tuple((OPS.index(op),) for op in names))
