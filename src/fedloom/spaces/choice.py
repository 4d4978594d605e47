"""The choice that a supernet computes under: which of its operations, and with which weights.

- None: the sum of all operations that exist.
- `Arch`: only the operations that it names: a mask, or a single path.
- `Mixture`: all operations, weighted by one number for every operation of every slot.
- Any other object is *asked during the forward pass*, place by place, with the inputs of the cell
  or layer. It may answer differently for each sample. It returns weights of all options or, if it
  has a method `routes`, the one option that each sample takes: then a network of edges sends every
  sample through that operation only (spaces/routing.py).

A network gets each place's part of a choice from `part_of`, and need not know which kind of choice
it was given.
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

GUIDE = "see docs/add-a-space.md, A choice that is asked during the forward pass"


@dataclass(frozen=True)
class Mixture:
    """A weight for every operation of every slot, usually softmax(α)."""

    weights: tuple[torch.Tensor, ...]  # one vector per slot

    @classmethod
    def softmax(cls, alpha: Sequence[torch.Tensor]) -> Mixture:
        return cls(tuple(torch.softmax(row, dim=0) for row in alpha))

    @classmethod
    def softmax_of_live(
        cls, alpha: Sequence[torch.Tensor], arch: Arch, slots: Sequence[Slot]
    ) -> Mixture:
        """The softmax over the options that `arch` has; all other options get weight 0.

        A row of α has one entry for each option of `arch`, in the order in which `arch` names them.
        A network indexes weights by the number of the option, so they are scattered to it.
        """
        rows = []
        for row, live, slot in zip(alpha, arch.choice, slots, strict=True):
            live_options = torch.tensor(live, dtype=torch.int64, device=row.device)
            zeros = row.new_zeros(len(slot.options))
            rows.append(zeros.scatter(0, live_options, torch.softmax(row, dim=0)))
        return cls(tuple(rows))

    def scales(self, slots: slice) -> list[list[torch.Tensor]]:
        return [list(row.unbind()) for row in self.weights[slots]]


class Place(NamedTuple):
    """A cell or layer of a network. Several may share their slots, as the cells of one kind do."""

    number: int  # in the order in which they are computed
    slots: range  # numbers of the space's slots


class AskedChoice(Protocol):
    """A choice that decides during the forward pass.

    It may be a sampler that looks at its input, or a rule that the user wrote.
    """

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Returns, for every slot of this place, a weight for each of its options.

        `inputs` are the inputs of the cell or layer. A row has the shape [options], the same for
        the whole batch, or [batch, options]: every sample has its own weights, which are 0 and 1
        if it takes a single option.
        """
        ...


class Routes(Sequence[Sequence[torch.Tensor]]):
    """The option that every sample takes in every slot of a place, and its factor.

    As a sequence, it holds the weights of all options, slot by slot: for each option one number per
    sample, which is its factor where the sample takes the option and 0 elsewhere. A network that
    knows nothing of routes computes all options with these weights, and gets the same result.
    """

    def __init__(
        self,
        ops: torch.Tensor,
        factors: torch.Tensor | None,
        options: Sequence[int],
    ) -> None:
        """`ops` [batch, slots] are numbers of options; `factors` [batch, slots], None: all are 1.

        `options` is the number of options of each slot.
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
            takes_option = self.ops[:, slot] == option
            if self.factors is None:
                weights.append(takes_option.to(torch.get_default_dtype()))
            else:
                weights.append(self.factors[:, slot] * takes_option)
        return weights


class RoutedChoice(Protocol):
    """A choice that decides during the forward pass, with one option for every sample."""

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        """Returns the option that every sample takes in every slot of this place."""
        ...


@dataclass(frozen=True)
class DispatchedOps:
    """The option that every sample takes, [batch, slots]: values, or a tracer's proxies for them.

    None: every slot of this place has one option.
    """

    ops: Any


class Dispatch:
    """Routes for tracing: the option that each sample takes is computed, and never read as a value.

    torch.fx can therefore trace a network under it. `samplers` has an entry for each place; None:
    there is nothing to choose at that place.
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
    """Whether the choice decides during the forward pass, instead of being known before it."""
    return not (choice is None or isinstance(choice, Mixture | Arch | Dispatch))


def is_routed(choice: object) -> TypeGuard[RoutedChoice]:
    """Whether the choice names, for every sample, the one option that it takes."""
    return callable(getattr(choice, "routes", None))


@dataclass(frozen=True)
class CheckedChoice:
    """An asked choice whose every answer is checked against the slots that it is for."""

    choice: AskedChoice
    options: tuple[int, ...]  # the number of options of every slot of the space

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
        rule = f"{answer} must have {len(place.slots)} rows, one per slot"
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
            problem = f"its shape is {list(row.shape)}, for a batch of {batch}"
            raise FedloomError(rule, problem, GUIDE)


@dataclass(frozen=True)
class CheckedRoutes:
    """A routed choice whose every answer is checked against the slots that it is for."""

    choice: RoutedChoice
    options: tuple[int, ...]

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        routes: object = self.choice.routes(place, inputs)
        answer = f"what a routed choice answers for place {place.number}"
        if not isinstance(routes, Routes):
            rule = f"{answer} must be Routes"
            raise FedloomError(rule, f"it is {shortened(repr(routes), 80)}", GUIDE)
        expected = (len(inputs[0]), len(place.slots))
        for tensor in (routes.ops, routes.factors):
            if tensor is not None and tuple(tensor.shape) != expected:
                rule = f"{answer} must be of shape {list(expected)}, a number per sample and slot"
                raise FedloomError(rule, f"its shape is {list(tensor.shape)}", GUIDE)
        limits = torch.tensor(self.options[place.slots.start : place.slots.stop])
        ops = routes.ops.cpu()
        if bool(((ops < 0) | (ops >= limits)).any()):
            rule = f"{answer} must be numbers of options"
            problem = f"they range from {int(ops.min())} to {int(ops.max())}"
            raise FedloomError(rule, problem, GUIDE)
        return routes


# The weight of every option of every slot; None: 1.
Scales = Sequence[Sequence[torch.Tensor]] | None
# Which options of every slot are computed; None: all that exist.
Live = Sequence[Sequence[int]] | None


class Part(NamedTuple):
    """The part of a choice that concerns one place."""

    scales: Scales = None
    live: Live = None


def part_of(choice: Choice, place: Place, inputs: Sequence[Any]) -> Part:
    """Returns one place's part of a choice. An asked choice is asked here."""
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
        needs = "needs the values themselves, not steps that are computed later"
        raise TypeError(f"a choice that is asked during the forward pass {needs}")
    if is_routed(choice):
        return Part(scales=choice.routes(place, inputs))
    asked = cast(AskedChoice, choice)
    return Part(scales=scales_of(asked.weights(place, inputs)))


def scales_of(answer: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Splits an answer by slot and option: each entry is one number, or one number per sample."""
    return [list(row.unbind(dim=-1)) for row in answer]
