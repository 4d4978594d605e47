"""Turns any network into a pool of modules: several copies of each block, and routes through them.

The blocks of a network are its direct children or, if a child is only a list, that child's own
children. A normalisation belongs to the layer before it. A network that has weights outside its
children, or one tensor under two names, is a single block. A route names a copy for every block.
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
    """Returns the names of the modules of each block."""
    if len(named_tensors(model)) > len(named_tensors(model, once=True)):
        return [["net"]]  # two blocks could use different copies of the tensor that they share
    blocks: list[list[str]] = []
    for name in block_modules("net", model.net, is_list=True):
        is_norm = isinstance(model.get_submodule(name), NORMS)
        if is_norm and blocks:
            blocks[-1].append(name)
        else:
            blocks.append([name])
    return blocks


def block_modules(name: str, module: nn.Module, is_list: bool = False) -> Iterator[str]:
    """Yields the names of the modules in `module` that form blocks; lists are opened."""
    is_list = is_list or isinstance(module, nn.Sequential | nn.ModuleList)
    state = module.state_dict()  # including buffers: a normalisation may have nothing else
    if not state:
        return
    has_direct_tensors = any("." not in key for key in state)
    if has_direct_tensors or not is_list:
        yield name
        return
    for child_name, child in module.named_children():
        yield from block_modules(f"{name}.{child_name}", child)


def named_tensors(module: nn.Module, *, once: bool = False) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers by name; with `once`, a tensor with two names only once."""
    parameters = module.named_parameters(remove_duplicate=once)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=once))}


def block_of(name: str, groups: Sequence[Sequence[str]]) -> int:
    """Returns the number of the block that a weight belongs to."""
    for number, group in enumerate(groups):
        for path in group:
            if name.startswith(f"{path}."):
                return number
    raise KeyError(name)


def along(route: Route, name: str, groups: Sequence[Sequence[str]]) -> str:
    """Returns the name in the pool of a network's weight, on this route."""
    return f"{COPY}{route[block_of(name, groups)]}.{name}"


class Pool(nn.Module):
    """Copies of a network whose blocks can be combined."""

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
        """Computes only the blocks on the route.

        The outputs of the blocks are multiplied by `factors`, one for each block.
        """
        tensors = named_tensors(self)
        frame = self.copies[0]
        route_tensors = {}
        for name in frame.state_dict():
            route_tensors[name] = tensors[along(route, name, self.groups)]
        self.factors = factors
        try:
            scores: torch.Tensor = functional_call(frame, route_tensors, (x,))
        finally:
            self.factors = None
        return scores

    def _scaled(self, number: int, module: nn.Module, inputs: Any, output: Any) -> Any:
        if self.factors is None:
            return output
        if isinstance(output, tuple):  # a recurrent layer's outputs, then its last states
            return (output[0] * self.factors[number], *output[1:])
        return output * self.factors[number]
