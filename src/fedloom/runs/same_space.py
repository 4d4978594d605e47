"""Checks whether a run that is opened again still has the search space that it began with.

The file that defines the space may have changed since then.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedloom.errors import FedloomError, shortened
from fedloom.federation.protocol.method import shared
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.learning.private_state import without_prefix
from fedloom.methods import searched
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.checking import check_searched
from fedloom.spaces.mixed import alpha_key
from fedloom.spaces.space import Size, Space
from fedloom.types import ALPHA, Arch, State, Task

NETWORK = "net."  # prefix in a state of the names of the network's weights
Shapes = dict[str, tuple[int, ...]]


def check_space_again(task: Task, checkpoint: Checkpoint | None) -> None:
    """Refuse to go on from a checkpoint, or to open its models, with a changed space.

    Without a checkpoint the run starts from the beginning.
    """
    current = searched(task)
    if current is None or not current.is_foreign:
        return
    if checkpoint is None or checkpoint.round == 0:
        check_searched(current, task)
        return
    space = current.space

    def compare() -> str | None:
        return change_of(space, task, current.size, checkpoint.state)

    difference = asked(space.family, "build its network", compare)
    if difference is not None:
        raise FedloomError(
            f"the search space {shown(space.family)} must be the one that the run was begun with",
            f"{difference} in the checkpoint of round {checkpoint.round}",
            "put it back as it was, or begin a new run",
        )


def change_of(space: Space, task: Task, size: Size, state: State) -> str | None:
    """How a state differs from the space's network; None if it does not."""
    alpha: Shapes = {}
    for name, tensor in shared(state).items():
        if name.startswith(ALPHA):
            alpha[name] = tuple(tensor.shape)
    if alpha:
        rows = alpha_shapes(space)
        difference = first_difference(rows, rows, alpha)
        if difference is not None:
            return difference
    for part in parts_of(state):
        weights = weight_shapes(state, part.prefix)
        if not weights:
            continue
        plain = shapes_of(space, task, size, part.arch, affine=False)
        affine = shapes_of(space, task, size, part.arch, affine=True)
        difference = first_difference(plain, affine, weights)
        if difference is not None:
            return difference
    return None


@dataclass(frozen=True)
class NetworkPart:
    """A part of the space's network whose weights a state has, under names with this prefix."""

    prefix: str
    arch: Arch | None  # None: the whole network


def parts_of(state: State) -> list[NetworkPart]:
    """The parts of the network whose weights a state has."""
    builds = state.meta.get("builds")  # several parts, by the prefix of their names
    if builds is not None:
        return [NetworkPart(prefix, Arch.from_plain(arch)) for prefix, arch in builds.items()]
    build = state.meta.get("build")  # a single part, if the state does not have the whole network
    if build is not None:
        return [NetworkPart("", Arch.from_plain(build["arch"]))]
    return [NetworkPart("", None)]


def weight_shapes(state: State, prefix: str) -> Shapes:
    """The shapes of a state's weights with this prefix, by their names in the network."""
    weights: Shapes = {}
    for name, tensor in without_prefix(prefix, shared(state)).items():
        if name.startswith(NETWORK):
            weights[name] = tuple(tensor.shape)
    return weights


def alpha_shapes(space: Space) -> Shapes:
    """The shapes of α: one row per slot, with one entry per option."""
    rows: Shapes = {}
    for number, slot in enumerate(space.slots):
        rows[alpha_key(number, slot)] = (len(slot.options),)
    return rows


def shapes_of(space: Space, task: Task, size: Size, arch: Arch | None, *, affine: bool) -> Shapes:
    with torch.device("meta"):  # only sizes are needed
        net = space.network(task.shape, len(task.labels), size, arch=arch, affine=affine)
    shapes: Shapes = {}
    for name, tensor in net.state_dict().items():
        shapes[f"{NETWORK}{name}"] = tuple(tensor.shape)
    return shapes


def first_difference(required: Shapes, allowed: Shapes, actual: Shapes) -> str | None:
    """The first tensor that is missing, not expected, or of another shape."""
    for name in required:
        if name not in actual:
            return f"{shortened(name, 80)} is missing"
    for name, shape in actual.items():
        if name not in allowed:
            return f"{shortened(name, 80)} is not expected"
        if shape != allowed[name]:
            expected = list(allowed[name])
            return f"{shortened(name, 80)} has shape {list(shape)} instead of {expected}"
    return None


def last_checkpoint(archive: Archive) -> Checkpoint | None:
    """The newest checkpoint that can be read; damage is reported when a run goes on from it."""
    for number in reversed(archive.rounds()):
        try:
            return archive.load(number)
        except (OSError, WireError):
            continue
    return None
