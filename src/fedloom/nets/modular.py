"""Any network as a pool of modules: several copies of each of its blocks, and ways through them.

A block is what a network is stacked from: its direct children and, where these are only a list,
theirs; a normalisation belongs to the layer before it. A network that holds weights of its own
beside its children, or one tensor under two names, is one block. A route names a copy for every
block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from fedloom.nets.model import Model

COPY = "copies."  # `copies.1.net.classifier.weight` is copy 1 of `net.classifier.weight`
NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)

Route = Sequence[int]


def blocks(model: Model) -> list[list[str]]:
    """The names of the modules of each block."""
    if len(named(model)) > len(named(model, once=True)):
        return [["net"]]  # two blocks could not agree on the copy of what they share
    blocks: list[list[str]] = []
    for name in stacked("net", model.net, True):
        is_norm = isinstance(model.get_submodule(name), NORMS)
        if is_norm and blocks:
            blocks[-1].append(name)
        else:
            blocks.append([name])
    return blocks


def stacked(name: str, part: nn.Module, opened: bool = False) -> Iterator[str]:
    opened = opened or isinstance(part, nn.Sequential | nn.ModuleList)
    kept = part.state_dict()  # buffers too: a normalisation may have nothing else
    if not kept:
        return
    own = any("." not in key for key in kept)
    if own or not opened:
        yield name
        return
    for child, inner in part.named_children():
        yield from stacked(f"{name}.{child}", inner)


def named(part: nn.Module, *, once: bool = False) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; `once`: what has two names by one of them."""
    parameters = part.named_parameters(remove_duplicate=once)
    return {**dict(parameters), **dict(part.named_buffers(remove_duplicate=once))}


def block_of(name: str, groups: Sequence[Sequence[str]]) -> int:
    """Whose block a weight is."""
    for number, group in enumerate(groups):
        for path in group:
            if name.startswith(f"{path}."):
                return number
    raise KeyError(name)


def along(route: Route, name: str, groups: Sequence[Sequence[str]]) -> str:
    """What a weight of the network is called in the pool, on this route."""
    return f"{COPY}{route[block_of(name, groups)]}.{name}"


class Pool(nn.Module):
    """Copies of a network that are used block by block."""

    def __init__(self, copies: Sequence[Model]) -> None:
        super().__init__()
        self.copies = nn.ModuleList(copies)
        self.groups = blocks(copies[0])
        self.factors: Sequence[torch.Tensor] | None = None
        for number, group in enumerate(self.groups):
            copies[0].get_submodule(group[-1]).register_forward_hook(partial(self._scaled, number))

    def forward(
        self, x: torch.Tensor, route: Route, factors: Sequence[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Only the blocks on the route are computed.

        `factors`, one for each block, multiply what the blocks give.
        """
        tensors = named(self)
        frame = self.copies[0]
        used = {name: tensors[along(route, name, self.groups)] for name in frame.state_dict()}
        self.factors = factors
        try:
            scores: torch.Tensor = functional_call(frame, used, (x,))
        finally:
            self.factors = None
        return scores

    def _scaled(self, number: int, part: nn.Module, inputs: Any, output: Any) -> Any:
        if self.factors is None:
            return output
        if isinstance(output, tuple):  # a recurrent layer's outputs, then its last states
            return (output[0] * self.factors[number], *output[1:])
        return output * self.factors[number]
