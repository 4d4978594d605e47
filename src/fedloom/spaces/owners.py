"""Whose the tensors of a supernet are, told without building it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch

from fedloom.spaces.space import OpId, Size, Space
from fedloom.spaces.supernet import Supernet

NET = "net."  # of a key: the network inside the model that normalises its input


def weightless(
    space: Space,
    shape: tuple[int, ...],
    classes: int,
    size: Size,
    *,
    affine: bool = False,
) -> Supernet:
    """The supernet of which nothing is computed: it has names and shapes, and no weights."""
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
    """By key of the model; None: it is everybody's."""
    net = weightless(space, shape, classes, size, affine=affine)
    owners = {}
    for name in net.state_dict():
        owners[f"{NET}{name}"] = net.owner(name)
    return owners
