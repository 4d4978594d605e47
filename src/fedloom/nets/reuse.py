"""Networks that a process reuses for many orders, instead of building one for every order.

Building a small network takes longer than a training step of it. So a process that serves many
orders lends the same networks again and again, to each order as if they were new. A network is kept
for the next order only if it is still as it was built: the same modules with the same settings and
no hooks. A network that an order has changed is not reused.

No information may pass from one client to the next: `ReusableNetwork.refill` sets every parameter
and every buffer, including the constants of the input normalisation, clears gradients, and sets
`requires_grad` and the mode. A tensor that nothing fills is an error.
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

MOST_NETWORKS = 8  # that a process keeps
MOST_BYTES = 1 << 28  # of all their tensors together; a single network may be larger
PLAIN = (bool, int, float, str, tuple, type(None))  # types of module settings that are compared
NO_SETTINGS = ("_", "training")  # the prefixes of torch's own attributes

Tensors = Mapping[str, torch.Tensor]


def network(
    key: Hashable, build: Callable[[], nn.Module], weights: Tensors | None, constants: Tensors
) -> nn.Module:
    """Returns the network that `build` builds; if `weights` are given, it may be a reused one.

    `key` holds everything that determines the result of `build`; None: it is built every time.
    `weights` must have all tensors of the state_dict, and may have others. `constants` are the
    buffers that are not in the state_dict.
    """
    cache = ACTIVE_CACHE.get()
    if cache is None or key is None:
        return new_network(build, weights)
    if weights is not None:
        reusable = cache.lend(key)
        if reusable is not None:
            reusable.refill(weights, constants)
            return reusable.net
    net = new_network(build, weights)
    cache.register(key, net)
    return net


def new_network(build: Callable[[], nn.Module], weights: Tensors | None) -> nn.Module:
    net = build()
    if weights is not None:
        copy_into(net.state_dict(), weights)
    return net


@torch.no_grad()
def copy_into(targets: Mapping[str, torch.Tensor], weights: Tensors) -> None:
    """Copies weights to the tensors of the same names, all in one call.

    Weights inside a message have their own `copy_into`, which needs no intermediate copy.
    """
    missing = [name for name in targets if name not in weights]
    if missing:
        raise RuntimeError(f"a network's weights must have {missing[0]}, and these have not")
    direct_copy = getattr(weights, "copy_into", None)
    if direct_copy is not None:
        direct_copy(targets)
    else:
        copy_all(targets, weights)


@dataclass
class NetworkCache:
    """The networks of one process.

    Some are lent to the order that is being served, others wait for the next.
    """

    waiting: list[ReusableNetwork] = field(default_factory=list)  # the least recently used first
    lent: list[ReusableNetwork] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Inside, one order is served, and networks are lent from here.

        After a failed order its networks are dropped: they may be in any state.
        """
        token = ACTIVE_CACHE.set(self)
        try:
            yield
            self._collect()
        finally:
            self.lent.clear()
            ACTIVE_CACHE.reset(token)

    def lend(self, key: Hashable) -> ReusableNetwork | None:
        """Lends a waiting network with this key, until the order is done."""
        for number in reversed(range(len(self.waiting))):
            if self.waiting[number].key == key:
                reusable = self.waiting.pop(number)
                self.lent.append(reusable)
                return reusable
        return None

    def register(self, key: Hashable, net: nn.Module) -> None:
        """Registers a network that was built for this order, so that later ones can reuse it."""
        self.lent.append(ReusableNetwork.of(key, net))

    def _collect(self) -> None:
        self.waiting += [reusable for reusable in self.lent if reusable.is_unchanged()]
        while len(self.waiting) > 1 and not self._fits():
            self.waiting.pop(0)

    def _fits(self) -> bool:
        total_bytes = sum(reusable.size for reusable in self.waiting)
        return len(self.waiting) <= MOST_NETWORKS and total_bytes <= MOST_BYTES


# The cache of the process whose order is being served.
ACTIVE_CACHE: ContextVar[NetworkCache | None] = ContextVar("network cache", default=None)


