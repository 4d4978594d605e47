"""Whether a space from outside can be searched at all: looked at once, before a run begins.

What would fail in the middle of a search, or never be noticed, is said at its start: an answer of
another type than was asked for, a slot without options, a name that is another space's, a network
whose scores do not depend on its input, a slot that leads nowhere, a weight that belongs to another
operation than its network says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from fedloom.errors import FedloomError, shortened
from fedloom.nets.model import check_kind, seeded
from fedloom.rng import rng, torch_rng
from fedloom.spaces import checked_space, split_name
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.choice import Mixture
from fedloom.spaces.constants import GUIDE, check_constants, is_tuple_of, wrong_type
from fedloom.spaces.cost_table import CostTable
from fedloom.spaces.paths import PathNetwork
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.space import Cost, OpId, Rivals, Size, Slot, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task

SAMPLES = 4  # that go through the network
MASKS = 8  # parts of the network that are built to see which weights they have


def check_searched(searched: SearchedSpace | None, task: Task) -> None:
    """The space that a task searches, if it is none of ours: those have tests."""
    if searched is None or not searched.is_foreign:
        return
    space = searched.space
    check_constants(space)
    name = f"the search space {shown(space.family)}"
    check_kind(name, task.kind, space.kinds, "choose another space or other data")
    check_space(space, task.kind, task.shape, len(task.labels), searched.size)


def check_space(space: Space, kind: str, shape: tuple[int, ...], classes: int, size: Size) -> None:
    """Refuses what cannot be searched, by the name of the slot or the weight that is at fault."""
    name = space.family
    check_constants(space)
    slots = asked(name, "name its slots", lambda: space.slots)
    check_slot_types(name, slots)
    check_slots(name, slots)
    check_name(space)
    check_together(space)
    check_rivals(space)
    net = built(space, shape, classes, size)
    x = made_up(kind, shape, classes)
    check_connected(space, net, x, classes)
    check_architectures(space, net, x, classes)
    check_owners(space, net)
    check_costs(space, shape, classes, size)
    check_paths(space, net, shape, classes, size)


def built(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> Supernet:
    name = space.family
    with seeded(0):
        net: object = asked(name, "build its network", lambda: space.network(shape, classes, size))
    if not isinstance(net, Supernet):
        network = f"the network of search space {shown(name)}"
        rule = f"{network} must be a fedloom.spaces.supernet.Supernet"
        raise FedloomError(rule, f"it is {shortened(type(net).__name__, 80)}", GUIDE)
    return net


def check_slot_types(name: str, slots: tuple[Slot, ...]) -> None:
    if not is_tuple_of(Slot, slots):
        raise wrong_type(name, "slots", "a tuple of fedloom.spaces.space.Slot", slots)
    for slot in slots:
        if not isinstance(slot.name, str):
            raise wrong_type(name, "slots", "slots whose name is a str", slot)
        if not is_tuple_of(str, slot.options):
            raise wrong_type(name, "slots", "slots whose options are a tuple of names", slot)


def check_name(space: Space) -> None:
    """Its name is all that an architecture keeps of it, so it must lead back to this space."""
    name = asked(space.family, "have a name", lambda: space.name)
    parameters = asked(space.family, "name its parameters", lambda: space.parameters)
    if not isinstance(parameters, str):
        raise wrong_type(space.family, "parameters", "a str", parameters)
    if not isinstance(name, str) or split_name(name) != (space.family, parameters):
        raise wrong_type(space.family, "name", "its family and its parameters", name)
    answer = asked(
        space.family,
        "be made of its own parameters",
        lambda: type(space).named(parameters),
    )
    again = checked_space(space.family, "named", answer)
    if again.name != name or again.slots != space.slots:
        rule = f"`parameters` of search space {shown(space.family)} must name the same space"
        found = f"`named({shortened(repr(parameters), 80)})` is another one"
        advice = "let its parameters say everything that its slots follow from"
        raise FedloomError(rule, found, advice)


def check_together(space: Space) -> None:
    """The groups of slots that are decided together must have every slot once."""

    def flattened() -> list[int]:
        slots: list[int] = []
        for group in space.together():
            slots.extend(group)
        return slots

    name = space.family
    slots = range(len(space.slots))
    grouped = asked(name, "say which slots go together", flattened)
    if sorted(grouped, key=repr) != sorted(slots, key=repr):
        question = f"`together` of search space {shown(name)}"
        rule = f"{question} must name every slot once, 0 to {slots.stop - 1}"
        raise FedloomError(rule, f"it names {shortened(repr(grouped), 80)}", "mend it")


def check_rivals(space: Space) -> None:
    """The slots that are rivals must exist."""
    name = space.family
    slots = range(len(space.slots))
    rivals = asked(name, "say which slots are rivals", lambda: list(space.rivals()))
    if not is_tuple_of(Rivals, tuple(rivals)):
        raise wrong_type(name, "rivals", "a list of fedloom.spaces.space.Rivals", rivals)

    def flattened() -> list[int]:
        rivalling: list[int] = []
        for group in rivals:
            rivalling.extend(group.slots)
        return rivalling

    rivalling = asked(name, "say which slots are rivals", flattened)
    if any(slot not in slots for slot in rivalling):
        rule = f"`rivals` of search space {shown(name)} must name slots from 0 to {slots.stop - 1}"
        raise FedloomError(rule, f"it names {shortened(repr(rivalling), 80)}", "mend it")


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
            raise FedloomError(
                rule,
                f"slot {shortened(slot.name, 80)} has a name twice",
                "rename one",
            )
    if len({slot.name for slot in slots}) != len(slots):
        rule = f"the slots of search space {shown(name)} must have different names"
        raise FedloomError(rule, "two have the same", "rename one")


def check_connected(space: Space, net: Supernet, x: torch.Tensor, classes: int) -> None:
    """Its scores must follow from the samples, and every slot must have a say in them."""
    net.eval()
    rows = []
    for slot in space.slots:
        count = len(slot.options)
        rows.append(torch.full((count,), 1 / count, requires_grad=True))
    mixture = Mixture(tuple(rows))
    scores: object = asked(space.family, "compute a mixture", lambda: net(x, mixture))
    network = f"the network of search space {shown(space.family)}"
    scores = checked_scores(network, scores, len(x), classes)
    if all(torch.equal(scores[0], other) for other in scores[1:]):
        rule = f"{network} must lead from its input to its scores"
        raise FedloomError(rule, "they are the same for every input", "mend its `flow`")
    for slot, gradient in zip(space.slots, gradients_of(scores, rows), strict=True):
        if gradient is None or not gradient.any():
            rule = f"every slot of search space {shown(space.family)} must lead to the scores"
            found = f"no option of slot {shortened(slot.name, 80)} changes them"
            advice = "mend its network's `flow`, or take more cells if it has too few"
            raise FedloomError(rule, found, advice)


def checked_scores(network: str, scores: object, samples: int, classes: int) -> torch.Tensor:
    rule = f"{network} must give {classes} scores for each of {samples} samples"
    if not isinstance(scores, torch.Tensor):
        raise FedloomError(rule, f"it gives {type(scores).__name__}", GUIDE)
    if scores.shape != (samples, classes):
        raise FedloomError(rule, f"it gives {list(scores.shape)}", GUIDE)
    if not bool(scores.isfinite().all()):
        rule = f"{network} must give finite scores"
        raise FedloomError(rule, "some are infinite or no numbers", "mend its `flow`")
    return scores


def gradients_of(
    scores: torch.Tensor,
    rows: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """How the scores follow from each slot's weights; None: not at all."""
    generator = torch_rng(0, "directions")
    directions = torch.randn(scores.shape, generator=generator)  # a plain sum may cancel out
    total = (scores * directions).sum()
    if not total.requires_grad:
        return [None] * len(rows)
    return torch.autograd.grad(total, rows, allow_unused=True)


