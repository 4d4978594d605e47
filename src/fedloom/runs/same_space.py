"""Whether a run that is opened again still has the space that it was begun with: its file may have changed since."""

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
    difference = asked(space.family, "build its network", lambda: changed(space, task, options.size, at.state))
    if difference is not None:
        rule = f"the search space {shown(space.family)} must be the one that the run was begun with"
        found = f"{difference} in the checkpoint of round {at.round}"
        raise FedloomError(rule, found, "put it back as it was, or begin a new run")


def changed(space: Space, task: Task, size: Size, state: State) -> str | None:
    """What a state has otherwise than the space's network; None: nothing."""
    tensors = {name: tuple(tensor.shape) for name, tensor in shared(state).items()}
    alpha = {name: shape for name, shape in tensors.items() if name.startswith(ALPHA)}
    if alpha:
        rows: Shapes = {}
        for number, slot in enumerate(space.slots):
            rows[alpha_key(number, slot)] = (len(slot.options),)
        difference = first_difference(rows, rows, alpha)
        if difference is not None:
            return difference
    weights = {name: shape for name, shape in tensors.items() if name.startswith(NETWORK)}
    if not weights:
        return None
    build = state.meta.get("build")  # the part of the network that the state has, if not all of it
    arch = None if build is None else Arch.from_plain(build["arch"])
    plain, affine = (shapes_of(space, task, size, arch, affine=affine) for affine in (False, True))
    return first_difference(plain, affine, weights)


def shapes_of(space: Space, task: Task, size: Size, arch: Arch | None, *, affine: bool) -> Shapes:
    with torch.device("meta"):  # sizes alone
        net = space.network(task.shape, len(task.labels), size, arch=arch, affine=affine)
    return {f"{NETWORK}{name}": tuple(tensor.shape) for name, tensor in net.state_dict().items()}


def first_difference(needed: Shapes, allowed: Shapes, kept: Shapes) -> str | None:
    """The first name that is missing, one too many, or of another shape."""
    for name in needed:
        if name not in kept:
            return f"{shortened(name, 80)} is missing"
    for name, shape in kept.items():
        if name not in allowed:
            return f"{shortened(name, 80)} is one too many"
        if shape != allowed[name]:
            return f"{shortened(name, 80)} has shape {list(shape)} instead of {list(allowed[name])}"
    return None


def last_checkpoint(archive: Archive) -> Checkpoint | None:
    """The newest that can be read; damage is told by whoever goes on from it."""
    for number in reversed(archive.rounds()):
        try:
            return archive.load(number)
        except (OSError, WireError):
            continue
    return None
