"""What a supernet computes of all that it could.

It is a mixture, a part, or whatever an object answers on the way:

- None: everything that exists, summed.
- `Arch`: only what it names: a mask, or a single path.
- `Mixture`: everything, weighed by a number for every operation of every slot.
- anything else is *asked during the forward pass*, place by place, with what goes into the cell or
  layer; it may answer differently for each sample. It answers with weights of all options, or, if
  it has a method `routes`, with the one option that each sample takes: then a network of edges
  sends every sample through its own operation and through no other (spaces/routing.py).

A network asks for each place's part of a choice with `part_of`, and need not know which kind it was
given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, cast, overload

import torch

from fedloom.errors import FedloomError, shortened
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.space import Slot

GUIDE = "see docs/add-a-space.md, A choice that is asked on the way"


@dataclass(frozen=True)
class Mixture:
    """A weight for every operation of every slot, usually softmax(α)."""

    weights: tuple[torch.Tensor, ...]  # one vector a slot

    @classmethod
    def softmax(cls, alpha: Sequence[torch.Tensor]) -> Mixture:
        return cls(tuple(torch.softmax(row, dim=0) for row in alpha))

    @classmethod
    def softmax_of_live(
        cls, alpha: Sequence[torch.Tensor], arch: Arch, slots: Sequence[Slot]
    ) -> Mixture:
        """The softmax over the options that `arch` has; every other weighs 0.

        A row of α has an entry for each of them, in the order in which `arch` names them. A network
        takes weights by the number of the option, so they are put there.
        """
        rows = []
        for row, live, slot in zip(alpha, arch.choice, slots, strict=True):
            numbers = torch.tensor(live, dtype=torch.int64, device=row.device)
            absent = row.new_zeros(len(slot.options))
            rows.append(absent.scatter(0, numbers, torch.softmax(row, dim=0)))
        return cls(tuple(rows))

    def scales(self, slots: slice) -> list[list[torch.Tensor]]:
        return [list(row.unbind()) for row in self.weights[slots]]


class Place(NamedTuple):
    """A cell or layer of a network. Several may share their slots, as the cells of one kind do."""

    number: int  # in the order of computing
    slots: range  # of the space


class AskedChoice(Protocol):
    """Decides while the network computes.

    It may be a sampler that looks at its input, or a rule of the user's own.
    """

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """For every slot of this place, a weight for each of its options.

        `inputs` is what goes into the cell or layer. A row is [options], the same for the whole
        batch, or [batch, options]: every sample has weights of its own, 0 and 1 if it takes one
        way.
        """
        ...


class Routes(Sequence[Sequence[torch.Tensor]]):
    """The option that every sample takes in every slot of a place, and its factor.

    As a sequence it is the weights of all options, slot by slot: for each option a number a sample,
    its factor where the sample takes it and 0 elsewhere. A network that knows nothing of routes
    computes all options and weighs them so, with the same result.
    """

    def __init__(
        self,
        ops: torch.Tensor,
        factors: torch.Tensor | None,
        options: Sequence[int],
    ) -> None:
        """`ops` [batch, slots]: numbers of options. `factors` [batch, slots]; None: all are 1.

        `options`: how many each slot has.
        """
        self.ops = ops
        self.factors = factors
        self.options = options

    def __len__(self) -> int:
        return len(self.options)

    def factors_of(self, slot: int) -> torch.Tensor | None:
        if self.factors is None:
            return None
        return self.factors[:, slot]

    @overload
    def __getitem__(self, slot: int) -> Sequence[torch.Tensor]: ...

    @overload
    def __getitem__(self, slot: slice) -> Sequence[Sequence[torch.Tensor]]: ...

    def __getitem__(
        self, slot: int | slice
    ) -> Sequence[torch.Tensor] | Sequence[Sequence[torch.Tensor]]:
        if isinstance(slot, slice):
            return [self[number] for number in range(len(self))[slot]]
        weights = []
        for option in range(self.options[slot]):
            taken = self.ops[:, slot] == option
            if self.factors is None:
                weights.append(taken.to(torch.get_default_dtype()))
            else:
                weights.append(self.factors[:, slot] * taken)
        return weights


class RoutedChoice(Protocol):
    """Decides while the network computes, one option for every sample."""

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        """For every sample and every slot of this place, the option that is taken."""
        ...


@dataclass(frozen=True)
class DispatchedOps:
    """The option that every sample takes, [batch, slots]: values, or steps for later.

    None: there is one option in every slot of this place.
    """

    ops: Any


class Dispatch:
    """Routes that can be written down: what each sample takes is computed, not looked at.

    A network that is given one can be followed by torch.fx. `samplers` are asked place by place;
    None: there is nothing to choose at that place.
    """

    def __init__(self, samplers: Sequence[Any]) -> None:
        self.samplers = samplers

    def ops_of(self, place: Place, inputs: Sequence[Any]) -> DispatchedOps:
        sampler = self.samplers[place.number]
        if sampler is None:
            return DispatchedOps(None)
        return DispatchedOps(sampler(*inputs).argmax(dim=-1))


Choice = Mixture | Arch | AskedChoice | RoutedChoice | Dispatch | None


def is_asked(choice: Choice) -> TypeGuard[AskedChoice | RoutedChoice]:
    """Whether it decides on the way, instead of being known before."""
    return not (choice is None or isinstance(choice, Mixture | Arch | Dispatch))


def is_routed(choice: object) -> TypeGuard[RoutedChoice]:
    """Whether it says for every sample which one option it takes."""
    return callable(getattr(choice, "routes", None))


@dataclass(frozen=True)
class CheckedChoice:
    """An asked choice whose every answer must fit the slots that it is for."""

    choice: AskedChoice
    options: tuple[int, ...]  # how many there are in every slot of the space

    @classmethod
    def of(
        cls, choice: AskedChoice | RoutedChoice, slots: Sequence[Slot]
    ) -> CheckedChoice | CheckedRoutes:
        if is_routed(choice):
            return CheckedRoutes(choice, tuple(len(slot.options) for slot in slots))
        if not callable(getattr(choice, "weights", None)):
            rule = "a choice must be None, an Arch, a Mixture or an object with a method `weights`"
            raise FedloomError(rule, f"got {shortened(repr(choice), 80)}", GUIDE)
        return cls(cast(AskedChoice, choice), tuple(len(slot.options) for slot in slots))

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        rows: object = self.choice.weights(place, inputs)
        answer = f"what a choice answers for place {place.number}"
        rule = f"{answer} must have {len(place.slots)} rows, one a slot"
        if not isinstance(rows, Sequence):
            raise FedloomError(rule, f"it is {shortened(repr(rows), 80)}", GUIDE)
        if len(rows) != len(place.slots):
            raise FedloomError(rule, f"it has {len(rows)}", GUIDE)
        for slot, row in zip(place.slots, rows, strict=True):
            self._check_row(slot, row, batch=len(inputs[0]))
        return rows

    def _check_row(self, slot: int, row: object, batch: int) -> None:
        count = self.options[slot]
        shapes = f"[{count}] or [batch, {count}]"
        rule = f"what a choice answers for slot {slot} must be a tensor of {shapes} weights"
        if not isinstance(row, torch.Tensor):
            raise FedloomError(rule, f"it is {shortened(repr(row), 80)}", GUIDE)
        if tuple(row.shape) not in ((count,), (batch, count)):
            found = f"its shape is {list(row.shape)}, for a batch of {batch}"
            raise FedloomError(rule, found, GUIDE)


@dataclass(frozen=True)
class CheckedRoutes:
    """A routed choice whose every answer must fit the slots that it is for."""

    choice: RoutedChoice
    options: tuple[int, ...]

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        routes: object = self.choice.routes(place, inputs)
        answer = f"what a routed choice answers for place {place.number}"
        if not isinstance(routes, Routes):
            rule = f"{answer} must be Routes"
            raise FedloomError(rule, f"it is {shortened(repr(routes), 80)}", GUIDE)
        wanted = (len(inputs[0]), len(place.slots))
        for tensor in (routes.ops, routes.factors):
            if tensor is not None and tuple(tensor.shape) != wanted:
                rule = f"{answer} must be of shape {list(wanted)}, a number a sample and slot"
                raise FedloomError(rule, f"its shape is {list(tensor.shape)}", GUIDE)
        limits = torch.tensor(self.options[place.slots.start : place.slots.stop])
        ops = routes.ops.cpu()
        if bool(((ops < 0) | (ops >= limits)).any()):
            rule = f"{answer} must be numbers of options"
            found = f"they go from {int(ops.min())} to {int(ops.max())}"
            raise FedloomError(rule, found, GUIDE)
        return routes


# The weight of every option of every slot; None: 1.
Scales = Sequence[Sequence[torch.Tensor]] | None
# Which options of every slot are computed; None: all that exist.
Live = Sequence[Sequence[int]] | None


class Part(NamedTuple):
    """What one place computes of all that it could."""

    scales: Scales = None
    live: Live = None


def part_of(choice: Choice, place: Place, inputs: Sequence[Any]) -> Part:
    """One place's part of a choice; a choice that wants to be asked is asked here."""
    if choice is None:
        return Part()
    if isinstance(choice, Dispatch):
        return Part(scales=cast(Any, choice.ops_of(place, inputs)))
    first = place.slots.start
    last = place.slots.stop
    if isinstance(choice, Mixture):
        return Part(scales=choice.scales(slice(first, last)))
    if isinstance(choice, Arch):
        return Part(live=choice.choice[first:last])
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        needs = "needs the values themselves, not steps for later"
        raise TypeError(f"a choice that is asked on the way {needs}")
    if is_routed(choice):
        return Part(scales=choice.routes(place, inputs))
    asked = cast(AskedChoice, choice)
    return Part(scales=scales_of(asked.weights(place, inputs)))


def scales_of(answer: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """An answer as a cell takes it: for every slot and option a number, or a number a sample."""
    return [list(row.unbind(dim=-1)) for row in answer]
