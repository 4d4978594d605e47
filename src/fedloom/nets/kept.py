"""Networks that a process keeps and fills again, instead of building one for every order.

Building a small network takes longer than a training step of it. So a process that serves many
orders lends the same networks again and again, to each order as if they were new. A network waits
for its next order only if it still is what was built: the same modules with the same settings and
no hooks. Whoever changed one keeps it to himself.

Nothing may pass from one client to the next: `Kept.refill` sets every parameter and every buffer,
the constants of the input included, clears gradients and sets `requires_grad` and the mode. A
tensor that nothing fills is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from fedloom.copying import copy_all

MOST_NETWORKS = 8  # that wait in a process for their next order
MOST_BYTES = 1 << 28  # of their tensors, all together; one network may be larger, and waits alone
PLAIN = (bool, int, float, str, tuple, type(None))  # settings of a module that can be compared
NO_SETTINGS = ("_", "training")  # how the names of attributes begin that are torch's own

Tensors = Mapping[str, torch.Tensor]


class Place(NamedTuple):
    """Where a tensor of a network is held.

    It is asked for each time, because moving a network may replace it.
    """

    name: str  # in the whole network
    holder: Mapping[str, torch.Tensor | None]  # a module's own parameters or buffers
    key: str
    in_state: bool  # whether state_dict has it
    trains: bool  # whether it is a parameter that wants a gradient

    def tensor(self) -> torch.Tensor:
        tensor = self.holder[self.key]
        assert tensor is not None
        return tensor


@dataclass(frozen=True)
class Kept:
    """A network, and what it was when it was built."""

    key: Hashable
    net: nn.Module
    places: tuple[Place, ...]
    modules: tuple[tuple[nn.Module, tuple[object, ...]], ...]  # each with its settings
    size: int  # of its tensors, in bytes

    @classmethod
    def of(cls, key: Hashable, net: nn.Module) -> Kept:
        places = tuple(places_in(net))
        size = sum(place.tensor().numel() * place.tensor().element_size() for place in places)
        modules = tuple((module, settings_of(module)) for module in net.modules())
        return cls(key, net, places, modules, size)

    def is_unchanged(self) -> bool:
        """Whether it still consists of the same modules with the same settings."""
        now = tuple(self.net.modules())
        if len(now) != len(self.modules):
            return False
        for module, (before, settings) in zip(now, self.modules, strict=True):
            if module is not before or settings_of(module) != settings:
                return False
        return True

    @torch.no_grad()
    def refill(self, weights: Tensors, constants: Tensors) -> None:
        """As if it were new: every tensor is set, by one call for all of them."""
        for place in self.places:
            given = weights if place.in_state else constants
            if place.name not in given:
                raise RuntimeError(f"nothing fills {place.name} of a network that served before")
            tensor = place.tensor()
            tensor.grad = None
            tensor.requires_grad_(place.trains)
        copy_into(
            {place.name: place.tensor().detach() for place in self.places if place.in_state},
            weights,
        )
        copy_into(
            {place.name: place.tensor() for place in self.places if not place.in_state}, constants
        )
        self.net.train()


def places_in(net: nn.Module) -> Iterator[Place]:
    """All parameters and buffers, those too that the state_dict does not have; shared ones once."""
    own = net.state_dict()
    seen: set[int] = set()
    for prefix, module in net.named_modules():
        for holder in (module._parameters, module._buffers):
            for key, tensor in holder.items():
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                name = f"{prefix}.{key}" if prefix else key
                yield Place(name, holder, key, name in own, tensor.requires_grad)


def settings_of(module: nn.Module) -> tuple[object, ...]:
    """What can be set without replacing a module.

    That is its plain attributes, how many there are of any kind, hooks, and the sizes and strides
    of its tensors.
    """
    attributes = vars(module)
    settings: list[object] = [len(attributes)]
    for name, value in attributes.items():
        if name.endswith("_hooks"):
            settings.append(len(value))
        elif isinstance(value, PLAIN) and not name.startswith(NO_SETTINGS):
            settings.append((name, value))
    for holder in (module._parameters, module._buffers):
        for key, tensor in holder.items():
            settings.append(
                None if tensor is None else (key, tensor.shape, tensor.stride(), tensor.dtype)
            )
    return tuple(settings)


@dataclass
class Lender:
    """The networks of one process.

    Some are lent to the order that is being served, others wait for the next.
    """

    waiting: list[Kept] = field(default_factory=list)  # the longest unused first
    lent: list[Kept] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While one order is served, networks are lent from here.

        An order that failed may have left them in any state.
        """
        token = LENDER.set(self)
        try:
            yield
            self._take_back()
        finally:
            self.lent.clear()
            LENDER.reset(token)

    def find(self, key: Hashable) -> Kept | None:
        """One that waits under this key. Until the order is done, nobody else gets it."""
        for number in reversed(range(len(self.waiting))):
            if self.waiting[number].key == key:
                kept = self.waiting.pop(number)
                self.lent.append(kept)
                return kept
        return None

    def keep(self, key: Hashable, net: nn.Module) -> None:
        """A network that was built for this order, and may serve the next."""
        self.lent.append(Kept.of(key, net))

    def _take_back(self) -> None:
        self.waiting += [kept for kept in self.lent if kept.is_unchanged()]
        while len(self.waiting) > 1 and not self._fits():
            self.waiting.pop(0)

    def _fits(self) -> bool:
        held = sum(kept.size for kept in self.waiting)
        return len(self.waiting) <= MOST_NETWORKS and held <= MOST_BYTES


# Of the order that is being served.
LENDER: ContextVar[Lender | None] = ContextVar("lender", default=None)


def network(
    key: Hashable, build: Callable[[], nn.Module], weights: Tensors | None, constants: Tensors
) -> nn.Module:
    """The network that `build` makes; with the given weights it may be one that served before.

    `key` says everything that decides what `build` makes; None: it is built anew every time.
    `weights` must have all tensors of the state_dict, and may have others. `constants` are the
    buffers that are not in it.
    """
    lender = LENDER.get()
    if lender is None or key is None:
        return built(build, weights)
    if weights is not None:
        kept = lender.find(key)
        if kept is not None:
            kept.refill(weights, constants)
            return kept.net
    net = built(build, weights)
    lender.keep(key, net)
    return net


def built(build: Callable[[], nn.Module], weights: Tensors | None) -> nn.Module:
    net = build()
    if weights is not None:
        copy_into(net.state_dict(), weights)
    return net


@torch.no_grad()
def copy_into(targets: Mapping[str, torch.Tensor], weights: Tensors) -> None:
    """By one call for all of them.

    Weights that lie in a message know how to go there without a copy in between.
    """
    missing = [name for name in targets if name not in weights]
    if missing:
        raise RuntimeError(f"a network's weights must have {missing[0]}, and these have not")
    straight = getattr(weights, "copy_into", None)
    if straight is not None:
        straight(targets)
    else:
        copy_all(targets, weights)
