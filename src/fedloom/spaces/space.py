"""The base class of search spaces: slots to choose in, and everything other code asks about them.

A space is one class. It knows its slots, and samples, mutates, derives and checks architectures. It
builds the network that they are parts of, computes their cost without building them, and draws
them. No other code knows which space it works with.
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
    """A place where one or more options are chosen, and the names of its options."""

    name: str
    options: tuple[str, ...]


class OpId(NamedTuple):
    """One operation of one slot. All cells of the same kind share it."""

    slot: int
    op: int


class Size(NamedTuple):
    """The size of a space's network."""

    cells: int
    channels: int  # of the first cell
    # What the classifier sees of the last map. Files from before there was a choice lack it.
    head: HeadChoice = "mean"


class Example(NamedTuple):
    """The shape of example samples, and their number of classes."""

    shape: tuple[int, ...]
    classes: int


class Cost(NamedTuple):
    """The cost of one sample's forward pass."""

    params: int = 0
    macs: int = 0
    activations: int = 0  # elements of all tensors that are created

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
    """Slots of which a derived network keeps only some: the inputs of one node."""

    slots: tuple[int, ...]
    kept: int


class Space(ABC):
    """The base class of every space. `family` is the name that it is registered under."""

    family: ClassVar[str] = ""
    kinds: ClassVar[tuple[str, ...]] = MAPS  # the kinds of data that its networks take
    # Whether its networks hold no state besides their tensors, and can be reused.
    refillable: ClassVar[bool] = False
    # Whether its networks end in a map, to which they apply `Size.head`.
    takes_head: ClassVar[bool] = False
    # Whether the space itself fixes the size of its networks. `Size.cells` and `Size.channels` are
    # then ignored.
    has_own_size: ClassVar[bool] = False
    usual: ClassVar[Size] = Size(cells=8, channels=16)
    # Whether a search without a number of cells uses this space's usual number instead of 8.
    searches_usual_cells: ClassVar[bool] = False
    # The limits of device tiers, if none are given.
    tier_rule: ClassVar[TierRule] = TierRule.usual(2)
    # Method options with which the space's paper trains, unless a run sets them.
    usual_options: ClassVar[Mapping[str, Any]] = {}
    # Its networks that can be named and trained as they are, as "module:attribute": `darts-v2`.
    # Only built-in spaces are asked; a package registers its networks by entry points.
    networks: ClassVar[Mapping[str, str]] = {}
    # How its papers print an architecture, shortened. The error for an unreadable file shows it.
    published_example: ClassVar[str] = ""
    # By prefix, the function that builds a network from the rest of a name: from `s2:4:8`, if the
    # name is `supernet:s2:4:8`.
    sized_networks: ClassVar[Mapping[str, str]] = {}
    # Its own parameters, one field each, in the order of its name. Many spaces have none.
    schema: ClassVar[type[Options]] = Options
    # How many parameters at the end of a name may be left out.
    optional_in_name: ClassVar[int] = 0
    # Parameter values that make it small enough for tests. A method's contract suite searches it
    # with these values unless the test sets others.
    tiny: ClassVar[Mapping[str, Any]] = {}
    # Parameters that every run stored, whatever space it searched, before spaces declared their
    # own. Only the default space of that time has some.
    once_kept_by_all: ClassVar[tuple[str, ...]] = ()

    # The prefixes of the names of tensors that a client may fit to its own task, if the network has
    # such a part. The names of their slots have the same prefixes.
    personal: ClassVar[tuple[str, ...]] = ()
    # Options without a convolution: pools and skip connections.
    light_options: ClassVar[tuple[str, ...]] = ()

    # Its parameters and its name

    @classmethod
    def configured(cls, parameters: Any) -> Self:
        """Returns the space with these parameters, which are an instance of its `schema`."""
        return cls(**parameters.model_dump())

    @classmethod
    def named(cls, parameters: str) -> Self:
        """Returns the space with the parameters in a name: `s2:4` in `darts:s2:4`."""
        return cls.configured(parameters_in(cls, parameters))

    @property
    def parameters(self) -> str:
        """The text from which `named` returns the same space."""
        return ":".join(str(value) for value in values_of(self).values())

    @property
    def name(self) -> str:
        if not self.parameters:
            return self.family
        return f"{self.family}:{self.parameters}"

    @property
    def title(self) -> str:
        """The space's name in sentences. `name` may hold a whole definition."""
        return self.name

    @classmethod
    def suits(cls, kind: str, shape: tuple[int, ...]) -> bool:
        """Whether it is the usual space for samples of this kind and shape (`space = auto`)."""
        return False

    @property
    def example(self) -> Example:
        """The data that its tables describe unless other data are named."""
        return Example((3, 32, 32), classes=10)

    def __eq__(self, other: object) -> bool:
        """Spaces with the same name are equal: an architecture stores only its space's name."""
        return isinstance(other, Space) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    # Its architectures

    @property
    @abstractmethod
    def slots(self) -> tuple[Slot, ...]: ...

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Arch:
        """Samples, uniformly, an architecture that could be the result of a search."""

    @abstractmethod
    def mutate(self, arch: Arch, rng: np.random.Generator) -> Arch:
        """Returns a neighbour of `arch`, with one decision redrawn."""

    @abstractmethod
    def derive(self, strength: Sequence[np.ndarray]) -> Arch:
        """Returns the architecture that the strengths of all operations of all slots imply.

        The strengths are the softmax of α.
        """

    def full(self) -> Arch:
        """Returns the supernet as an architecture: all options of all slots are alive."""
        choice = []
        for slot in self.slots:
            choice.append(tuple(range(len(slot.options))))
        return Arch(self.name, tuple(choice))

    def bare(self) -> Arch | None:
        """Returns the architecture with no option alive in any slot; None: it is not possible."""
        return None

    def check(self, arch: Arch) -> None:
        """Refuses an architecture that does not fit, and names the slot and its options."""
        if arch.space != self.name or len(arch.choice) != len(self.slots):
            problem = f"it is of {shortened(arch.space, 80)} with {len(arch.choice)} slots"
            rule = f"an architecture must be of {self.title} with {len(self.slots)} slots"
            raise FedloomError(rule, problem, "use its own space")
        for slot, live in zip(self.slots, arch.choice, strict=True):
            unknown = [op for op in live if not 0 <= op < len(slot.options)]
            twice = len(set(live)) != len(live)
            if unknown or twice:
                options = ", ".join(f"{number} {name}" for number, name in enumerate(slot.options))
                rule = f"slot {slot.name} must choose among {options}"
                raise FedloomError(rule, f"got {shortened(repr(list(live)), 80)}", "fix it")

    @classmethod
    def published(cls, raw: Mapping[str, Any]) -> Arch | None:
        """Reads, from JSON, an architecture in the form that this space's papers print.

        None: the JSON does not have that form.
        """
        return None

    def resized(self, arch: Arch, width: float) -> Arch | None:
        """Returns the same operations with `width` times the channels, if the space fixes its size.

        The result is an architecture of another space, whose definition has these channels. None:
        there is no such space. It is not called for spaces whose channels come from `Size`.
        """
        return None

    # What a search asks

    def together(self) -> list[tuple[int, ...]]:
        """Returns groups of slots that a search may decide at the same time.

        An example is the same edge of two kinds of cells.
        """
        return self.one_by_one()

    def one_by_one(self) -> list[tuple[int, ...]]:
        return [(slot,) for slot in range(len(self.slots))]

    def slots_by_cell(self) -> list[range]:
        """Returns the slots of each cell or layer, if no two of them share slots."""
        return [range(slot, slot + 1) for slot in range(len(self.slots))]

    def rivals(self) -> list[Rivals]:
        """Returns groups of slots of which a derived network keeps only some. Many have none."""
        return []

    # Its network, the network's cost and its drawing

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
        """Builds the supernet, or the part of it that `arch` names.

        With `affine`, the BN of operations has weights.
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
        """Returns, by formula, the cost of what `network` would build with these arguments."""

    def op_cost(
        self,
        op: OpId,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        *,
        affine: bool = False,
    ) -> Cost:
        """Returns what one operation adds to the supernet's cost, in all cells with its slot."""
        everything = self.full()
        choice = list(everything.choice)
        choice[op.slot] = tuple(other for other in choice[op.slot] if other != op.op)
        without = Arch(self.name, tuple(choice))
        whole = self.cost(shape, classes, everything, size, affine=affine)
        return whole.minus(self.cost(shape, classes, without, size, affine=affine))

    def cost_table(self, shape: tuple[int, ...], classes: int, size: Size) -> CostTable | None:
        """Returns the cost of every operation; None: the cost of a path is not their sum."""
        return None

    def short_name(self, option: str) -> str:
        """Returns the short name of an option, for cells of tables."""
        return option

    def graphs(self, arch: Arch) -> list[Graph] | None:
        """Returns the drawing of an architecture; None: it is described in text instead."""
        return None