def check_architectures(space: Space, net: Supernet, x: torch.Tensor, classes: int) -> None:
    """What it draws and derives is its own, and can be cut out and computed."""
    name = space.family
    drawn = asked(name, "draw an architecture", lambda: space.sample(rng(0, "first look")))
    strength = [even_strength(slot) for slot in space.slots]
    derived = asked(name, "derive an architecture", lambda: space.derive(strength))
    for question, arch in (("sample", drawn), ("derive", derived)):
        if not isinstance(arch, Arch):
            raise wrong_type(name, question, "a fedloom.types.Arch", arch)
        check_own(space, question, arch)
        scores = asked(
            name,
            f"cut out and compute what its `{question}` gave",
            partial(cut_answer, net, arch, x),
        )
        network = f"the network that search space {shown(name)} cuts out of its own"
        checked_scores(network, scores, len(x), classes)


def check_own(space: Space, question: str, arch: Arch) -> None:
    """What a space draws or derives must be an architecture of its own."""
    try:
        asked(space.family, "accept its own architectures", partial(space.check, arch))
    except FedloomError as error:
        rule = f"`{question}` of search space {shown(space.family)} must give an own architecture"
        raise FedloomError(rule, shortened(str(error), 200), f"mend its `{question}`") from None


def even_strength(slot: Slot) -> np.ndarray:
    return np.full(len(slot.options), 1 / len(slot.options))