@dataclass(frozen=True)
class ReusableNetwork:
    """A network, and a description of it when it was built."""

    key: Hashable
    net: nn.Module
    places: tuple[Place, ...]
    modules: tuple[ModuleSnapshot, ...]
    size: int  # the size of its tensors, in bytes

    @classmethod
    def of(cls, key: Hashable, net: nn.Module) -> ReusableNetwork:
        places = tuple(places_in(net))
        size = sum(place.tensor().numel() * place.tensor().element_size() for place in places)
        modules = tuple(ModuleSnapshot(module) for module in net.modules())
        return cls(key, net, places, modules, size)

    def is_unchanged(self) -> bool:
        """Whether it still consists of the same modules with the same settings."""
        modules = tuple(self.net.modules())
        if len(modules) != len(self.modules):
            return False
        for module, built in zip(modules, self.modules, strict=True):
            if module is not built.module or not built.is_unchanged():
                return False
        return True

    @torch.no_grad()
    def refill(self, weights: Tensors, constants: Tensors) -> None:
        """Makes the network as good as new: every tensor is set, by one call per source."""
        state = {}
        other_buffers = {}
        for place in self.places:
            source = weights if place.in_state else constants
            if place.name not in source:
                raise RuntimeError(f"nothing fills {place.name} of a network that served before")
            tensor = place.tensor()
            tensor.grad = None
            tensor.requires_grad_(place.trains)
            if place.in_state:
                state[place.name] = tensor.detach()
            else:
                other_buffers[place.name] = tensor
        copy_into(state, weights)
        copy_into(other_buffers, constants)
        self.net.train()


class Place(NamedTuple):
    """The place of a tensor in a network.

    The tensor is looked up each time, because moving a network may replace it.
    """

    name: str  # its full name in the network
    holder: Mapping[str, torch.Tensor | None]  # the parameters or buffers of its module
    key: str
    in_state: bool  # whether it is in the state_dict
    trains: bool  # whether it is a parameter that needs a gradient

    def tensor(self) -> torch.Tensor:
        tensor = self.holder[self.key]
        assert tensor is not None
        return tensor


def places_in(net: nn.Module) -> Iterator[Place]:
    """Yields all parameters and buffers, even if not in the state_dict, and shared ones once."""
    state = net.state_dict()
    seen: set[int] = set()
    for prefix, module in net.named_modules():
        for holder in (module._parameters, module._buffers):
            for key, tensor in holder.items():
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                name = f"{prefix}.{key}" if prefix else key
                yield Place(name, holder, key, name in state, tensor.requires_grad)


class ModuleSnapshot:
    """A module as it was built, to notice whatever is changed without replacing the module.

    That is its plain attributes, the number of attributes of any kind, its hooks, and the sizes and
    strides of its tensors. It is asked after every order, so what is looked up is settled here.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        attributes = vars(module)
        self.count = len(attributes)
        self.plain: dict[str, object] = {}
        self.hooks = []
        for name, value in attributes.items():
            if name.endswith("_hooks"):
                self.hooks.append((name, len(value)))
            elif isinstance(value, PLAIN) and not name.startswith(NO_SETTINGS):
                self.plain[name] = value
        self.tensors = tensors_of(module)

    def is_unchanged(self) -> bool:
        attributes = vars(self.module)
        if len(attributes) != self.count:
            return False
        for name, hooks in self.hooks:
            if len(attributes.get(name, ())) != hooks:
                return False
        for name, value in self.plain.items():
            present = attributes.get(name)
            if present is not value and (type(present) is not type(value) or present != value):
                return False
        return tensors_of(self.module) == self.tensors


def tensors_of(module: nn.Module) -> list[tuple[object, ...]]:
    """The sizes, strides and types of a module's own parameters and buffers, by name."""
    tensors: list[tuple[object, ...]] = []
    for holder in (module._parameters, module._buffers):
        for key, tensor in holder.items():
            if tensor is None:
                tensors.append((key,))
            else:
                tensors.append((key, tensor.shape, tensor.stride(), tensor.dtype))
    return tensors
