"""DARTS cells: Liu, Simonyan, Yang, "DARTS: Differentiable Architecture Search", ICLR 2019.

A cell has two inputs (the outputs of the two cells before it) and `nodes` intermediate nodes; every node is
connected with all that come before it: 2 + 3 + 4 + 5 = 14 edges for four nodes. Two cells are searched, a normal and
a reduction one, and each is repeated in the network. A derived cell keeps two inputs a node, one operation each.

Op sets: the full eight; s1–s4 of Zela et al. 2020 ("Understanding and Robustifying Differentiable Architecture
Search"), of which s1 differs from edge to edge; s5 is the full set without `none` (Wang et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fedloom.errors import FedloomError, shortened, unknown
from fedloom.spaces.options import MOST_NODES, SpaceOptions
from fedloom.spaces.space import NONE, Rivals, Slot, Space
from fedloom.types import Arch

INPUTS_KEPT = 2  # of every node, in a derived cell
KINDS = ("normal", "reduce")

_SKIP, _MAX, _AVG, _SEP3, _SEP5, _DIL3, _DIL5 = (
    "skip_connect", "max_pool_3x3", "avg_pool_3x3", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5",
)  # fmt: skip
SHORT_NAMES = {
    _SKIP: "skip", _MAX: "max3", _AVG: "avg3", _SEP3: "sep3", _SEP5: "sep5", _DIL3: "dil3", _DIL5: "dil5",
}  # fmt: skip
EIGHT = ("none", _MAX, _AVG, _SKIP, _SEP3, _SEP5, _DIL3, _DIL5)
UNIFORM = {
    "full": EIGHT,
    "s2": (_SKIP, _SEP3),
    "s3": ("none", _SKIP, _SEP3),
    "s4": ("noise", _SEP3),
    "s5": EIGHT[1:],
}
# s1 keeps on every edge the two best operations of an earlier search, so it is a table, and only for four nodes.
S1_NORMAL = (
    (_SKIP, _DIL3), (_SKIP, _DIL5), (_SKIP, _DIL5), (_SKIP, _SEP3), (_SKIP, _DIL3), (_MAX, _SKIP), (_SKIP, _SEP3),
    (_SKIP, _SEP3), (_SKIP, _DIL3), (_SKIP, _SEP3), (_MAX, _SKIP), (_SKIP, _DIL3), (_DIL3, _DIL5), (_DIL3, _DIL5),
)  # fmt: skip
S1_REDUCE = (
    (_MAX, _AVG), (_MAX, _DIL3), (_MAX, _AVG), (_MAX, _AVG), (_SKIP, _DIL5), (_MAX, _AVG), (_MAX, _SEP3),
    (_SKIP, _DIL3), (_SKIP, _DIL5), (_MAX, _AVG), (_MAX, _AVG), (_SKIP, _DIL5), (_SKIP, _DIL5), (_SKIP, _DIL5),
)  # fmt: skip
S1 = {"normal": S1_NORMAL, "reduce": S1_REDUCE}
OP_SETS = ("full", "s1", *(name for name in UNIFORM if name != "full"))


@dataclass(frozen=True)
class CellSpace(Space):
    """Two cells, a normal and a reduction one, whose edges are chosen: DARTS (Liu et al. 2019)."""

    family: ClassVar[str] = "darts"
    refillable: ClassVar[bool] = True

    ops: str = "full"  # an op set's name
    nodes: int = 4

    def __post_init__(self) -> None:
        if self.ops not in OP_SETS:
            raise unknown("an op set", self.ops, OP_SETS)
        if not 1 <= self.nodes <= MOST_NODES:
            raise FedloomError(f"a cell must have 1 to {MOST_NODES} nodes", f"got {self.nodes}", "try 4")
        if self.ops == "s1" and self.nodes != 4:
            raise FedloomError("op set s1 must have cells of 4 nodes", f"got {self.nodes}", "use s2, s3, s5 or full")

    @classmethod
    def named(cls, parameters: str) -> Self:
        ops, _, nodes = parameters.partition(":")
        if not (nodes.isascii() and nodes.isdecimal() and len(nodes) <= 6):
            rule = f"the space {cls.family} must look like {cls.family}:OPS:NODES"
            found = f"got {shortened(f'{cls.family}:{parameters}', 80)}"
            raise FedloomError(rule, found, f"try {cls.family}:s2:4")
        return cls(ops, int(nodes))

    @classmethod
    def configured(cls, options: SpaceOptions) -> Self:
        return cls(options.ops, options.nodes)

    @property
    def parameters(self) -> str:
        return f"{self.ops}:{self.nodes}"

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(source, target): 0 and 1 are the cell's inputs, 2 and up its nodes."""
        edges = []
        for target in range(2, self.nodes + 2):
            edges += [(source, target) for source in range(target)]
        return tuple(edges)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The normal cell's edges, then the reduction cell's."""
        return self._slots

    @cached_property
    def _slots(self) -> tuple[Slot, ...]:
        slots = []
        for kind in KINDS:
            for edge, (source, target) in enumerate(self.edges):
                slots.append(Slot(f"{kind}.{source}-{target}", self._options(kind, edge)))
        return tuple(slots)

    def _options(self, kind: str, edge: int) -> tuple[str, ...]:
        if self.ops == "s1":
            return S1[kind][edge]
        return UNIFORM[self.ops]

    def short_name(self, option: str) -> str:
        return SHORT_NAMES.get(option, option)

    def bare(self) -> Arch:
        return Arch(self.name, ((),) * len(self.slots))

    def slots_into(self, kind: str, node: int) -> list[int]:
        """The slots that lead into one node (0 is the first intermediate one) of one kind of cell."""
        offset = KINDS.index(kind) * len(self.edges)
        return [offset + edge for edge, (_, target) in enumerate(self.edges) if target == node + 2]

    def sample(self, rng: np.random.Generator) -> Arch:
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for kind in KINDS:
            for node in range(self.nodes):
                slots = self.slots_into(kind, node)
                for slot in sorted(rng.choice(slots, size=INPUTS_KEPT, replace=False).tolist()):
                    choice[slot] = (int(rng.choice(self._useful(slot))),)
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """Draw one input of one node anew: where it comes from and what it does."""
        kind, node = KINDS[int(rng.integers(2))], int(rng.integers(self.nodes))
        slots = self.slots_into(kind, node)
        used = [slot for slot in slots if arch.choice[slot]]
        dropped = int(rng.choice(used))
        places = [slot for slot in slots if slot == dropped or slot not in used]
        moves = [(slot, op) for slot in places for op in self._useful(slot) if (op,) != arch.choice[slot]]
        slot, op = moves[int(rng.integers(len(moves)))]
        choice = list(arch.choice)
        choice[dropped], choice[slot] = (), (op,)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """Per node the two inputs whose strongest operation other than none is strongest."""
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for kind in KINDS:
            for node in range(self.nodes):
                best = [self._strongest(slot, strength[slot]) for slot in self.slots_into(kind, node)]
                for _, slot, op in sorted(best)[:INPUTS_KEPT]:
                    choice[slot] = (op,)
        return Arch(self.name, tuple(choice))

    def together(self) -> list[tuple[int, ...]]:
        """An edge in both kinds of cells."""
        count = len(self.edges)
        return [tuple(kind * count + edge for kind in range(len(KINDS))) for edge in range(count)]

    def rivals(self) -> list[Rivals]:
        """The inputs of every node, of which two stay."""
        nodes = [(kind, node) for kind in KINDS for node in range(self.nodes)]
        return [Rivals(tuple(self.slots_into(kind, node)), INPUTS_KEPT) for kind, node in nodes]

    @classmethod
    def published(cls, raw: Mapping[str, Any]) -> Arch | None:
        """`{"normal": [[op, input], …], "reduce": […]}`."""
        if not set(KINDS) <= set(raw):
            return None
        genotype = {kind: pairs_of(kind, raw[kind]) for kind in KINDS}
        return from_genotype(genotype, cls("full", len(genotype["normal"]) // INPUTS_KEPT))

    def _strongest(self, slot: int, strength: np.ndarray) -> tuple[float, int, int]:
        """Its best operation, as something that sorts by falling strength, then by slot and operation."""
        value, op = min((-float(strength[op]), op) for op in self._useful(slot))
        return value, slot, op

    def _useful(self, slot: int) -> list[int]:
        return [op for op, name in enumerate(self.slots[slot].options) if name != NONE]


Genotype = dict[str, tuple[tuple[str, int], ...]]  # kind → (operation, source), two for every node

# Liu et al. 2019, second order, found on CIFAR-10.
DARTS_V2: Genotype = {
    "normal": (
        (_SEP3, 0), (_SEP3, 1), (_SEP3, 0), (_SEP3, 1), (_SEP3, 1), (_SKIP, 0), (_SKIP, 0), (_DIL3, 2),
    ),
    "reduce": (
        (_MAX, 0), (_MAX, 1), (_SKIP, 2), (_MAX, 1), (_MAX, 0), (_SKIP, 2), (_SKIP, 2), (_MAX, 1),
    ),
}  # fmt: skip


def pairs_of(kind: str, inputs: object) -> tuple[tuple[str, int], ...]:
    """A cell's inputs out of JSON: an operation, and the state it is applied to."""
    rule = f"a genotype's {kind} cell must be a list of operations with the input each is applied to"
    example = 'try [["sep_conv_3x3", 0], …]'
    if not isinstance(inputs, list):
        raise FedloomError(rule, f"got {shortened(repr(inputs), 80)}", example)
    pairs = []
    for pair in inputs:
        if not isinstance(pair, list) or [type(part) for part in pair] != [str, int]:
            raise FedloomError(rule, f"one of them is {shortened(repr(pair), 80)}", example)
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def from_genotype(genotype: Genotype, space: CellSpace) -> Arch:
    """A published genotype as an architecture of `space`."""
    choice: list[tuple[int, ...]] = [()] * len(space.slots)
    for kind in KINDS:
        pairs = genotype.get(kind, ())
        if len(pairs) != INPUTS_KEPT * space.nodes:
            raise FedloomError(
                f"a genotype's {kind} cell must have {INPUTS_KEPT * space.nodes} inputs", f"it has {len(pairs)}",
                f"use a space of {len(pairs) // INPUTS_KEPT} nodes",
            )  # fmt: skip
        for position, (op, source) in enumerate(pairs):
            slot = _slot(space, kind, position // INPUTS_KEPT, source)
            if choice[slot]:
                must = f"node {position // INPUTS_KEPT} of a {kind} cell must take two different inputs"
                raise FedloomError(must, f"got {source} twice", "mend it")
            choice[slot] = (_op(space.slots[slot], op),)
    return Arch(space.name, tuple(choice))


def _slot(space: CellSpace, kind: str, node: int, source: int) -> int:
    slots = space.slots_into(kind, node)
    if not 0 <= source < len(slots):
        must = f"node {node} of a {kind} cell must take an input below {len(slots)}"
        raise FedloomError(must, f"got {source}", "mend the genotype")
    return slots[source]


def _op(slot: Slot, op: str) -> int:
    if op not in slot.options:
        raise unknown(f"slot {slot.name}", op, slot.options)
    return slot.options.index(op)
