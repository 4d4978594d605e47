"""Chains with one fault each, which the contract suite must find."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from fedloom.options import Options
from fedloom.registry import from_file
from fedloom.spaces.choice import Mixture
from fedloom.spaces.layout import Graph
from fedloom.spaces.ops import Step
from fedloom.spaces.space import Cost, OpId, Rivals, Slot
from fedloom.types import Arch

CHAIN = f"{Path(__file__).parents[2]}/docs/examples/chain.py"
Chain = from_file(f"{CHAIN}:Chain")
ChainNetwork = from_file(f"{CHAIN}:ChainNetwork")
Operation = from_file(f"{CHAIN}:Operation")
OPTIONS = from_file(f"{CHAIN}:OPTIONS")
Sized = from_file(f"{Path(__file__).with_name('sized.py')}:Sized")


def with_network(network):
    """A chain whose network is another one."""

    class Changed(Chain):
        def network(self, shape, classes, size, *, arch=None, affine=False):
            return network(self, shape, classes, size, arch, affine)

    return Changed


# Its architectures


class Nameless(Chain):
    """Its name does not say how deep it is."""

    parameters = ""

    @classmethod
    def named(cls, parameters):
        return cls(int(parameters or 2))


class Aimless(Chain):
    """Has a parameter that does nothing."""

    class Parameters(Chain.schema):
        colour: Literal["red", "blue"] = Field("red", description="of nothing")

    schema = Parameters
    colour = "red"

    @classmethod
    def configured(cls, parameters):
        return cls(parameters.depth)

    @classmethod
    def named(cls, parameters):
        return cls(int(parameters.partition(":")[0]))


class Untold(Chain):
    """Says nothing of its parameter."""

    class Parameters(Options):
        depth: int = 2

    schema = Parameters


class Deeper(Chain):
    """Takes another depth than it is told."""

    @classmethod
    def configured(cls, parameters):
        return cls(parameters.depth + 1)

    @classmethod
    def named(cls, parameters):
        return cls(int(parameters))


class Favouring(Chain):
    """Never draws its last option."""

    def sample(self, rng):
        return Arch(
            self.name, tuple((int(rng.integers(len(OPTIONS) - 1)),) for _ in range(self.depth))
        )


class Leaning(Chain):
    """Draws its last option once in a hundred times."""

    def sample(self, rng):
        choice = [
            (int(rng.choice(len(OPTIONS), p=(0.495, 0.495, 0.01))),) for _ in range(self.depth)
        ]
        return Arch(self.name, tuple(choice))


class Foreign(Chain):
    """Draws what is not there."""

    def sample(self, rng):
        return Arch(self.name, ((len(OPTIONS),),) * self.depth)


class Restless(Chain):
    """Changes two layers at a time."""

    def mutate(self, arch, rng):
        shifted = tuple(((live[0] + 1) % len(OPTIONS),) for live in arch.choice[:2])
        return Arch(self.name, (*shifted, *arch.choice[2:]))


class Dicing(Chain):
    """Mutates by draws that nobody can repeat."""

    def mutate(self, arch, rng):
        return super().mutate(arch, np.random.default_rng())


class Idle(Chain):
    """Changes nothing."""

    def mutate(self, arch, rng):
        return arch


class Stubborn(Chain):
    """Derives the same, whatever was found."""

    def derive(self, strength):
        return Arch(self.name, ((0,),) * self.depth)


class Greedy(Chain):
    """Says that only one of its layers stays, and derives all."""

    def rivals(self):
        return [Rivals(tuple(range(self.depth)), 1)]


class Forgetful(Chain):
    """Leaves a slot out when it says what goes together."""

    def together(self):
        return self.one_by_one()[1:]


class Counted(Chain):
    """Names a rival that is no slot."""

    def rivals(self):
        return [Rivals((self.depth,), 1)]


class Undrawable(Chain):
    """Raises instead of drawing."""

    def graphs(self, arch):
        raise KeyError("no drawing")


class Crooked(Chain):
    """Draws a cell with a state that has no name."""

    def graphs(self, arch):
        return [Graph("chain", ("input",), 1, ((0, 5, ("conv3",), 0),))]


class Typed(Chain):
    """Takes only what it made itself, which nothing out of a file is."""

    def sample(self, rng):
        return Made(self.name, super().sample(rng).choice)

    def full(self):
        return Made(self.name, super().full().choice)


class Made(Arch):
    def __eq__(self, other):
        return isinstance(other, Made) and super().__eq__(other)

    def __hash__(self):
        return super().__hash__()


class Anonymous(Chain):
    """Builds another network when it is asked for one part alone, outside of a supernet."""

    def network(self, shape, classes, size, *, arch=None, affine=False):
        channels = size.channels if self is self.first() else size.channels + 1
        return super().network(
            shape, classes, size._replace(channels=channels), arch=arch, affine=affine
        )

    def first(self):
        return KNOWN.setdefault(self.name, self)


KNOWN: dict[str, Anonymous] = {}


# Its networks


class Unread(ChainNetwork):
    """Its scores do not follow from the samples."""

    def flow(self, run, x, choice):
        return super().flow(run, run(torch.zeros_like, x), choice)


class Infinite(ChainNetwork):
    """Its scores are no numbers."""

    def flow(self, run, x, choice):
        return run(torch.mul, super().flow(run, x, choice), float("nan"))


class Stuck(ChainNetwork):
    """A mask is not obeyed."""

    def flow(self, run, x, choice):
        return super().flow(run, x, None if isinstance(choice, Arch) else choice)


class Direct(ChainNetwork):
    """Computes a step without its `run`."""

    def flow(self, run, x, choice):
        return super().flow(run, torch.tanh(x), choice)


class Deaf(ChainNetwork):
    """Asks once for the whole batch, and takes the first sample's answer for all."""

    def flow(self, run, x, choice):
        if choice is not None and not isinstance(choice, Arch | Mixture):
            choice = FirstSample(choice)
        return super().flow(run, x, choice)


