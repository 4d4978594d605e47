"""The networks that race in `auto`: their costs, their weights in one state, their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.cost.count import macs, parameters
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.learning.prior import fold_shift, log_prior
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.methods.auto_options import AutoOptions
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.records.decision import Decision
from fedloom.types import Json, State, Task, Tensors

# Changes of samples that a network may be asked to bear, by kind of data.
CHANGES: Mapping[str, Sequence[str]] = {
    "image": ("flip", "crop:SHIFT", "rotate:10"),
    "speech": ("timeshift:SHIFT", "hiss:0.2", "timemask:MASK", "bandmask:MASK"),
}
OF_SIDE = {"SHIFT": 8, "MASK": 6}  # an amount in pixels or frames: the side over this


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


def shift_of(options: AutoOptions, data: Samples, task: Task) -> torch.Tensor | None:
    """What a client's prior adds to the scores; None: nothing."""
    if options.prior == "off":
        return None
    return log_prior(data.y, len(task.labels))


def assumptions_of(options: AutoOptions) -> tuple[str, ...]:
    """What an exported network takes for granted."""
    if options.prior == "off":
        return ()
    return (
        "How often each class came up in this client's training samples is part of its scores "
        "(of the shared model's, if it has no client: every class equally). Where classes come up "
        "in other proportions, its answers lean to those that were common here.",
    )


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


# Changes of samples


def changes_for(task: Task) -> list[str]:
    """The changes that are tried on such samples."""
    if task.kind not in CHANGES:
        return []
    side = min(task.shape[1:])
    changes = []
    for text in CHANGES[task.kind]:
        for amount, part in OF_SIDE.items():
            text = text.replace(amount, str(max(1, side // part)))
        changes.append(text)
    return changes


def joined(changes: Sequence[str]) -> str:
    return "+".join(changes) or "none"


def decision(what: str, options: Sequence[str], counts: Json, chosen: str) -> dict[str, Json]:
    """A decision as result.json has it."""
    return {"decision": what, "options": list(options), "counts": counts, "chosen": chosen}


def decisions_in(state: State) -> tuple[Decision, ...]:
    return tuple(Decision.model_validate(taken) for taken in state.meta["decisions"])
