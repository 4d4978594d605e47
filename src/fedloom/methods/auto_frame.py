"""The networks that race in `auto`: their costs, their weights in one state, their answers."""

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
    """Of one size of the network."""

    params: int
    macs: int


def label(size: float) -> str:
    """The name of a size: of its tensors, its counts and in tables."""
    return f"{size:g}"


def built(task: Task, options: AutoOptions, size: str, weights: Tensors | None = None) -> Model:
    """The network of this size with these weights, or as the seed makes it."""
    width = options.width * float(size)
    return build_model(task, options.network, width, weights=weights, head=options.head)


def answering(
    task: Task, options: AutoOptions, size: str, weights: Tensors, data: Samples
) -> nn.Module:
    """The same as a client uses it: its prior is part of the scores."""
    net = built(task, options, size, weights)
    fold_shift(net, shift_of(options, data, task))
    return net


# Sizes


def sizes_within(task: Task, options: AutoOptions) -> list[str]:
    """The sizes that keep the limits, from the smallest on."""
    names = [label(size) for size in options.sizes]
    within = []
    for name in names:
        if is_within(cost_of(task, options, name), options):
            within.append(name)
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
    net = built(task, options, size)
    return SizeCost(parameters(net), macs(net, task.shape))


# The state


def in_state(size: str, weights: Tensors) -> dict[str, torch.Tensor]:
    return with_prefix(f"{size}/", weights)


def of_size(size: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    return without_prefix(f"{size}/", tensors)


def without_others(sizes: Sequence[str], tensors: Tensors) -> dict[str, torch.Tensor]:
    """The weights of these sizes alone."""
    kept: dict[str, torch.Tensor] = {}
    for size in sizes:
        kept |= in_state(size, of_size(size, tensors))
    return kept