class FirstSample:
    def __init__(self, choice):
        self.choice = choice

    def weights(self, place, inputs):
        return [
            row if row.dim() == 1 else row[:1].expand_as(row)
            for row in self.choice.weights(place, inputs)
        ]


class Twisted(ChainNetwork):
    """Reads an answer backwards."""

    def flow(self, run, x, choice):
        if choice is not None and not isinstance(choice, Arch | Mixture):
            choice = Backwards(choice)
        return super().flow(run, x, choice)


class Backwards:
    def __init__(self, choice):
        self.choice = choice

    def weights(self, place, inputs):
        return [row.flip(-1) for row in self.choice.weights(place, inputs)]


class Recounting(ChainNetwork):
    """Its supernet counts every step of training, its parts do not."""

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("steps", torch.zeros(()))

    def flow(self, run, x, choice):
        scores = super().flow(run, run(torch.add, x, self.steps), choice)
        if self.training and isinstance(choice, Arch):
            self.steps += 1
        return scores


class Halved(ChainNetwork):
    """Without a choice it computes half of what is alive."""

    def flow(self, run, x, choice):
        if choice is None and self.arch == self.space.full():
            choice = Arch(self.space.name, ((0, 1),) * self.space.depth)
        return super().flow(run, x, choice)


class Ownerless(ChainNetwork):
    """Says that the last layer's weights are everybody's."""

    def owner(self, key):
        return None if key.startswith("layers.2.") else super().owner(key)


class Swapped(ChainNetwork):
    """Two operations of a layer have each other's weights."""

    def owner(self, key):
        owner = super().owner(key)
        if owner is None or owner.op == 0:
            return owner
        return OpId(owner.slot, 3 - owner.op)


class Lost(ChainNetwork):
    """Names an owner that does not exist."""

    def owner(self, key):
        owner = super().owner(key)
        return None if owner is None else OpId(owner.slot, 7)


class Entangled(ChainNetwork):
    """A 1×1 convolution is only computed where there is a 3×3 one."""

    def flow(self, run, x, choice):
        if isinstance(choice, Arch):
            choice = Arch(
                choice.space, tuple(live if 2 in live else (0,) for live in choice.choice)
            )
        return super().flow(run, x, choice)


class Mislabelled(Operation):
    def step(self, channels):
        return Step(self.name, stride=2, outputs=channels)


class Misnamed(ChainNetwork):
    """Its operations tell a latency table of a stride that they do not have."""

    def __init__(self, *args):
        super().__init__(*args)
        for layer in self.layers:
            for name in layer:
                operation = Mislabelled(name, self.size.channels)
                operation.load_state_dict(layer[name].state_dict())
                layer[name] = operation


unread, stuck, direct, deaf, twisted, halved = map(
    with_network, (Unread, Stuck, Direct, Deaf, Twisted, Halved)
)
infinite = with_network(Infinite)
ownerless, swapped, entangled, misnamed = map(
    with_network, (Ownerless, Swapped, Entangled, Misnamed)
)
recounting = with_network(Recounting)
lost = with_network(Lost)


# What it costs


class Cheap(Chain):
    """Forgets the bias of its classifier."""

    def cost(self, shape, classes, arch, size, *, affine=False):
        cost = super().cost(shape, classes, arch, size, affine=affine)
        return cost._replace(params=cost.params - classes)


class Lazy(Chain):
    """Forgets the products of its stem."""

    def cost(self, shape, classes, arch, size, *, affine=False):
        cost = super().cost(shape, classes, arch, size, affine=affine)
        return cost._replace(macs=cost.macs - 1)


