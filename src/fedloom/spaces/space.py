"""What a search space is: slots to choose in, and the answers to everything that others ask of one.

A space is one class. It knows its slots and draws, changes, derives and checks architectures. It
builds the network that they are parts of, says what one costs without building it, and how it
looks. Nobody else knows which space it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from fedloom.errors import FedloomError, shortened
from fedloom.nets import MAPS
from fedloom.options import Options
from fedloom.spaces.parameters import parameters_in, values_of
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Arch

if TYPE_CHECKING:
    import numpy as np

    from fedloom.nets.heads import HeadChoice
    from fedloom.spaces.cost_table import CostTable
    from fedloom.spaces.layout import Graph
    from fedloom.spaces.supernet import Supernet

NONE = "none"  # an option of this name computes nothing


class Slot(NamedTuple):
    """One place where a choice is made, and the names of what can be chosen there."""

    name: str
    options: tuple[str, ...]


class OpId(NamedTuple):
    """One operation of one slot; shared by all cells of its kind."""

    slot: int
    op: int


class Size(NamedTuple):
    """How large a space's network is built."""

    cells: int
    channels: int  # of the first cell
    head: HeadChoice = (
        "mean"  # what the classifier sees of the last map; absent where there was no choice yet
    )


class Example(NamedTuple):
    """Samples of this shape, in so many classes."""

    shape: tuple[int, ...]
    classes: int


