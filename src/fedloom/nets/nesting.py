"""Networks of several widths that lie in one another.

Where every layer of a narrow network is the first channels of the same layer of a wide one, both
can have the same weights: the narrow one's are a part of the wide one's. A recurrent layer keeps
the weights of its gates one below the other, so its part is the first rows of every gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from fedloom.types import Json, Region, Tensors

# What BN remembers. It depends on which channels there are, so it is no part of a wider network's.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
GATES = {nn.LSTM: 4, nn.GRU: 3}

Network = TypeVar("Network")


def nests(network: Network) -> Network:
    """Marks a network's class or function: its narrower networks lie in its wider ones."""
    setattr(network, "is_nested", True)  # noqa: B010 - of any callable
    return network


def is_nested(network: object) -> bool:
    """Whether this class or function was marked so."""
    return bool(getattr(network, "is_nested", False))


def is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS


@dataclass(frozen=True)
class Axis:
    """One dimension of a wide tensor: of each of its `runs`, the first `kept` places are inside."""

    runs: int
    length: int  # of a run
    kept: int

    @property
    def is_whole(self) -> bool:
        return self.kept == self.length

    @property
    def indices(self) -> tuple[int, ...] | None:
        """Of the places that are inside; None: all."""
        if self.is_whole:
            return None
        places: list[int] = []
        for run in range(self.runs):
            begin = run * self.length
            places.extend(range(begin, begin + self.kept))
        return tuple(places)


@dataclass(frozen=True)
class Inside:
    """Where the weights of a narrow network lie in those of a wide one, by name."""

    axes: Mapping[str, tuple[Axis, ...]]

    @classmethod
    def of(cls, narrow: nn.Module, wide: nn.Module) -> Inside:
        """Of all tensors but the statistics of BN."""
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
        """As an order says it. A tensor that is inside as a whole needs no saying."""
        regions: dict[str, Region] = {}
        for name, axes in self.axes.items():
            if not all(axis.is_whole for axis in axes):
                regions[name] = tuple(axis.indices for axis in axes)
        return regions

    def take(self, wide: Tensors) -> dict[str, torch.Tensor]:
        """The narrow network's tensors: copies, or the wide one's own where all of it is inside."""
        taken = {}
        for name, axes in self.axes.items():
            tensor = wide[name]
            if not all(axis.is_whole for axis in axes):
                shape = [axis.runs * axis.kept for axis in axes]
                copy = view_of(tensor, axes).clone(memory_format=torch.contiguous_format)
                tensor = copy.view(shape)
            taken[name] = tensor
        return taken

    @torch.no_grad()
    def put(self, narrow: Tensors, wide: Tensors) -> None:
        """Writes the narrow network's tensors into their places of the wide one's.

        Names that `narrow` lacks keep what they have.
        """
        for name, axes in self.axes.items():
            if name in narrow:
                target = view_of(wide[name].detach(), axes)
                target.copy_(narrow[name].reshape(target.shape))


def gates_in(net: nn.Module) -> dict[str, int]:
    """Of how many gates the tensors of recurrent layers are, by name."""
    gates = {}
    for prefix, module in net.named_modules():
        count = GATES.get(base_of(module))
        if count is None:
            continue
        for name, _ in module.named_parameters(recurse=False):
            gates[f"{prefix}.{name}".removeprefix(".")] = count
    return gates


def base_of(module: nn.Module) -> type[nn.Module]:
    """torch's own class of a recurrent layer; of any other module its own class."""
    for kind in GATES:
        if isinstance(module, kind):
            return kind
    return type(module)


def axes_of(narrow: torch.Size, wide: torch.Size, gates: int) -> tuple[Axis, ...]:
    """The gates lie one below the other in the first dimension."""
    axes = []
    for dimension, (kept, length) in enumerate(zip(narrow, wide, strict=True)):
        runs = 1
        if dimension == 0:
            runs = gates
        axes.append(Axis(runs, length // runs, kept // runs))
    return tuple(axes)


def view_of(tensor: torch.Tensor, axes: tuple[Axis, ...]) -> torch.Tensor:
    """The part of a wide tensor that is inside, with two dimensions for each one that has runs."""
    view = tensor
    place = 0
    for axis in axes:
        if axis.runs > 1:
            view = view.unflatten(place, (axis.runs, axis.length))
            place += 1
        if not axis.is_whole:
            view = view.narrow(place, 0, axis.kept)
        place += 1
    return view


def statistics_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """What its BN remembers, by name."""
    return {name: tensor for name, tensor in net.state_dict().items() if is_statistic(name)}
