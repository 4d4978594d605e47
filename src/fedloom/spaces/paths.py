"""Networks of consecutive layers, and paths through them: one operation per layer.

Such a network can be run layer by layer, so that paths with a common beginning share it:

    state = net.begin(x)
    for layer, op in enumerate(path):
        state = net.layer(layer, op, state)   # a state that is kept can be continued twice
    scores = net.finish(state)

The result equals `net(x, arch)` to the bit.
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
    """The state between two layers."""

    entry: Value  # the input of the next layer
    total: Value = None  # the sum of the results of the layers before it that read the same input


class PathNetwork(Supernet):
    """A supernet whose slot number n is its layer number n."""

    def begin(self, x: Value, run: Run = now) -> Passing:
        """Computes everything before the first layer."""
        raise NotImplementedError

    def through(self, number: int, part: Part, state: Passing, run: Run = now) -> Passing:
        """Computes this part of one layer."""
        raise NotImplementedError

    def finish(self, state: Passing, run: Run = now) -> Value:
        """Computes the scores from the result of the last layer."""
        raise NotImplementedError

    def layer(self, number: int, op: int, state: Passing) -> Passing:
        """Computes one layer of a path, with its operation number `op`."""
        return self.through(number, Part(live=((op,),)), state)

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        return self.finish(self.up_to_the_end(run, x, choice), run)

    def up_to_the_end(self, run: Run, x: Value, choice: Choice) -> Passing:
        """Computes all layers, but not the scores."""
        state = self.begin(x, run)
        for number in range(len(self.space.slots)):
            part = part_of(choice, Place(number, range(number, number + 1)), (state.entry,))
            state = self.through(number, part, state, run)
        return state


class EveryPosition(ABC):
    """A network over symbols that can predict the next symbol at every position of a window."""

    @abstractmethod
    def every_position(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        """Returns scores [samples, symbols, classes]; a forward pass returns only the last ones."""


def training_scores(net: nn.Module, x: torch.Tensor, *choice: Any) -> torch.Tensor:
    """Returns the scores for a training loss.

    They are the scores of every position, [samples, symbols, classes], if the network can compute
    them, and otherwise those of its forward pass, [samples, classes].
    """
    if isinstance(net, Model) and isinstance(net.net, EveryPosition):
        return net.net.every_position(net.normalised(x), *choice)
    scores: torch.Tensor = net(x, *choice)
    return scores


def path_of(space: Space, names: Sequence[str]) -> Arch:
    """Returns the architecture with these operations, one name per slot."""
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
    """Returns the names of a path's operations; several operations in one slot are an error."""
    space.check(arch)
    names = []
    for slot, live in zip(space.slots, arch.choice, strict=True):
        if len(live) != 1:
            rule = "a path must have one operation per layer"
            problem = f"layer {slot.name} has {len(live)}"
            raise FedloomError(rule, problem, "choose one of them")
        names.append(slot.options[live[0]])
    return tuple(names)


def check_operations(space: Space, names: Sequence[str]) -> None:
    """Refuses an operation that no layer of the space has, and suggests its nearest match."""
    operations: set[str] = set()
    for slot in space.slots:
        operations.update(slot.options)
    for name in names:
        if name not in operations:
            raise unknown(f"an operation of {shortened(space.title, 80)}", name, operations)


def scale_of(part: Part, op: int) -> Any:
    """Returns the weight of an operation in a layer's mixture; None means 1."""
    if part.scales is None:
        return None
    return part.scales[0][op]


def is_live(part: Part, op: int) -> bool:
    return part.live is None or op in part.live[0]