class Cost(NamedTuple):
    """Of one sample's forward pass."""

    params: int = 0
    macs: int = 0
    activations: int = 0  # elements of every tensor that is made

    def minus(self, other: Cost) -> Cost:
        return Cost(
            params=self.params - other.params,
            macs=self.macs - other.macs,
            activations=self.activations - other.activations,
        )


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of the costs of parts."""
    params = 0
    macs = 0
    activations = 0
    for cost in costs:
        params += cost.params
        macs += cost.macs
        activations += cost.activations
    return Cost(params, macs, activations)


class Rivals(NamedTuple):
    """Slots of which only some stay alive in a derived network: the inputs of one node."""

    slots: tuple[int, ...]
    kept: int


class Space(ABC):
    """The base of every space. `family` is the name that it is registered under."""

    family: ClassVar[str] = ""
    kinds: ClassVar[tuple[str, ...]] = MAPS  # of data that its networks take
    # Whether its networks keep nothing but their tensors, and may serve again.
    refillable: ClassVar[bool] = False
    takes_head: ClassVar[bool] = (
        False  # whether its networks end in a map and do with it what `Size.head` says
    )
    # Whether its networks are as large as the space itself says: `Size.cells` and `Size.channels`
    # then say nothing.
    has_own_size: ClassVar[bool] = False
    usual: ClassVar[Size] = Size(cells=8, channels=16)
    # Whether a search that names no number of cells takes the usual one of this space, not 8.
    searches_usual_cells: ClassVar[bool] = False
    # Where the limits of device tiers lie, if nobody gives them.
    tier_rule: ClassVar[TierRule] = TierRule.usual(2)
    # Options of a method that trains it in its paper's way, unless a run names them.
    usual_options: ClassVar[Mapping[str, Any]] = {}
    # Networks of it that can be named and trained as they are, as "module:attribute": `darts-v2`.
    # Only our own spaces are asked; a package names its networks by entry points.
    networks: ClassVar[Mapping[str, str]] = {}
    # How its papers print an architecture, shortened: an error shows it to who gave something else.
    published_example: ClassVar[str] = ""
    # What makes a network of the rest of a name: of `s2:4:8`, if the name is `supernet:s2:4:8`.
    sized_networks: ClassVar[Mapping[str, str]] = {}
    # Its own parameters, a field each, in the order in which its name has them. Many have none.
    schema: ClassVar[type[Options]] = Options
    # How many of them, at the end, a name may leave out.
    optional_in_name: ClassVar[int] = 0
    # Values of parameters that make it small enough for a test: a method's contract suite searches
    # it with these where the test does not say otherwise.
    tiny: ClassVar[Mapping[str, Any]] = {}
    # Parameters that every run kept, whatever it searched, before spaces declared theirs. Only the
    # default space of that time has some.
    once_kept_by_all: ClassVar[tuple[str, ...]] = ()

    # How the names of tensors begin that a client may fit to its own task, where the network has
    # such a part; the names of their slots begin in the same way.
    personal: ClassVar[tuple[str, ...]] = ()
    # Options that have no convolution: pools, skips.
    light_options: ClassVar[tuple[str, ...]] = ()

    # Its parameters, and its name

    @classmethod
    def configured(cls, parameters: Any) -> Self:
        """The space with these parameters: an instance of its `schema`."""
        return cls(**parameters.model_dump())

    @classmethod
    def named(cls, parameters: str) -> Self:
        """The space with these parameters as a name has them: `s2:4` of `darts:s2:4`."""
        return cls.configured(parameters_in(cls, parameters))

    @property
    def parameters(self) -> str:
        """What `named` makes the same space from."""
        return ":".join(str(value) for value in values_of(self).values())

    @property
    def name(self) -> str:
        if not self.parameters:
            return self.family
        return f"{self.family}:{self.parameters}"

    @property
    def title(self) -> str:
        """What a sentence calls it; its name may hold a whole definition."""
        return self.name

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        """Whether it is the usual space for samples of this kind and shape (`space = auto`)."""
        return False

    @property
    def example(self) -> Example:
        """The data that its tables are for where nobody names others."""
        return Example((3, 32, 32), classes=10)

    def __eq__(self, other: object) -> bool:
        """A name says everything of a space: it is all that an architecture keeps of one."""
        return isinstance(other, Space) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    # Its architectures

    @property
    @abstractmethod
    def slots(self) -> tuple[Slot, ...]: ...

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Arch:
        """A network that could be the result of a search, uniformly."""

    @abstractmethod
    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """A neighbour: one decision drawn anew."""

    @abstractmethod
    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """The network that a strength for every operation of every slot stands for.

        The strength is the softmax of α.
        """

    def full(self) -> Arch:
        """Everything alive: the supernet."""
        choice = []
        for slot in self.slots:
            choice.append(tuple(range(len(slot.options))))
        return Arch(self.name, tuple(choice))

    def bare(self) -> Arch | None:
        """Nothing alive in any slot, if the network can do without; None: it cannot."""
        return None

    def check(self, arch: Arch) -> None:
        """Refuses what does not fit, naming the slot and its options."""
        if arch.space != self.name or len(arch.choice) != len(self.slots):
            found = f"it is of {shortened(arch.space, 80)} with {len(arch.choice)} slots"
            rule = f"an architecture must be of {self.title} with {len(self.slots)} slots"
            raise FedloomError(rule, found, "use its own space")
        for slot, live in zip(self.slots, arch.choice, strict=True):
            unknown = [op for op in live if not 0 <= op < len(slot.options)]
            twice = len(set(live)) != len(live)
            if unknown or twice:
                options = ", ".join(f"{number} {name}" for number, name in enumerate(slot.options))
                rule = f"slot {slot.name} must choose among {options}"
                raise FedloomError(rule, f"got {shortened(repr(list(live)), 80)}", "mend it")

    @classmethod
    def published(cls, raw: Mapping[str, Any]) -> Arch | None:
        """An architecture as this space's papers print it, from JSON.

        None: this is not how they print them.
        """
        return None

    # What a search asks

    def together(self) -> list[tuple[int, ...]]:
        """The slots that a search may decide at one moment.

        An example is the same edge of two kinds of cells.
        """
        return self.one_by_one()

    def one_by_one(self) -> list[tuple[int, ...]]:
        return [(slot,) for slot in range(len(self.slots))]

    def slots_by_cell(self) -> list[range]:
        """The slots of one cell or layer after the other, where none shares its slots."""
        return [range(slot, slot + 1) for slot in range(len(self.slots))]

    def rivals(self) -> list[Rivals]:
        """Where a derived network keeps only some slots. Many spaces keep all."""
        return []

    # Its network, what that costs and how it looks

    @abstractmethod
    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        arch: Arch | None = None,
        affine: bool = False,
    ) -> Supernet:
        """The supernet, or the part of it that `arch` names.

        `affine`: the BN of operations has weights.
        """

    @abstractmethod
    def cost(
        self,
        shape: tuple[int, ...],
        classes: int,
        arch: Arch,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        """Of what `network` would build with the same arguments, by formula."""

    def op_cost(
        self,
        op: OpId,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        """What one operation adds to the supernet, in all cells that share its slot."""
        everything = self.full()
        choice = list(everything.choice)
        choice[op.slot] = tuple(other for other in choice[op.slot] if other != op.op)
        without = Arch(self.name, tuple(choice))
        whole = self.cost(shape, classes, everything, size, affine=affine)
        return whole.minus(self.cost(shape, classes, without, size, affine=affine))

    def cost_table(self, shape: tuple[int, ...], classes: int, size: Size) -> CostTable | None:
        """What every operation costs, where the cost of a path is their sum; None: it is not."""
        return None

    def short_name(self, option: str) -> str:
        """What a table's cell calls an option of a slot."""
        return option

    def graphs(self, arch: Arch) -> list[Graph] | None:
        """Its drawing; None: this space brings none, and its architectures are told in words."""
        return None
