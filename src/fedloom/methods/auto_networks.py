"""The networks that race in `auto`: how they are built, what they cost, where their weights are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.cost.count import macs, parameters
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.learning.prior import fold_shift
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.methods.auto_options import AutoOptions
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.stages.decisions import shift_of
from fedloom.types import Task, Tensors


@dataclass(frozen=True)
class SizeCost:
    """What one size of the network costs."""

    params: int
    macs: int


def label(size: float) -> str:
    """The name of a size, in the state, in counts and in tables."""
    return f"{size:g}"


def network_of_size(
    task: Task, options: AutoOptions, size: str, weights: Tensors | None = None
) -> Model:
    """The network of this size with the given weights, or with the seed's initial weights."""
    width = options.width * float(size)
    return build_model(task, options.network, width, weights=weights, head=options.head)


def network_with_prior(
    task: Task, options: AutoOptions, size: str, weights: Tensors, data: Samples
) -> nn.Module:
    """The network as a client uses it: with the client's prior folded into its scores."""
    net = network_of_size(task, options, size, weights)
    fold_shift(net, shift_of(options, data, task))
    return net


# Sizes


def sizes_within(task: Task, options: AutoOptions) -> list[str]:
    """The sizes that keep the limits, in ascending order.

    Where several sizes round to the same network, only the smallest is listed.
    """
    names = [label(size) for size in options.sizes]
    within = []
    before = None
    for name in names:
        cost = cost_of(task, options, name)
        if is_within(cost, options) and cost != before:
            within.append(name)
        before = cost
    if not within:
        smallest = cost_of(task, options, names[0])
        raise FedloomError(
            "limits must leave at least one size of the network",
            f"the smallest, {names[0]} of the width, takes {smallest.macs:,} MACs a sample "
            f"and {smallest.params:,} parameters",
            "allow more, name smaller sizes= or another network",
        )
    return within


def is_within(cost: SizeCost, options: AutoOptions) -> bool:
    if options.limit_macs is not None and cost.macs > options.limit_macs:
        return False
    return options.limit_params is None or cost.params <= options.limit_params


def cost_of(task: Task, options: AutoOptions, size: str) -> SizeCost:
    net = network_of_size(task, options, size)
    return SizeCost(parameters(net), macs(net, task.shape))


# The state


def named_by_size(size: str, weights: Tensors) -> dict[str, torch.Tensor]:
    return with_prefix(f"{size}/", weights)


def weights_of_size(size: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    return without_prefix(f"{size}/", tensors)


def weights_of_sizes(sizes: Sequence[str], tensors: Tensors) -> dict[str, torch.Tensor]:
    """The weights of these sizes, named as in the state."""
    weights: dict[str, torch.Tensor] = {}
    for size in sizes:
        weights |= named_by_size(size, weights_of_size(size, tensors))
    return weights
