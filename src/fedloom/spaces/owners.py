"""Finds the operation that owns each tensor of a supernet, without allocating its weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch

from fedloom.spaces.space import OpId, Size, Space
from fedloom.spaces.supernet import Supernet

NET = "net."  # the prefix of keys of the network inside the model that normalises its input


def weightless(
    space: Space,
    shape: tuple[int, ...],
    classes: int,
    size: Size,
    *,
    affine: bool = False,
) -> Supernet:
    """Returns the supernet on torch's meta device: it has names and shapes, but no weights."""
    with torch.device("meta"):
        net = space.network(shape, classes, size, affine=affine)
    assert isinstance(net, Supernet)
    return net


@lru_cache(maxsize=8)
def owners_in(
    space: Space,
    shape: tuple[int, ...],
    classes: int,
    size: Size,
    *,
    affine: bool = False,
) -> Mapping[str, OpId | None]:
    """Returns the owner of each key of the model; None: all operations share it."""
    net = weightless(space, shape, classes, size, affine=affine)
    owners = {}
    for name in net.state_dict():
        owners[f"{NET}{name}"] = net.owner(name)
    return owners
