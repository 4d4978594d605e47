"""DARTS cells: Liu, Simonyan, Yang, "DARTS: Differentiable Architecture Search", ICLR 2019.

Two cells are searched, a normal cell and a reduction cell, and each is repeated in the network.

The op sets are those of `UNIFORM`, and s1 of Zela et al. 2020, which differs from edge to edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from fedloom.errors import FedloomError, shortened, unknown
from fedloom.options import Options
from fedloom.spaces.cells.chosen import (
    AVG,
    DIL3,
    DIL5,
    INPUTS_KEPT,
    MAX,
    MOST_NODES,
    SEP3,
    SKIP,
    ChosenCells,
)
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Slot
from fedloom.types import Arch

KINDS = ("normal", "reduce")
TITLES = {"normal": "normal cell", "reduce": "reduction cell"}
# s1 has, on every edge, the two best operations of an earlier search. So it is a table, and only
# for four nodes. Each line has the edges into one node.
S1_NORMAL = (
    (SKIP, DIL3), (SKIP, DIL5),
    (SKIP, DIL5), (SKIP, SEP3), (SKIP, DIL3),
    (MAX, SKIP), (SKIP, SEP3), (SKIP, SEP3), (SKIP, DIL3),
    (SKIP, SEP3), (MAX, SKIP), (SKIP, DIL3), (DIL3, DIL5), (DIL3, DIL5),
)  # fmt: skip
S1_REDUCE = (
    (MAX, AVG), (MAX, DIL3),
    (MAX, AVG), (MAX, AVG), (SKIP, DIL5),
    (MAX, AVG), (MAX, SEP3), (SKIP, DIL3), (SKIP, DIL5),
    (MAX, AVG), (MAX, AVG), (SKIP, DIL5), (SKIP, DIL5), (SKIP, DIL5),
)  # fmt: skip
S1 = {"normal": S1_NORMAL, "reduce": S1_REDUCE}
OpSet = Literal["full", "s1", "s2", "s3", "s4", "s5"]
OP_SETS = get_args(OpSet)


class CellParameters(Options):
    ops: OpSet = Field("full", description="op set of a cell's edges")
    nodes: int = Field(4, description=f"intermediate nodes of a cell, 1 to {MOST_NODES}")


@dataclass(frozen=True)
class CellSpace(ChosenCells):
    """Two cells, a normal and a reduction one, whose edges are chosen: DARTS (Liu et al. 2019)."""

    family: ClassVar[str] = "darts"
    schema: ClassVar[type[Options]] = CellParameters
    published_example: ClassVar[str] = f'{{"normal": [["{SEP3}", 0], …], "reduce": […]}}'
    tiny: ClassVar[Mapping[str, Any]] = {"ops": "s2", "nodes": 2}
    once_kept_by_all: ClassVar[tuple[str, ...]] = ("ops", "nodes")

    def __post_init__(self) -> None:
        if self.ops not in OP_SETS:
            raise unknown("an op set", self.ops, OP_SETS)
        super().__post_init__()
        if self.ops == "s1" and self.nodes != 4:
            rule = "op set s1 must have cells of 4 nodes"
            raise FedloomError(rule, f"got {self.nodes}", "use s2, s3, s5 or full")

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        return KINDS

    def kind_at(self, position: int, cells: int) -> str:
        if position in reductions(cells):
            return "reduce"
        return "normal"

    def cell_title(self, kind: str) -> str:
        return TITLES[kind]

    def options_of(self, kind: str, edge: int) -> tuple[str, ...]:
        if self.ops == "s1":
            return S1[kind][edge]
        return super().options_of(kind, edge)

    @classmethod
    def published(cls, raw: Mapping[str, Any]) -> Arch | None:
        """Reads `{"normal": [[op, input], …], "reduce": […]}`."""
        if not set(KINDS) <= set(raw):
            return None
        genotype = {kind: pairs_of(kind, raw[kind]) for kind in KINDS}
        return from_genotype(genotype, cls("full", len(genotype["normal"]) // INPUTS_KEPT))


Genotype = dict[str, tuple[tuple[str, int], ...]]  # kind → (operation, source), two for every node

# Liu et al. 2019, second order, found on CIFAR-10.
DARTS_V2: Genotype = {
    "normal": (
        (SEP3, 0), (SEP3, 1), (SEP3, 0), (SEP3, 1),
        (SEP3, 1), (SKIP, 0), (SKIP, 0), (DIL3, 2),
    ),
    "reduce": (
        (MAX, 0), (MAX, 1), (SKIP, 2), (MAX, 1),
        (MAX, 0), (SKIP, 2), (SKIP, 2), (MAX, 1),
    ),
}  # fmt: skip


def pairs_of(kind: str, inputs: object) -> tuple[tuple[str, int], ...]:
    """Reads a cell's inputs from JSON: an operation, and the state that it is applied to."""
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
    """Returns a published genotype as an architecture of `space`."""
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
                raise FedloomError(rule, f"got {source} twice", "fix the genotype")
            choice[slot] = (_op(space.slots[slot], op),)
    return Arch(space.name, tuple(choice))


def _slot(space: CellSpace, kind: str, node: int, source: int) -> int:
    slots = space.slots_into(kind, node)
    if not 0 <= source < len(slots):
        rule = f"node {node} of a {kind} cell must take an input below {len(slots)}"
        raise FedloomError(rule, f"got {source}", "fix the genotype")
    return slots[source]


def _op(slot: Slot, op: str) -> int:
    if op not in slot.options:
        raise unknown(f"slot {slot.name}", op, slot.options)
    return slot.options.index(op)
