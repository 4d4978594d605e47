"""Whether a run that is opened again still has the space that it was begun with.

The file of a space may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedloom.errors import FedloomError, shortened
from fedloom.federation.protocol.method import shared
from fedloom.federation.protocol.wire import WireError
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.learning.private_state import without_prefix
from fedloom.methods import searched
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.checking import check_searched
from fedloom.spaces.mixed import alpha_key
from fedloom.spaces.space import Size, Space
from fedloom.types import ALPHA, Arch, State, Task

NETWORK = "net."  # how the names of a space's weights begin in a state
Shapes = dict[str, tuple[int, ...]]


def check_space_again(task: Task, at: Checkpoint | None) -> None:
    """Before a run goes on from a checkpoint, or its models are opened; None: it begins anew."""
    now = searched(task)
    if now is None or not now.is_foreign:
        return
    if at is None or at.round == 0:
        check_searched(now, task)
        return
    space = now.space

    def compare() -> str | None:
        return changed(space, task, now.size, at.state)

    difference = asked(space.family, "build its network", compare)
    if difference is not None:
        raise FedloomError(
            f"the search space {shown(space.family)} must be the one that the run was begun with",
            f"{difference} in the checkpoint of round {at.round}",
            "put it back as it was, or begin a new run",
        )


def changed(space: Space, task: Task, size: Size, state: State) -> str | None:
    """What a state has otherwise than the space's network; None: nothing."""
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
        weights = kept_shapes(state, part.prefix)
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
    arch: Arch | None  # None: all of it


def parts_of(state: State) -> list[NetworkPart]:
    builds = state.meta.get("builds")  # several parts, each by the prefix of its names
    if builds is not None:
        return [NetworkPart(prefix, Arch.from_plain(arch)) for prefix, arch in builds.items()]
    build = state.meta.get("build")  # the part of the network that the state has, if not all of it
    if build is not None:
        return [NetworkPart("", Arch.from_plain(build["arch"]))]
    return [NetworkPart("", None)]


def kept_shapes(state: State, prefix: str) -> Shapes:
    """Of the weights that a state has of one network, by their names in it."""
    weights: Shapes = {}
    for name, tensor in without_prefix(prefix, shared(state)).items():
        if name.startswith(NETWORK):
            weights[name] = tuple(tensor.shape)
    return weights


def alpha_shapes(space: Space) -> Shapes:
    """A row a slot, as long as the slot has options."""
    rows: Shapes = {}
    for number, slot in enumerate(space.slots):
        rows[alpha_key(number, slot)] = (len(slot.options),)
    return rows


def shapes_of(space: Space, task: Task, size: Size, arch: Arch | None, *, affine: bool) -> Shapes:
    with torch.device("meta"):  # sizes alone
        net = space.network(task.shape, len(task.labels), size, arch=arch, affine=affine)
    shapes: Shapes = {}
    for name, tensor in net.state_dict().items():
        shapes[f"{NETWORK}{name}"] = tuple(tensor.shape)
    return shapes


def first_difference(needed: Shapes, allowed: Shapes, kept: Shapes) -> str | None:
    """The first name that is missing, one too many, or of another shape."""
    for name in needed:
        if name not in kept:
            return f"{shortened(name, 80)} is missing"
    for name, shape in kept.items():
        if name not in allowed:
            return f"{shortened(name, 80)} is one too many"
        if shape != allowed[name]:
            expected = list(allowed[name])
            return f"{shortened(name, 80)} has shape {list(shape)} instead of {expected}"
    return None


def last_checkpoint(archive: Archive) -> Checkpoint | None:
    """The newest that can be read; damage is told by whoever goes on from it."""
    for number in reversed(archive.rounds()):
        try:
            return archive.load(number)
        except (OSError, WireError):
            continue
    return None
