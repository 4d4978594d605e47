"""Whether a run's network gets the head that its options ask for."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedloom.methods import searched
from fedloom.nets import MAPS
from fedloom.nets.heads import Head, head_of_network, takes_head
from fedloom.networks import NETWORKS, default_network
from fedloom.networks.building import new_model
from fedloom.types import Task


def has_room_for_head(task: Task) -> bool:
    """Whether the last feature map is large enough for a grid head, if the options allow one.

    A genotype file may choose the mean itself. That says nothing about its feature map, so a grid
    is tried.
    """
    if task.kind not in MAPS or task.options.get("head") not in ("auto", "grid"):
        return True
    if searched(task) is None:
        task = replace(task, options={**task.options, "head": "grid"})
    return head_of(task) != "mean"


def head_of(task: Task) -> Head | None:
    """The head of the network that a task's options name; None if it has no choice of heads."""
    searched_space = searched(task)
    with torch.device("meta"):  # only sizes are needed
        if searched_space is not None:
            space = searched_space.space
            if not space.takes_head:
                return None
            net = space.network(task.shape, len(task.labels), searched_space.size)
            return head_of_network(net)
        network = task.options.get("network") or default_network(task.kind)
        if not takes_head(NETWORKS.get(network)):
            return None
        width = task.options.get("width", 1.0)
        return new_model(task, network, width, task.mean, task.std, task.options["head"]).head
