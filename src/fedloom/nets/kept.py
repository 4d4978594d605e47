"""Networks that a process keeps and fills again, instead of building one for every order.

Building a small network takes longer than a training step of it. So a process that serves many orders lends the same
networks again and again, to each order as if they were new. A network waits for its next order only if it still is what
was built: the same modules with the same settings and no hooks. Whoever changed one keeps it to himself.

Nothing may pass from one client to the next: `refill` sets every parameter and every buffer, constants of the input
included, clears gradients and sets `requires_grad` and the mode. A tensor that nothing fills is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import nn

MOST_NETWORKS = 8  # that wait in a process for their next order
MOST_BYTES = 1 << 28  # of their tensors, all together; one network may be larger, and waits alone
PLAIN = (bool, int, float, str, tuple, type(None))  # settings of a module that can be compared
OWN_OF_TORCH = ("_", "training")  # how the names of attributes begin that are no settings

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Kept:
    """A network, and what it was when it was built."""

    key: Hashable
    net: nn.Module
    trainable: Mapping[str, bool]
    modules: tuple[nn.Module, ...]
    settings: object
    size: int  # of its tensors, in bytes

    @classmethod
    def of(cls, key: Hashable, net: nn.Module) -> Kept:
        trainable = {name: parameter.requires_grad for name, parameter in net.named_parameters()}
        size = sum(tensor.numel() * tensor.element_size() for tensor in all_tensors(net).values())
        return cls(key, net, trainable, tuple(net.modules()), settings_of(net), size)

    def is_unchanged(self) -> bool:
        modules = tuple(self.net.modules())
        if len(modules) != len(self.modules):
            return False
        same = all(now is before for now, before in zip(modules, self.modules, strict=True))
        return same and settings_of(self.net) == self.settings


@dataclass
class Lender:
    """The networks of one process: some are lent to the order that is being served, others wait for the next."""

    waiting: list[Kept] = field(default_factory=list)  # the longest unused first
    lent: list[Kept] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While one order is served, networks are lent from here. An order that failed may have left them anyhow."""
        token = LENDER.set(self)
        try:
            yield
            self._take_back()
        finally:
            self.lent.clear()
            LENDER.reset(token)

    def find(self, key: Hashable) -> nn.Module | None:
        """One that waits under this key. Until the order is done, nobody else gets it."""
        for number in reversed(range(len(self.waiting))):
            if self.waiting[number].key == key:
                kept = self.waiting.pop(number)
                self.lent.append(kept)
                return kept.net
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


LENDER: ContextVar[Lender | None] = ContextVar("lender", default=None)  # of the order that is being served


def network(key: Hashable, build: Callable[[], nn.Module], weights: Tensors | None, constants: Tensors) -> nn.Module:
    """The network that `build` makes; with the given weights it may be one that served before.

    `key` says everything that decides what `build` makes; None: it is built anew every time. `weights` must have all
    tensors of the state_dict, and may have others. `constants` are the buffers that are not in it.
    """
    lender = LENDER.get()
    if lender is None or key is None:
        return built(build, weights, constants)
    net = None if weights is None else lender.find(key)
    if net is None:
        net = built(build, weights, constants)
        lender.keep(key, net)
        return net
    assert weights is not None
    refill(net, weights, constants, lender.lent[-1].trainable)
    return net


def built(build: Callable[[], nn.Module], weights: Tensors | None, constants: Tensors) -> nn.Module:
    net = build()
    if weights is not None:
        net.load_state_dict({name: weights[name] for name in net.state_dict()})
    for name, buffer in buffers_outside_the_state(net).items():
        if name in constants:
            buffer.copy_(constants[name])
    return net


@torch.no_grad()
def refill(net: nn.Module, weights: Tensors, constants: Tensors, trainable: Mapping[str, bool]) -> None:
    """As if it were new: every tensor is set, by one call for all of them."""
    targets, values = [], []
    own = net.state_dict()
    for name, target in all_tensors(net).items():
        given = weights if name in own else constants
        if name not in given:
            raise RuntimeError(f"nothing fills {name} of a network that served before")
        if given[name].shape != target.shape:
            raise RuntimeError(f"{name} must have the shape {list(target.shape)}, got {list(given[name].shape)}")
        targets.append(target)
        values.append(given[name].to(target.dtype))
    torch._foreach_copy_(targets, values)
    for name, parameter in net.named_parameters():
        parameter.grad = None
        parameter.requires_grad_(trainable[name])
    net.train()


def all_tensors(net: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer, those that are not in the state_dict too, by name."""
    tensors: dict[str, torch.Tensor] = {name: parameter.detach() for name, parameter in net.named_parameters()}
    tensors.update(net.named_buffers())
    return tensors


def buffers_outside_the_state(net: nn.Module) -> dict[str, torch.Tensor]:
    own = net.state_dict()
    return {name: buffer for name, buffer in net.named_buffers() if name not in own}


def settings_of(net: nn.Module) -> list[object]:
    """Of every module what can be set without replacing it: plain attributes, the number of hooks, sizes of tensors."""
    settings: list[object] = []
    for module in net.modules():
        plain = {}
        for name, value in vars(module).items():
            if isinstance(value, PLAIN) and not name.startswith(OWN_OF_TORCH):
                plain[name] = value
        hooks = sum(len(value) for name, value in vars(module).items() if name.endswith("_hooks"))
        settings.append((type(module), plain, hooks))
    for name, tensor in all_tensors(net).items():
        settings.append((name, tensor.shape, tensor.dtype, tensor.stride()))
    return settings
