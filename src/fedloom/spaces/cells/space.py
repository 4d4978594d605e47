"""DARTS cells: Liu, Simonyan, Yang, "DARTS: Differentiable Architecture Search", ICLR 2019.

A cell has two inputs (the outputs of the two cells before it) and `nodes` intermediate nodes; every
node is connected with all that come before it: 2 + 3 + 4 + 5 = 14 edges for four nodes. Two cells
are searched, a normal and a reduction one, and each is repeated in the network. A derived cell
keeps two inputs a node, one operation each.

Op sets: the full eight; s1–s4 of Zela et al. 2020 ("Understanding and Robustifying Differentiable
Architecture Search"), of which s1 differs from edge to edge; s5 is the full set without `none`
(Wang et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import Field

from fedloom.errors import FedloomError, shortened, unknown
from fedloom.options import Options
from fedloom.spaces.space import NONE, OpId, Rivals, Slot, Space
from fedloom.types import Arch

INPUTS_KEPT = 2  # of every node, in a derived cell
KINDS = ("normal", "reduce")

_SKIP = "skip_connect"
_MAX = "max_pool_3x3"
_AVG = "avg_pool_3x3"
_SEP3 = "sep_conv_3x3"
_SEP5 = "sep_conv_5x5"
_DIL3 = "dil_conv_3x3"
_DIL5 = "dil_conv_5x5"
SHORT_NAMES = {
    _SKIP: "skip",
    _MAX: "max3",
    _AVG: "avg3",
    _SEP3: "sep3",
    _SEP5: "sep5",
    _DIL3: "dil3",
    _DIL5: "dil5",
}
EIGHT = ("none", _MAX, _AVG, _SKIP, _SEP3, _SEP5, _DIL3, _DIL5)
UNIFORM = {
    "full": EIGHT,
    "s2": (_SKIP, _SEP3),
    "s3": ("none", _SKIP, _SEP3),
    "s4": ("noise", _SEP3),
    "s5": EIGHT[1:],
}
# s1 keeps on every edge the two best operations of an earlier search, so it is a table, and only
# for four nodes. A line has the edges into one node.
S1_NORMAL = (
    (_SKIP, _DIL3), (_SKIP, _DIL5),
    (_SKIP, _DIL5), (_SKIP, _SEP3), (_SKIP, _DIL3),
    (_MAX, _SKIP), (_SKIP, _SEP3), (_SKIP, _SEP3), (_SKIP, _DIL3),
    (_SKIP, _SEP3), (_MAX, _SKIP), (_SKIP, _DIL3), (_DIL3, _DIL5), (_DIL3, _DIL5),
)  # fmt: skip
S1_REDUCE = (
    (_MAX, _AVG), (_MAX, _DIL3),
    (_MAX, _AVG), (_MAX, _AVG), (_SKIP, _DIL5),
    (_MAX, _AVG), (_MAX, _SEP3), (_SKIP, _DIL3), (_SKIP, _DIL5),
    (_MAX, _AVG), (_MAX, _AVG), (_SKIP, _DIL5), (_SKIP, _DIL5), (_SKIP, _DIL5),
)  # fmt: skip
S1 = {"normal": S1_NORMAL, "reduce": S1_REDUCE}
OpSet = Literal["full", "s1", "s2", "s3", "s4", "s5"]
OP_SETS = get_args(OpSet)
MOST_NODES = 32  # of a cell: its edges grow with their square


class CellParameters(Options):
    ops: OpSet = Field("full", description="op set of a cell's edges")
    nodes: int = Field(4, description=f"intermediate nodes of a cell, 1 to {MOST_NODES}")


@dataclass(frozen=True)
class CellSpace(Space):
    """Two cells, a normal and a reduction one, whose edges are chosen: DARTS (Liu et al. 2019)."""

    family: ClassVar[str] = "darts"
    refillable: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    schema: ClassVar[type[Options]] = CellParameters
    published_example: ClassVar[str] = f'{{"normal": [["{_SEP3}", 0], …], "reduce": […]}}'
    tiny: ClassVar[Mapping[str, Any]] = {"ops": "s2", "nodes": 2}
    once_kept_by_all: ClassVar[tuple[str, ...]] = ("ops", "nodes")

    ops: str = "full"  # an op set's name
    nodes: int = 4

    def __post_init__(self) -> None:
        if self.ops not in OP_SETS:
            raise unknown("an op set", self.ops, OP_SETS)
        if not 1 <= self.nodes <= MOST_NODES:
            rule = f"a cell must have 1 to {MOST_NODES} nodes"
            raise FedloomError(rule, f"got {self.nodes}", "try 4")
        if self.ops == "s1" and self.nodes != 4:
            rule = "op set s1 must have cells of 4 nodes"
            raise FedloomError(rule, f"got {self.nodes}", "use s2, s3, s5 or full")

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(source, target): 0 and 1 are the cell's inputs, 2 and up its nodes."""
        edges = []
        for target in range(2, self.nodes + 2):
            for source in range(target):
                edges.append((source, target))
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
        """The slots that lead into one intermediate node of one kind of cell."""
        first = self.slots_of(kind).start
        slots = []
        for edge, (_, target) in enumerate(self.edges):
            if target == node + 2:
                slots.append(first + edge)
        return slots

    def slots_of(self, kind: str) -> range:
        """The slots of one kind of cell."""
        first = KINDS.index(kind) * len(self.edges)
        return range(first, first + len(self.edges))

    def node_slots(self) -> list[list[int]]:
        """The slots that lead into each node, of the normal cell and then of the reduction cell."""
        nodes = []
        for kind in KINDS:
            for node in range(self.nodes):
                nodes.append(self.slots_into(kind, node))
        return nodes

    def sample(self, rng: np.random.Generator) -> Arch:
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for slots in self.node_slots():
            inputs = rng.choice(slots, size=INPUTS_KEPT, replace=False).tolist()
            for slot in sorted(inputs):
                choice[slot] = (int(rng.choice(self._useful(slot))),)
        return Arch(self.name, tuple(choice))

    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """Draw one input of one node anew: where it comes from and what it does."""
        kind = KINDS[int(rng.integers(2))]
        slots = self.slots_into(kind, int(rng.integers(self.nodes)))
        used = [slot for slot in slots if arch.choice[slot]]
        dropped = int(rng.choice(used))
        moves = []
        for slot in slots:
            if slot in used and slot != dropped:
                continue
            for op in self._useful(slot):
                if (op,) != arch.choice[slot]:
                    moves.append(OpId(slot, op))
        move = moves[int(rng.integers(len(moves)))]
        choice = list(arch.choice)
        choice[dropped] = ()
        choice[move.slot] = (move.op,)
        return Arch(self.name, tuple(choice))

    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """Per node the two inputs whose strongest operation other than none is strongest."""
        choice: list[tuple[int, ...]] = [()] * len(self.slots)
        for slots in self.node_slots():
            best = [self._strongest(slot, strength[slot]) for slot in slots]
            best.sort(key=lambda op: (-float(strength[op.slot][op.op]), op.slot))
            for slot, op in best[:INPUTS_KEPT]:
                choice[slot] = (op,)
        return Arch(self.name, tuple(choice))

    def _strongest(self, slot: int, strength: np.ndarray) -> OpId:
        """The strongest operation of a slot other than none; among equals the first."""
        op = min(self._useful(slot), key=lambda op: (-float(strength[op]), op))
        return OpId(slot, op)

    def _useful(self, slot: int) -> list[int]:
        return [op for op, name in enumerate(self.slots[slot].options) if name != NONE]

    def together(self) -> list[tuple[int, ...]]:
        """An edge in both kinds of cells."""
        pairs = zip(self.slots_of("normal"), self.slots_of("reduce"), strict=True)
        return list(pairs)

    def rivals(self) -> list[Rivals]:
        """The inputs of every node, of which two stay."""
        return [Rivals(tuple(slots), INPUTS_KEPT) for slots in self.node_slots()]

    @classmethod
    def published(cls, raw: Mapping[str, Any]) -> Arch | None:
        """`{"normal": [[op, input], …], "reduce": […]}`."""
        if not set(KINDS) <= set(raw):
            return None
        genotype = {kind: pairs_of(kind, raw[kind]) for kind in KINDS}
        return from_genotype(genotype, cls("full", len(genotype["normal"]) // INPUTS_KEPT))


Genotype = dict[str, tuple[tuple[str, int], ...]]  # kind → (operation, source), two for every node

# Liu et al. 2019, second order, found on CIFAR-10.
DARTS_V2: Genotype = {
    "normal": (
        (_SEP3, 0), (_SEP3, 1), (_SEP3, 0), (_SEP3, 1),
        (_SEP3, 1), (_SKIP, 0), (_SKIP, 0), (_DIL3, 2),
    ),
    "reduce": (
        (_MAX, 0), (_MAX, 1), (_SKIP, 2), (_MAX, 1),
        (_MAX, 0), (_SKIP, 2), (_SKIP, 2), (_MAX, 1),
    ),
}  # fmt: skip


def pairs_of(kind: str, inputs: object) -> tuple[tuple[str, int], ...]:
    """A cell's inputs out of JSON: an operation, and the state it is applied to."""
    cell = f"a genotype's {kind} cell"
    rule = f"{cell} must be a list of operations with the input each is applied to"
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
            rule = f"a genotype's {kind} cell must have {INPUTS_KEPT * space.nodes} inputs"
            advice = f"use a space of {len(pairs) // INPUTS_KEPT} nodes"
            raise FedloomError(rule, f"it has {len(pairs)}", advice)
        for position, (op, source) in enumerate(pairs):
            node = position // INPUTS_KEPT
            slot = _slot(space, kind, node, source)
            if choice[slot]:
                rule = f"node {node} of a {kind} cell must take two different inputs"
                raise FedloomError(rule, f"got {source} twice", "mend it")
            choice[slot] = (_op(space.slots[slot], op),)
    return Arch(space.name, tuple(choice))


def _slot(space: CellSpace, kind: str, node: int, source: int) -> int:
    slots = space.slots_into(kind, node)
    if not 0 <= source < len(slots):
        rule = f"node {node} of a {kind} cell must take an input below {len(slots)}"
        raise FedloomError(rule, f"got {source}", "mend the genotype")
    return slots[source]


def _op(slot: Slot, op: str) -> int:
    if op not in slot.options:
        raise unknown(f"slot {slot.name}", op, slot.options)
    return slot.options.index(op)