class Light(Chain):
    """Forgets a tensor."""

    def cost(self, shape, classes, arch, size, *, affine=False):
        cost = super().cost(shape, classes, arch, size, affine=affine)
        return cost._replace(activations=cost.activations - 1)


class Free(Chain):
    """Its operations cost nothing."""

    def op_cost(self, op, shape, classes, size, *, affine=False):
        return Cost()


# What a run refuses before it begins


class Empty(Chain):
    """A layer without options."""

    @property
    def slots(self):
        return (*super().slots[1:], Slot("layer.last", ()))


class Slotless(Chain):
    @property
    def slots(self):
        return ()


class Dangling(ChainNetwork):
    """No option of its first layer has a say in the scores."""

    def flow(self, run, x, choice):
        if isinstance(choice, Mixture):
            choice = Mixture((choice.weights[0].detach(), *choice.weights[1:]))
        return super().flow(run, x, choice)


class Muted(ChainNetwork):
    """The same, though its first layer is computed with weights."""

    def flow(self, run, x, choice):
        if isinstance(choice, Mixture):
            choice = Mixture((0 * choice.weights[0] + 1, *choice.weights[1:]))
        return super().flow(run, x, choice)


class Wide(ChainNetwork):
    """Gives a score more than there are classes."""

    def __init__(self, space, shape, classes, size, arch, affine):
        super().__init__(space, shape, classes + 1, size, arch, affine)


class Raising(ChainNetwork):
    def flow(self, run, x, choice):
        raise ZeroDivisionError("nothing to divide by")


class Demanding(Chain):
    """Cannot be made of a method's options."""

    @classmethod
    def configured(cls, options):
        return cls(options.length)


class Plain(Chain):
    """Its network is no supernet."""

    def network(self, shape, classes, size, *, arch=None, affine=False):
        return nn.Linear(1, classes)


class Textual(Chain):
    """For text alone."""

    kinds = ("text",)


class Spoken(Chain):
    """For speech alone, which is no fault."""

    kinds = ("speech",)


# Answers of another type than was asked for


class Unmade(Chain):
    @classmethod
    def configured(cls, options):
        return None


class Schemeless(Chain):
    schema = {"depth": 3}


class Clashing(Chain):
    """Has a parameter that every method has as an option."""

    class Parameters(Chain.schema):
        cells: int = Field(3, description="of itself")

    schema = Parameters


class Kindless(Chain):
    kinds = 5


class Sizeless(Chain):
    usual = 8


class Countable(Chain):
    slots = 5


class Worded(Chain):
    slots = ("layer.0", "layer.1")


class Lettered(Chain):
    """Forgets the comma behind its only option."""

    slots = (Slot("layer.0", ("conv3")),)


class Sevenfold(ChainNetwork):
    def owner(self, key):
        return 7


class Partly(ChainNetwork):
    def owner(self, key):
        return key.partition(".")[0]


class Imagining(Chain):
    def sample(self, rng):
        return [0, 1, 2]


class Leaving(Chain):
    """Ends the process instead of answering."""

    @classmethod
    def configured(cls, options):
        raise SystemExit(7)


# Answers that do not fit each other


class Scattered(Chain):
    """Says that slots go together of which one does not exist."""

    def together(self):
        return [(0, 1), (2, 7)]


class Renamed(Chain):
    """Its name is not made of its parameters."""

    name = "chain"


class Priceless(Chain):
    def cost(self, shape, classes, arch, size, *, affine=False):
        return None


class Costly(Chain):
    def cost(self, shape, classes, arch, size, *, affine=False):
        return arch.price


sevenfold = with_network(Sevenfold)
partly = with_network(Partly)
dangling, muted, raising, wide = map(with_network, (Dangling, Muted, Raising, Wide))
function = with_network


# The same for FedorAS, and what it alone asks


class SizedEmpty(Sized, Empty):
    pass


class SizedUnread(Sized, unread):
    pass


class SizedRaising(Sized, raising):
    pass


class SizedSwapped(Sized, swapped):
    pass


class SizedTextual(Sized, Textual):
    pass


class SizedSizeless(Sized, Chain):
    usual = 8


class Tableless(Sized, Chain):
    def cost_table(self, shape, classes, size):
        return {}


class ShortTable(Sized, Chain):
    """Its table lacks a layer."""

    def cost_table(self, shape, classes, size):
        table = super().cost_table(shape, classes, size)
        return type(table)(table.fixed, table.rows[1:])


class RaisingTable(Sized, Chain):
    def cost_table(self, shape, classes, size):
        raise ZeroDivisionError("nothing to divide by")


class Whole(Sized, Chain):
    """Its network cannot be run layer by layer."""

    network = Chain.network