def cut_answer(net: Supernet, arch: Arch, x: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = net.cut(arch)(x)
    return scores


def check_costs(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> None:
    """A formula that a search under a limit asks, and every result."""
    for arch in (space.full(), space.sample(rng(0, "first look"))):
        question = partial(space.cost, shape, classes, arch, size)
        cost: object = asked(space.family, "say what it costs", question)
        if not isinstance(cost, Cost) or not is_tuple_of(int, tuple(cost)):
            raise wrong_type(
                space.family,
                "cost",
                "a fedloom.spaces.space.Cost of whole numbers",
                cost,
            )


def check_paths(
    space: Space,
    net: Supernet,
    shape: tuple[int, ...],
    classes: int,
    size: Size,
) -> None:
    """What a search for tiers of devices asks of a chain: a cost for every option of every slot.

    Its paths are scored layer by layer. A space without such a table is none of its spaces.
    """
    question = partial(space.cost_table, shape, classes, size)
    table: object = asked(space.family, "say what its operations cost", question)
    if table is None:
        return
    if not isinstance(table, CostTable):
        kind = "a fedloom.spaces.cost_table.CostTable or None"
        raise wrong_type(space.family, "cost_table", kind, table)
    costs = [len(row) for row in table.rows]
    options = [len(slot.options) for slot in space.slots]
    if costs != options:
        rule = (
            f"`cost_table` of search space {shown(space.family)} must have a cost for each option"
        )
        found = f"its rows have {costs} costs, and the slots {options} options"
        raise FedloomError(rule, found, "mend it")
    if not isinstance(net, PathNetwork):
        network = f"the network of search space {shown(space.family)}, which has a `cost_table`,"
        rule = f"{network} must be a fedloom.spaces.paths.PathNetwork"
        raise FedloomError(rule, f"it is {shortened(type(net).__name__, 80)}", GUIDE)


def check_owners(space: Space, net: Supernet) -> None:
    """A weight must be there whenever its owner is, and only then; one that nobody owns always."""
    owners = {key: owner_of(space, net, key) for key in net.state_dict()}
    for arch in masks(space):
        with torch.device("meta"):  # sizes alone
            part = asked(space.family, "build a part of its network", partial(net.smaller, arch))
        existing = set(part.state_dict())
        for key, owner in owners.items():
            if is_alive(owner, arch) != (key in existing):
                raise not_owned(space, key, owner, arch)


def is_alive(owner: OpId | None, arch: Arch) -> bool:
    """Whether a weight of this owner must be there; one that nobody owns always must."""
    return owner is None or owner.op in arch.choice[owner.slot]


def owner_of(space: Space, net: Supernet, key: str) -> OpId | None:
    weight = shortened(key, 80)
    owner: object = asked(space.family, f"say whose {weight} is", lambda: net.owner(key))
    if owner is None:
        return None
    if not isinstance(owner, OpId) or not is_tuple_of(int, tuple(owner)):
        raise wrong_type(space.family, "owner", "a fedloom.spaces.space.OpId or None", owner)
    slots = space.slots
    if not (0 <= owner.slot < len(slots) and 0 <= owner.op < len(slots[owner.slot].options)):
        rule = f"the network of search space {shown(space.family)} must own its weights"
        found = f"{weight} is said to be of {shortened(repr(owner), 80)}, which is no operation"
        raise FedloomError(rule, found, "mend its `owner`")
    return owner


def masks(space: Space) -> Iterator[Arch]:
    """Parts in which about half of all operations are alive, at least one in a slot.

    Two operations are told apart by a part that has only one of them: each part does that with a
    chance of about a half.
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
    when = "it is still there where that is not alive"
    if is_alive(owner, arch):
        when = "it is missing where that is alive"
    found = f"{shortened(key, 80)} is said to be {shortened(whose, 80)}, and {when}"
    return FedloomError(rule, found, "mend its `owner`, or build only what `arch` names")


def made_up(kind: str, shape: tuple[int, ...], classes: int) -> torch.Tensor:
    generator = torch_rng(0, "made up")
    if kind == "text":
        return torch.randint(0, classes, (SAMPLES, *shape), generator=generator)
    return torch.randn(SAMPLES, *shape, generator=generator)
