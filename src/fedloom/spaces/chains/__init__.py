"""The complete chain spaces: the four that come with FedLoom, and those that users define in TOML.

Their networks need torch and are imported only when they are used, so that a report, which only
draws, does not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedloom.nets import MAPS
from fedloom.spaces.chains.definition import Definition, of_path
from fedloom.spaces.chains.draw import chain_graphs
from fedloom.spaces.chains.files import read_definition
from fedloom.spaces.chains.shipped import CNN_L, CNN_S, CNN_TINY, RNN
from fedloom.spaces.chains.space import ChainSpace
from fedloom.spaces.cost_table import CostTable
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Cost, Example, OpId, Size
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.chains.net import MapNetwork, SequenceNetwork

LARGE_SIDE = 32  # `auto` searches images of at least this size in the large space


@dataclass(frozen=True, eq=False)
class Chain(ChainSpace):
    """What chains over maps and over symbols have in common."""

    def cost(
        self,
        shape: tuple[int, ...],
        classes: int,
        arch: Arch,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        from fedloom.spaces.chains.cost import network_cost

        self.check(arch)
        return network_cost(self.definition, shape, classes, arch, size.head)

    def op_cost(
        self,
        op: OpId,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        """The only operation of a layer cannot be removed: it adds its own entry of the table."""
        if len(self.slots[op.slot].options) > 1:
            return super().op_cost(op, shape, classes, size, affine=affine)
        cost = self.cost_table(shape, classes, size).rows[op.slot][op.op]
        return Cost(cost.params, cost.macs, cost.activations)

    def cost_table(self, shape: tuple[int, ...], classes: int, size: Size) -> CostTable:
        from fedloom.spaces.chains.cost import cost_table

        return cost_table(self.definition, shape, classes, size.head)

    def resized(self, arch: Arch, width: float) -> Arch | None:
        """Returns a chain with only the path's operations: others may not fit the new channels."""
        self.check(arch)
        ops = []
        for slot, live in zip(self.slots, arch.choice, strict=True):
            if len(live) != 1:
                return None
            ops.append(slot.options[live[0]])
        definition = of_path(self.definition, tuple(ops), width)
        if definition is None:
            return None
        family = SequenceChain if definition.is_text else MapChain
        return family(definition).full()

    def graphs(self, arch: Arch) -> list[Graph]:
        return chain_graphs(self, arch)


@dataclass(frozen=True, eq=False)
class MapChain(Chain):
    """A chain of convolutions that a TOML file defines: --space FILE.toml."""

    family: ClassVar[str] = "map-chain"
    takes_head: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = MAPS

    @property
    def example(self) -> Example:
        if self.definition.kind == "speech":
            return Example((1, 40, 51), classes=12)
        return Example((3, 32, 32), classes=10)

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> MapNetwork:
        """BN always has weights; `affine` is ignored."""
        from fedloom.spaces.chains.net import MapNetwork

        return MapNetwork(self, shape, classes, size, arch, affine)


@dataclass(frozen=True, eq=False)
class SequenceChain(Chain):
    """Sums of recurrent and other layers that a TOML file defines: --space FILE.toml."""

    family: ClassVar[str] = "text-chain"
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    @property
    def example(self) -> Example:
        return Example((80,), classes=90)

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> SequenceNetwork:
        from fedloom.spaces.chains.net import SequenceNetwork

        return SequenceNetwork(self, shape, classes, size, arch, affine)


class CnnL(MapChain):
    """16 layers of nine operations, for images from 32×32 on: FedorAS's (Dudziak et al. 2022)."""

    family: ClassVar[str] = "cnn-l"
    shipped: ClassVar[Definition | None] = CNN_L
    tier_rule: ClassVar[TierRule] = TierRule(None, 0.95, 4, "macs_paper")
    usual_options: ClassVar[Mapping[str, Any]] = {
        "epochs": 50,
        "batch": 128,
        "lr": 0.1,
        "momentum": 0.9,
        "comm": "11.4M",
        "models": 1000,
        "pool": 128,
        "sample": 64,
    }

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        return kind == "image" and min(shape[1:]) >= LARGE_SIDE


class CnnS(MapChain):
    """6 layers of eleven operations, for spectrograms of 40×51: FedorAS's (Dudziak et al. 2022)."""

    family: ClassVar[str] = "cnn-s"
    shipped: ClassVar[Definition | None] = CNN_S
    tier_rule: ClassVar[TierRule] = TierRule(
        0.3,
        0.925,
        3,
        "macs_paper",
        shares=(0.8, 0.0125, 0.0125, 0.175),
    )
    usual_options: ClassVar[Mapping[str, Any]] = {
        "epochs": 25,
        "batch": 64,
        "lr": 0.1,
        "momentum": 0.9,
        "comm": "1.5M",
        "models": [2000, 500, 500, 2000],
        "pool": 96,
        "sample": 48,
    }

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        return kind == "speech"


class CnnTiny(MapChain):
    """6 layers of cnn-l's operations with few channels, for images from 8×8 on."""

    family: ClassVar[str] = "cnn-tiny"
    shipped: ClassVar[Definition | None] = CNN_TINY

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        return kind == "image" and min(shape[1:]) < LARGE_SIDE


class Rnn(SequenceChain):
    """Stem, branch, block and shortcut of recurrent and other layers: FedorAS's space for text."""

    family: ClassVar[str] = "rnn"
    shipped: ClassVar[Definition | None] = RNN
    tier_rule: ClassVar[TierRule] = TierRule(0.01, 0.77, 4, "macs_paper", parametric_only=True)
    usual_options: ClassVar[Mapping[str, Any]] = {
        "epochs": 5,
        "batch": 4,
        "lr": 1.0,
        "momentum": 0.0,
        "clip": 5.0,
        "comm": "0.83M",
        "models": [100, 150, 150, 150, 100],
        "pool": 32,
        "sample": 16,
    }

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        return kind == "text"


def space_class(file: Path) -> type[Chain]:
    """Returns the space of a package's own TOML file, which an entry point can register.

    The package needs one line, `Mine = space_class(Path(__file__).with_name("mine.toml"))`.
    """
    definition = read_definition(file)
    base: type[Chain] = MapChain
    if definition.is_text:
        base = SequenceChain
    description = f"{definition.name}, a chain of {definition.layers} layers."
    return type(definition.name, (base,), {"shipped": definition, "__doc__": description})


def name_in_file(file: Path) -> str:
    """Returns the name of the space in a TOML file, which holds the whole definition."""
    definition = read_definition(file)
    family = MapChain.family
    if definition.is_text:
        family = SequenceChain.family
    return f"{family}:{definition.to_json()}"
