"""Tracing a run's network into a graph of torch's layers and functions, to write it as a file."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

from fedloom.errors import FedloomError
from fedloom.nets.model import Model
from fedloom.nets.standalone import stands_alone
from fedloom.searchers.guides import ContextGuide, Guided
from fedloom.spaces.choice import Dispatch, Mixture
from fedloom.spaces.mixed import Mixed
from fedloom.spaces.supernet import Supernet

TORCH = "torch.nn.modules."
CONTAINERS = (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Whole(nn.Module):
    """The network from raw samples to scores.

    The normalisation is part of it, and α, if there is one, is constant. `target` is the mean and
    standard deviation of a numerical label: the output is then in the label's own units.
    """

    mean: torch.Tensor
    std: torch.Tensor
    target_mean: torch.Tensor
    target_std: torch.Tensor

    def __init__(self, network: nn.Module, target: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.predicts_numbers = target is not None
        if target is not None:
            self.register_buffer("target_mean", torch.tensor(target[0]))
            self.register_buffer("target_std", torch.tensor(target[1]))
        self.choice: tuple[Mixture | Dispatch, ...] = ()
        if isinstance(network, Guided):
            self.choice = (dispatch_in(network),)
            network = network.model
        if isinstance(network, Mixed):
            self.choice = (network.mixture(list(network.alpha.values())),)
            network = network.model
        self.normalises = isinstance(network, Model) and network.mean.numel() > 0
        if isinstance(network, Model):
            self.register_buffer("mean", network.mean)
            self.register_buffer("std", network.std)
            network = network.net
        self.net = network
        self.eval()

    @property
    def dispatches(self) -> bool:
        """Whether samples take their own paths."""
        return any(isinstance(choice, Dispatch) for choice in self.choice)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.normalises:
            x = (x.to(self.mean.dtype) - self.mean) / self.std
        scores: torch.Tensor = self.net(x, *self.choice)
        if self.predicts_numbers:
            scores = scores * self.target_std + self.target_mean
        return scores


def dispatch_in(guided: Guided) -> Dispatch:
    """The choice of a guided network, whose samplers become submodules of their cells.

    So they are written under the names of their cells. A cell with one operation per edge has
    nothing to choose, and gets no sampler.
    """
    net = guided.model.net
    assert isinstance(net, Supernet)
    guide = guide_of(guided)
    cells = getattr(net, "cells")  # noqa: B009 - a space's networks have them
    samplers: list[nn.Module | None] = []
    for cell, place, sampler in zip(cells, guide.places, guide.samplers.values(), strict=True):
        if all(len(net.arch.choice[slot]) == 1 for slot in place.slots):
            samplers.append(None)
            continue
        cell.add_module("sampler", sampler)
        samplers.append(sampler)
    return Dispatch(samplers)


def guide_of(guided: Guided) -> ContextGuide:
    """The guide that chooses paths. A network that draws paths at random cannot be exported."""
    if guided.draws is not None or not isinstance(guided.guide, ContextGuide):
        rule = "an exported model must take the most likely path"
        advice = "run the method with evaluate=likely"
        raise FedloomError(rule, "this one averages over paths drawn at random", advice)
    return guided.guide


class Layers(fx.Tracer):
    """Traces into everything except torch's own layers, sequences of them, and standalone modules.

    The source of a standalone module is copied into the export.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.Sequential):
            plain = type(m).forward is nn.Sequential.forward  # a subclass may only add names
            return plain and len(m) > 0 and all(self.is_leaf_module(part, "") for part in m)
        return stands_alone(m) or plain_class(m) is not None


def plain_class(part: nn.Module) -> type[nn.Module] | None:
    """The class of torch's that a module is an instance of, perhaps by a subclass.

    None: it is none of torch's layers, or its class overrides `forward`.
    """
    own_class: Any = type(part)
    for kind in own_class.__mro__:
        if kind.__module__.startswith(TORCH) and kind not in CONTAINERS:
            if own_class.forward is kind.forward:
                return kind  # type: ignore[no-any-return]
            return None
    return None


def traced(whole: Whole) -> fx.GraphModule:
    """The graph of a network."""
    tracer = Layers()
    try:
        graph = tracer.trace(whole)
        # Remove unused items of an unpacked tuple. Other unused nodes stay: they might change
        # something in place.
        for node in reversed(graph.nodes):
            if not node.users and node.target in (getattr, operator.getitem):
                graph.erase_node(node)
        return fx.GraphModule(tracer.root, graph)
    except Exception as error:  # a user's network may raise anything while it is traced
        lines = str(error).splitlines() or [type(error).__name__]
        raise unwritable(whole, f"torch.fx cannot follow it ({lines[0]})") from error


def unwritable(whole: nn.Module, reason: str) -> FedloomError:
    name = type(getattr(whole, "net", whole)).__name__
    return FedloomError(
        f"network {name} must be one that can be written as plain torch",
        reason,
        "build its forward from torch's layers and functions, without branches on values",
    )


def first_line(error: Exception) -> str:
    """The first line of an exporter's error message; empty: there is none."""
    lines = str(error).strip().splitlines()
    if not lines:
        return ""
    return lines[0]
