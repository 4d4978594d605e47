"""Supernets of cells as methods use them: built from options, weighed by α, cut by an architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.nets import MAPS
from fedloom.nets.model import Model, check_kind, seeded
from fedloom.options import Options
from fedloom.rng import key, torch_rng
from fedloom.spaces import Slot
from fedloom.spaces.cells.space import MOST_NODES, CellSpace
from fedloom.spaces.nasbench201.net import BenchNetwork
from fedloom.spaces.nasbench201.space import NasBench201
from fedloom.spaces.supernet import MOST_CELLS, MOST_CHANNELS, CellNetwork, Mixture, OpId, Supernet
from fedloom.types import ALPHA, Arch, Json, Task, Tensors

SPREAD = 1e-3  # of the first α


class CellOptions(Options):
    """The space and the size of the supernet."""

    space: Literal["darts", "nasbench201"] = Field("darts", description="which cells are searched")
    ops: str = Field("full", description="darts: op set full, s1, s2, s3, s4 or s5")
    cells: int = Field(
        8, ge=1, le=MOST_CELLS, description="cells of the network (nasbench201: of each of its three stages)"
    )
    nodes: int = Field(4, ge=1, le=MOST_NODES, description="darts: intermediate nodes of a cell")
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of the first cell")


def space_for(options: CellOptions) -> CellSpace | NasBench201:
    return NasBench201() if options.space == "nasbench201" else CellSpace(options.ops, options.nodes)


def cell_model(
    task: Task, options: CellOptions, *, arch: Arch | None = None, weights: Tensors | None = None, affine: bool = False
) -> Model:
    """The supernet, or the part of it that `arch` names; as the seed makes it, or with the given weights."""
    space, classes = space_for(options), len(task.labels)
    check_kind(f"the search space {options.space}", task.kind, MAPS, "use a method that trains a fixed network")
    with seeded(key(task.seed, "init")):
        if isinstance(space, CellSpace):
            net: Supernet = CellNetwork(
                task.shape, classes, space, cells=options.cells, channels=options.channels, arch=arch, affine=affine
            )
        else:
            net = BenchNetwork(
                task.shape, classes, cells=options.cells, channels=options.channels, arch=arch, affine=affine
            )
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs do not know it
    model = Model(net, task.mean, task.std)
    if weights is not None:
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


def plain(model: Model) -> Model:
    """The same as plain torch, without a choice left in it."""
    assert isinstance(model.net, Supernet)
    model.net = model.net.cut(model.net.arch)
    return model


def fresh_alpha(options: CellOptions, seed: int) -> dict[str, torch.Tensor]:
    generator = torch_rng(seed, "alpha")
    slots = space_for(options).slots
    return {
        alpha_key(n, slot): SPREAD * torch.randn(len(slot.options), generator=generator) for n, slot in enumerate(slots)
    }


def alpha_key(number: int, slot: Slot) -> str:
    """`alpha/003.normal.1-3`: names sort as the space lists its slots."""
    return f"{ALPHA}{number:03d}.{slot.name}"


def alpha_in(tensors: Tensors) -> dict[str, torch.Tensor]:
    """α by name, in the order of the slots."""
    return {name.removeprefix(ALPHA): tensors[name] for name in sorted(tensors) if name.startswith(ALPHA)}


class Mixed(nn.Module):
    """A supernet whose every edge is the mixture that α says."""

    def __init__(self, model: Model, alpha: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.model, self.alpha = model, dict(alpha)

    @classmethod
    def of(cls, task: Task, options: CellOptions, tensors: Tensors) -> Mixed:
        return cls(cell_model(task, options, weights=tensors), alpha_in(tensors))

    def mix(self, x: torch.Tensor, alpha: Sequence[torch.Tensor]) -> torch.Tensor:
        scores: torch.Tensor = self.model(x, Mixture.softmax(alpha))
        return scores

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x, [row.to(x.device) for row in self.alpha.values()])

    def owner(self, name: str) -> OpId | None:
        assert isinstance(self.model.net, Supernet)
        return self.model.net.owner(name.removeprefix("model.").removeprefix("net."))

    @property
    def architecture(self) -> Json:
        """What would be derived now."""
        assert isinstance(self.model.net, Supernet)
        strength = [torch.softmax(row, dim=0).numpy() for row in self.alpha.values()]
        return self.model.net.space.derive(strength).to_plain()
