"""Whether a space from outside can be searched at all: looked at once, before a run begins.

What would fail in the middle of a search, or never be noticed, is said at its start: a slot without options, a network
whose scores do not depend on its input, a slot that leads nowhere, a weight that belongs to another operation than its
network says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from fedloom.errors import FedloomError, shortened
from fedloom.nets.model import check_kind, seeded
from fedloom.registry import is_file
from fedloom.rng import rng, torch_rng
from fedloom.spaces import SPACES, space_for
from fedloom.spaces.choice import Mixture
from fedloom.spaces.options import space_options_in
from fedloom.spaces.space import OpId, Size, Slot, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task

SAMPLES = 4  # that go through the network
MASKS = 8  # parts of the network that are built to see which weights they have
GUIDE = "see docs/add-a-space.md"
Made = TypeVar("Made")


def check_space_of(task: Task) -> None:
    """The space that a task searches, if it is none of ours: those have tests."""
    options = space_options_in(task.options)
    if options is None or options.space in SPACES.builtin:
        return
    space = asked(options.space, "be made of the options", lambda: space_for(options))
    check_kind(f"the search space {space.family}", task.kind, space.kinds, "choose another space or other data")
    check_space(space, task.kind, task.shape, len(task.labels), options.size)


def check_space(space: Space, kind: str, shape: tuple[int, ...], classes: int, size: Size) -> None:
    """Refuses what cannot be searched, by the name of the slot or the weight that is at fault."""
    name = space.family
    check_slots(name, asked(name, "name its slots", lambda: space.slots))
    with seeded(0):
        net = asked(name, "build its network", lambda: space.network(shape, classes, size))
    if not isinstance(net, Supernet):
        rule = f"the network of search space {shown(name)} must be a fedloom.spaces.supernet.Supernet"
        raise FedloomError(rule, f"it is {shortened(type(net).__name__, 80)}", GUIDE)
    x = made_up(kind, shape, classes)
    check_connected(space, net, x, classes)
    check_architectures(space, net, x)
    check_owners(space, net)


def check_slots(name: str, slots: tuple[Slot, ...]) -> None:
    if not slots:
        rule = f"the search space {shown(name)} must have a slot to choose in"
        raise FedloomError(rule, "it has none", GUIDE)
    for slot in slots:
        if not slot.options:
            rule = f"every slot of search space {shown(name)} must have options"
            raise FedloomError(rule, f"slot {shortened(slot.name, 80)} has none", GUIDE)
        if len(set(slot.options)) != len(slot.options):
            rule = f"the options of a slot of search space {shown(name)} must have different names"
            raise FedloomError(rule, f"slot {shortened(slot.name, 80)} has a name twice", "rename one")
    if len({slot.name for slot in slots}) != len(slots):
        rule = f"the slots of search space {shown(name)} must have different names"
        raise FedloomError(rule, "two have the same", "rename one")


def check_connected(space: Space, net: Supernet, x: torch.Tensor, classes: int) -> None:
    """Its scores must follow from the samples, and every slot must have a say in them."""
    name, slots = space.family, space.slots
    net.eval()
    rows = tuple(torch.full((len(slot.options),), 1 / len(slot.options), requires_grad=True) for slot in slots)
    scores = asked(name, "compute a mixture", lambda: net(x, Mixture(rows)))
    if not isinstance(scores, torch.Tensor) or scores.shape != (len(x), classes):
        found = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        rule = f"the network of search space {shown(name)} must give {classes} scores for each of {len(x)} samples"
        raise FedloomError(rule, f"it gives {found}", GUIDE)
    if all(torch.equal(scores[0], other) for other in scores[1:]):
        rule = f"the network of search space {shown(name)} must lead from its input to its scores"
        raise FedloomError(rule, "they are the same for every input", "mend its `flow`")
    generator = torch_rng(0, "directions")
    directions = torch.randn(scores.shape, generator=generator)  # a plain sum may cancel out
    total = (scores * directions).sum()
    gradients: list[torch.Tensor | None] = [None] * len(rows)
    if total.requires_grad:
        gradients = list(torch.autograd.grad(total, rows, allow_unused=True))
    for slot, gradient in zip(slots, gradients, strict=True):
        if gradient is None or not gradient.any():
            rule = f"every slot of search space {shown(name)} must lead to the scores"
            found = f"no option of slot {shortened(slot.name, 80)} changes them"
            raise FedloomError(rule, found, "mend its network's `flow`, or take more cells if it has too few")


def check_architectures(space: Space, net: Supernet, x: torch.Tensor) -> None:
    """What it draws and derives is its own, and can be cut out and computed."""
    name = space.family
    drawn = asked(name, "draw an architecture", lambda: space.sample(rng(0, "first look")))
    strength = [np.full(len(slot.options), 1 / len(slot.options)) for slot in space.slots]
    derived = asked(name, "derive an architecture", lambda: space.derive(strength))
    for arch in (drawn, derived):
        asked(name, "accept its own architectures", partial(space.check, arch))
        asked(name, "cut an architecture out", partial(cut_answer, net, arch, x))


def cut_answer(net: Supernet, arch: Arch, x: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = net.cut(arch)(x)
    return scores


def check_owners(space: Space, net: Supernet) -> None:
    """A weight must be there whenever its owner is, and only then; one that nobody owns always."""
    owners = {key: owner_of(space, net, key) for key in net.state_dict()}
    for arch in masks(space):
        with torch.device("meta"):  # sizes alone
            part = asked(space.family, "build a part of its network", partial(net.smaller, arch))
        existing = set(part.state_dict())
        for key, owner in owners.items():
            alive = owner is None or owner.op in arch.choice[owner.slot]
            if alive != (key in existing):
                raise not_owned(space, key, owner, arch)


def owner_of(space: Space, net: Supernet, key: str) -> OpId | None:
    owner = asked(space.family, f"say whose {shortened(key, 80)} is", lambda: net.owner(key))
    if owner is None:
        return None
    slots = space.slots
    if not (0 <= owner[0] < len(slots) and 0 <= owner[1] < len(slots[owner[0]].options)):
        rule = f"the network of search space {shown(space.family)} must own its weights"
        found = f"{shortened(key, 80)} is said to be of {shortened(repr(owner), 80)}, which is no operation"
        raise FedloomError(rule, found, "mend its `owner`")
    return OpId(*owner)


def masks(space: Space) -> Iterator[Arch]:
    """Parts in which about half of all operations are alive, at least one in a slot.

    Two operations are told apart by a part that has only one of them: each does that with a chance of about a half.
    """
    generator = rng(0, "masks")
    for _ in range(MASKS):
        choice = []
        for slot in space.slots:
            live = np.flatnonzero(generator.random(len(slot.options)) < 0.5)
            if not len(live):
                live = generator.integers(len(slot.options), size=1)
            choice.append(tuple(int(op) for op in live))
        yield Arch(space.name, tuple(choice))


def not_owned(space: Space, key: str, owner: OpId | None, arch: Arch) -> FedloomError:
    rule = f"the network of search space {shown(space.family)} must own its weights"
    whose = "everybody's"
    if owner is not None:
        slot = space.slots[owner.slot]
        whose = f"of {slot.options[owner.op]} in slot {slot.name}"
    alive = owner is None or owner.op in arch.choice[owner.slot]
    when = "it is missing where that is alive" if alive else "it is still there where that is not alive"
    found = f"{shortened(key, 80)} is said to be {shortened(whose, 80)}, and {when}"
    return FedloomError(rule, found, "mend its `owner`, or build only what `arch` names")


def made_up(kind: str, shape: tuple[int, ...], classes: int) -> torch.Tensor:
    generator = torch_rng(0, "made up")
    if kind == "text":
        return torch.randint(0, classes, (SAMPLES, *shape), generator=generator)
    return torch.randn(SAMPLES, *shape, generator=generator)


def asked(name: str, what: str, question: Callable[[], Made]) -> Made:
    """The answer of a space's own code, whatever that may raise."""
    try:
        return question()
    except FedloomError:
        raise
    except Exception as error:
        rule = f"the search space {shown(name)} must {what}"
        found = f"it raised {type(error).__name__}: {shortened(str(error), 160)}".rstrip(": ")
        raise FedloomError(rule, found, "mend it; --debug shows where") from error


def shown(name: str) -> str:
    """A space in a file by the file's own name, so that a sentence stays short."""
    if is_file(name):
        return shortened(name.rpartition("/")[2], 80)
    return shortened(name, 80)
