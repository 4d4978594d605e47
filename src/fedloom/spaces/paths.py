"""Networks of layers that follow one another, and paths through them: an operation a layer.

Such a network can be run layer by layer. Paths that begin alike share what they have in common:

    state = net.begin(x)
    for layer, op in enumerate(path):
        state = net.layer(layer, op, state)   # one that is kept can be gone on from twice
    scores = net.finish(state)

That gives the bits of `net(x, arch)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from fedloom.errors import FedloomError, shortened, unknown
from fedloom.nets.model import Model
from fedloom.spaces.choice import Choice, Part, Place, part_of
from fedloom.spaces.edges import Run, Value, now
from fedloom.spaces.space import Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch


class Passing(NamedTuple):
    """What goes from layer to layer."""

    entry: Value  # what the next layer reads
    total: Value = None  # the sum of the layers before it that read the same


class PathNetwork(Supernet):
    """A supernet whose slot number n is its layer number n."""

    def begin(self, x: Value, run: Run = now) -> Passing:
        """Up to the first layer."""
        raise NotImplementedError

    def through(self, number: int, part: Part, state: Passing, run: Run = now) -> Passing:
        """One layer, computing this part of it."""
        raise NotImplementedError

    def finish(self, state: Passing, run: Run = now) -> Value:
        """From the last layer to the scores."""
        raise NotImplementedError

    def layer(self, number: int, op: int, state: Passing) -> Passing:
        """One layer of a path, which takes operation number `op`."""
        return self.through(number, Part(live=((op,),)), state)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        return self.finish(self.up_to_the_end(run, x, choice), run)

    def up_to_the_end(self, run: Run, x: Value, choice: Choice) -> Passing:
        """Behind the last layer."""
        state = self.begin(x, run)
        for number in range(len(self.space.slots)):
            part = part_of(choice, Place(number, range(number, number + 1)), (state.entry,))
            state = self.through(number, part, state, run)
        return state


class EveryPosition(ABC):
    """A network over symbols that can foretell the next one at every position of a window."""

    @abstractmethod
    def every_position(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        """Scores [samples, symbols, classes]; the last of each are those of a forward pass."""


def training_scores(net: nn.Module, x: torch.Tensor, *choice: Any) -> torch.Tensor:
    """The scores that a training loss is taken of.

    They are those of every position, [samples, symbols, classes], where a network can tell them,
    and those of its forward pass, [samples, classes], everywhere else.
    """
    if isinstance(net, Model) and isinstance(net.net, EveryPosition):
        return net.net.every_position(net.normalised(x), *choice)
    scores: torch.Tensor = net(x, *choice)
    return scores


def path_of(space: Space, names: Sequence[str]) -> Arch:
    """The architecture that takes these operations, one a slot, by name."""
    slots = space.slots
    if len(names) != len(slots):
        rule = f"a path through {shortened(space.title, 80)} must have {len(slots)} operations"
        raise FedloomError(rule, f"it has {len(names)}", "name one for every layer")
    choice = []
    for slot, name in zip(slots, names, strict=True):
        if name not in slot.options:
            raise unknown(f"an operation of layer {slot.name}", name, slot.options)
        choice.append((slot.options.index(name),))
    return Arch(space.name, tuple(choice))


def names_on(space: Space, arch: Arch) -> tuple[str, ...]:
    """The operations of a path, by name; of a part that has several in a slot, an error."""
    space.check(arch)
    names = []
    for slot, live in zip(space.slots, arch.choice, strict=True):
        if len(live) != 1:
            rule = "a path must have one operation a layer"
            found = f"layer {slot.name} has {len(live)}"
            raise FedloomError(rule, found, "choose one of them")
        names.append(slot.options[live[0]])
    return tuple(names)


def check_operations(space: Space, names: Sequence[str]) -> None:
    """Refuses an operation that no layer of the space has, with its nearest match."""
    known: set[str] = set()
    for slot in space.slots:
        known.update(slot.options)
    for name in names:
        if name not in known:
            raise unknown(f"an operation of {shortened(space.title, 80)}", name, known)


def scale_of(part: Part, op: int) -> Any:
    """The weight of an operation in a layer's mixture; None: 1."""
    if part.scales is None:
        return None
    return part.scales[0][op]


def is_live(part: Part, op: int) -> bool:
    return part.live is None or op in part.live[0]
