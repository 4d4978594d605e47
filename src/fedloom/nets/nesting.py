"""Nested networks: the weights of a narrow network are a part of those of a wide one.

Every layer of the narrow network consists of the first channels of the same layer of the wide one.
A recurrent layer stores the weights of its gates one below the other, so its part is the first rows
of every gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from fedloom.types import Json, Region, Tensors

# The running statistics of BN. They depend on which channels exist, so a narrow network's are not a
# part of the wide one's.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
GATES = {nn.LSTM: 4, nn.GRU: 3}

Network = TypeVar("Network")


def nests(network: Network) -> Network:
    """Marks a network's class or function: its narrow networks are nested in its wide ones."""
    setattr(network, "is_nested", True)  # noqa: B010 - on any callable
    return network


def is_nested(network: object) -> bool:
    """Whether this class or function is marked with `nests`."""
    return bool(getattr(network, "is_nested", False))


def is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS


@dataclass(frozen=True)
class Axis:
    """One dimension of a wide tensor. The first `kept` places of each of its `runs` are inside."""

    runs: int
    length: int  # the length of a run
    kept: int

    @property
    def is_whole(self) -> bool:
        return self.kept == self.length

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The indices of the places that are inside; None: all are."""
        if self.is_whole:
            return None
        places: list[int] = []
        for run in range(self.runs):
            begin = run * self.length
            places.extend(range(begin, begin + self.kept))
        return tuple(places)


@dataclass(frozen=True)
class Inside:
    """The places of a narrow network's weights in those of a wide network, by name."""

    axes: Mapping[str, tuple[Axis, ...]]

    @classmethod
    def of(cls, narrow: nn.Module, wide: nn.Module) -> Inside:
        """Returns the places of all tensors except the statistics of BN."""
        gates = gates_in(wide)
        wide_tensors = wide.state_dict()
        axes: dict[str, tuple[Axis, ...]] = {}
        for name, tensor in narrow.state_dict().items():
            if not is_statistic(name):
                runs = gates.get(name, 1)
                axes[name] = axes_of(tensor.shape, wide_tensors[name].shape, runs)
        return cls(axes)

    def to_plain(self) -> Json:
        plain = {}
        for name, axes in self.axes.items():
            plain[name] = [[axis.runs, axis.length, axis.kept] for axis in axes]
        return plain

    @classmethod
    def from_plain(cls, raw: Mapping[str, Json]) -> Inside:
        axes: dict[str, tuple[Axis, ...]] = {}
        for name, rows in raw.items():
            axes[name] = tuple(Axis(*row) for row in rows)
        return cls(axes)

    def region(self) -> dict[str, Region]:
        """Returns the places as an order states them, without tensors that are wholly inside."""
        regions: dict[str, Region] = {}
        for name, axes in self.axes.items():
            if not all(axis.is_whole for axis in axes):
                regions[name] = tuple(axis.indices for axis in axes)
        return regions

    def take(self, wide: Tensors) -> dict[str, torch.Tensor]:
        """Returns the narrow network's tensors: copies or, if wholly inside, the wide tensors."""
        narrow = {}
        for name, axes in self.axes.items():
            tensor = wide[name]
            if not all(axis.is_whole for axis in axes):
                shape = [axis.runs * axis.kept for axis in axes]
                copy = view_of(tensor, axes).clone(memory_format=torch.contiguous_format)
                tensor = copy.view(shape)
            narrow[name] = tensor
        return narrow

    @torch.no_grad()
    def put(self, narrow: Tensors, wide: Tensors) -> None:
        """Writes the narrow network's tensors to their places in the wide network's.

        Tensors that `narrow` lacks are not changed.
        """
        for name, axes in self.axes.items():
            if name not in narrow or is_same_memory(narrow[name], wide[name]):
                continue
            target = view_of(wide[name].detach(), axes)
            target.copy_(narrow[name].reshape(target.shape))


def is_same_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether `take` returned the wide network's own tensor, which needs no copy.

    torch refuses to copy a tensor onto itself if a layer of one channel has unusual strides.
    """
    return tensor is other or tensor.data_ptr() == other.data_ptr() != 0


def gates_in(net: nn.Module) -> dict[str, int]:
    """Returns the number of gates in each tensor of recurrent layers, by name."""
    gates = {}
    for prefix, module in net.named_modules():
        count = GATES.get(base_of(module))
        if count is None:
            continue
        for name, _ in module.named_parameters(recurse=False):
            gates[f"{prefix}.{name}".removeprefix(".")] = count
    return gates


def base_of(module: nn.Module) -> type[nn.Module]:
    """Returns torch's class of a recurrent layer, or the class of any other module."""
    for kind in GATES:
        if isinstance(module, kind):
            return kind
    return type(module)


def axes_of(narrow: torch.Size, wide: torch.Size, gates: int) -> tuple[Axis, ...]:
    """Returns the axes of a tensor. Gates are one below the other in the first dimension."""
    axes = []
    for dimension, (kept, length) in enumerate(zip(narrow, wide, strict=True)):
        runs = 1
        if dimension == 0:
            runs = gates
        axes.append(Axis(runs, length // runs, kept // runs))
    return tuple(axes)


def view_of(tensor: torch.Tensor, axes: tuple[Axis, ...]) -> torch.Tensor:
    """Returns a view of the part that is inside; a dimension with runs becomes two dimensions."""
    view = tensor
    dimension = 0
    for axis in axes:
        if axis.runs > 1:
            view = view.unflatten(dimension, (axis.runs, axis.length))
            dimension += 1
        if not axis.is_whole:
            view = view.narrow(dimension, 0, axis.kept)
        dimension += 1
    return view


def statistics_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the running statistics of a network's BN, by name."""
    return {name: tensor for name, tensor in net.state_dict().items() if is_statistic(name)}
