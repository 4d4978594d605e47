"""Whether a run that is opened again still has the space that it was begun with.

The file of a space may have changed since.
"""

from __future__ import annotations

import torch

from fedloom.errors import FedloomError, shortened
from fedloom.federation.protocol.method import shared
from fedloom.federation.protocol.wire import WireError
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.spaces import space_for
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.checking import check_space_of, foreign_options
from fedloom.spaces.mixed import alpha_key
from fedloom.spaces.space import Size, Space
from fedloom.types import ALPHA, Arch, State, Task

NETWORK = "net."  # how the names of a space's weights begin in a state
Shapes = dict[str, tuple[int, ...]]


def check_space_again(task: Task, at: Checkpoint | None) -> None:
    """Before a run goes on from a checkpoint, or its models are opened; None: it begins anew."""
    options = foreign_options(task)
    if options is None:
        return
    if at is None or at.round == 0:
        check_space_of(task)
        return
    space = space_for(options)

    def compare() -> str | None:
        return changed(space, task, options.size, at.state)

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
    weights: Shapes = {}
    for name, tensor in shared(state).items():
        if name.startswith(ALPHA):
            alpha[name] = tuple(tensor.shape)
        if name.startswith(NETWORK):
            weights[name] = tuple(tensor.shape)
    if alpha:
        rows = alpha_shapes(space)
        difference = first_difference(rows, rows, alpha)
        if difference is not None:
            return difference
    if not weights:
        return None
    arch = None
    build = state.meta.get("build")  # the part of the network that the state has, if not all of it
    if build is not None:
        arch = Arch.from_plain(build["arch"])
    plain = shapes_of(space, task, size, arch, affine=False)
    affine = shapes_of(space, task, size, arch, affine=True)
    return first_difference(plain, affine, weights)


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
