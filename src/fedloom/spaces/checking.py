"""Checks, once before a run begins, that a space that is not built in can be searched.

They report at the start what would fail in the middle of a search or never be noticed: a return
value of the wrong type, a slot without options, a name that belongs to another space, a network
whose scores do not depend on its input, a slot that does not affect the scores, a weight that
belongs to another operation than its network says.
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

SAMPLES = 4  # random samples that go through the network
MASKS = 8  # random parts of the network that are built to see which weights they have


def check_searched(searched: SearchedSpace | None, task: Task) -> None:
    """Checks the space that a task searches, unless it is built in: those spaces have tests."""
    if searched is None or not searched.is_foreign:
        return
    space = searched.space
    check_constants(space)
    name = f"the search space {shown(space.family)}"
    check_kind(name, task.kind, space.kinds, "choose another space or other data")
    check_space(space, task.kind, task.shape, len(task.labels), searched.size)


def check_space(space: Space, kind: str, shape: tuple[int, ...], classes: int, size: Size) -> None:
    """Refuses a space that cannot be searched, and names the slot or weight that is at fault."""
    name = space.family
    check_constants(space)
    slots = asked(name, "name its slots", lambda: space.slots)
    check_slot_types(name, slots)
    check_slots(name, slots)
    check_name(space)
    check_together(space)
    check_rivals(space)
    net = build_network(space, shape, classes, size)
    x = made_up(kind, shape, classes)
    check_connected(space, net, x, classes)
    check_architectures(space, net, x, classes)
    check_owners(space, net)
    check_costs(space, shape, classes, size)
    check_paths(space, net, shape, classes, size)


def build_network(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> Supernet:
    name = space.family
    with seeded(0):
        net: object = asked(name, "build its network", lambda: space.network(shape, classes, size))
    if not isinstance(net, Supernet):
        network = f"the network of search space {shown(name)}"
        rule = f"{network} must be a fedloom.spaces.supernet.Supernet"
        raise FedloomError(rule, f"it is {shortened(type(net).__name__, 80)}", GUIDE)
    return net


def made_up(kind: str, shape: tuple[int, ...], classes: int) -> torch.Tensor:
    """Returns a batch of random samples of this kind and shape."""
    generator = torch_rng(0, "made up")
    if kind == "text":
        return torch.randint(0, classes, (SAMPLES, *shape), generator=generator)
    return torch.randn(SAMPLES, *shape, generator=generator)


def check_slot_types(name: str, slots: tuple[Slot, ...]) -> None:
    if not is_tuple_of(Slot, slots):
        raise wrong_type(name, "slots", "a tuple of fedloom.spaces.space.Slot", slots)
    for slot in slots:
        if not isinstance(slot.name, str):
            raise wrong_type(name, "slots", "slots whose name is a str", slot)
        if not is_tuple_of(str, slot.options):
            raise wrong_type(name, "slots", "slots whose options are a tuple of names", slot)


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


def check_name(space: Space) -> None:
    """An architecture stores only its space's name, so the name must lead back to this space."""
    name = asked(space.family, "have a name", lambda: space.name)
    parameters = asked(space.family, "name its parameters", lambda: space.parameters)
    if not isinstance(parameters, str):
        raise wrong_type(space.family, "parameters", "a str", parameters)
    if not isinstance(name, str) or split_name(name) != (space.family, parameters):
        raise wrong_type(space.family, "name", "its family and its parameters", name)
    answer = asked(
        space.family,
        "accept its own parameters",
        lambda: type(space).named(parameters),
    )
    again = checked_space(space.family, "named", answer)
    if again.name != name or again.slots != space.slots:
        rule = f"`parameters` of search space {shown(space.family)} must name the same space"
        problem = f"`named({shortened(repr(parameters), 80)})` is another one"
        advice = "let its parameters determine its slots completely"
        raise FedloomError(rule, problem, advice)


def check_together(space: Space) -> None:
    """The groups of slots that are decided together must contain every slot exactly once."""

    def flattened() -> list[int]:
        slots: list[int] = []
        for group in space.together():
            slots.extend(group)
        return slots

    name = space.family
    slots = range(len(space.slots))
    grouped = asked(name, "say which slots go together", flattened)
    # By `repr`, because a faulty `together` may return anything, also what cannot be compared.
    if sorted(grouped, key=repr) != sorted(slots, key=repr):
        question = f"`together` of search space {shown(name)}"
        rule = f"{question} must name every slot once, 0 to {slots.stop - 1}"
        raise FedloomError(rule, f"it names {shortened(repr(grouped), 80)}", "fix it")


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
        raise FedloomError(rule, f"it names {shortened(repr(rivalling), 80)}", "fix it")


def check_connected(space: Space, net: Supernet, x: torch.Tensor, classes: int) -> None:
    """The scores must depend on the samples, and on every slot."""
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
        raise FedloomError(rule, "they are the same for every input", "fix its `flow`")
    for slot, gradient in zip(space.slots, gradients_of(scores, rows), strict=True):
        if gradient is None or not gradient.any():
            rule = f"every slot of search space {shown(space.family)} must lead to the scores"
            problem = f"no option of slot {shortened(slot.name, 80)} changes them"
            advice = "fix its network's `flow`, or use more cells if it has too few"
            raise FedloomError(rule, problem, advice)


def checked_scores(network: str, scores: object, samples: int, classes: int) -> torch.Tensor:
    rule = f"{network} must give {classes} scores for each of {samples} samples"
    if not isinstance(scores, torch.Tensor):
        raise FedloomError(rule, f"it gives {type(scores).__name__}", GUIDE)
    if scores.shape != (samples, classes):
        raise FedloomError(rule, f"it gives {list(scores.shape)}", GUIDE)
    if not bool(scores.isfinite().all()):
        rule = f"{network} must give finite scores"
        raise FedloomError(rule, "some are infinite or NaN", "fix its `flow`")
    return scores


def gradients_of(
    scores: torch.Tensor,
    rows: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """Returns the gradients of the scores by each slot's weights; None: there is none."""
    generator = torch_rng(0, "directions")
    directions = torch.randn(scores.shape, generator=generator)  # a plain sum may cancel out
    total = (scores * directions).sum()
    if not total.requires_grad:
        return [None] * len(rows)
    return torch.autograd.grad(total, rows, allow_unused=True)


def check_architectures(space: Space, net: Supernet, x: torch.Tensor, classes: int) -> None:
    """An architecture that is sampled or derived must fit the space, and its network must work."""
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
            partial(scores_of_cut, net, arch, x),
        )
        network = f"the network that search space {shown(name)} cuts out of its own"
        checked_scores(network, scores, len(x), classes)


def check_own(space: Space, question: str, arch: Arch) -> None:
    """An architecture that a space samples or derives must belong to the space."""
    try:
        asked(space.family, "accept its own architectures", partial(space.check, arch))
    except FedloomError as error:
        name = shown(space.family)
        rule = f"`{question}` of search space {name} must return an architecture of that space"
        raise FedloomError(rule, shortened(str(error), 200), f"fix its `{question}`") from None


def even_strength(slot: Slot) -> np.ndarray:
    return np.full(len(slot.options), 1 / len(slot.options))


def scores_of_cut(net: Supernet, arch: Arch, x: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = net.cut(arch)(x)
    return scores


def check_owners(space: Space, net: Supernet) -> None:
    """A weight must exist exactly when its owner is alive; a weight without an owner, always."""
    owners = {key: owner_of(space, net, key) for key in net.state_dict()}
    for arch in masks(space):
        with torch.device("meta"):  # only the sizes are needed
            part = asked(space.family, "build a part of its network", partial(net.smaller, arch))
        existing = set(part.state_dict())
        for key, owner in owners.items():
            if is_alive(owner, arch) != (key in existing):
                raise not_owned(space, key, owner, arch)


def is_alive(owner: OpId | None, arch: Arch) -> bool:
    """Whether a weight of this owner must exist; a weight without an owner always must."""
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
        rule = f"the network of search space {shown(space.family)} must name its weights' owners"
        problem = f"the owner of {weight} is {shortened(repr(owner), 80)}, which is no operation"
        raise FedloomError(rule, problem, "fix its `owner`")
    return owner


def masks(space: Space) -> Iterator[Arch]:
    """Yields random parts in which about half of all operations are alive, at least one per slot.

    A part that has only one of two operations tells them apart. Each part does so with a
    probability of about one half.
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
    rule = f"the network of search space {shown(space.family)} must name its weights' owners"
    owner_name = "shared by all operations"
    if owner is not None:
        slot = space.slots[owner.slot]
        owner_name = f"owned by {slot.options[owner.op]} in slot {slot.name}"
    mistake = "it still exists where that operation is not alive"
    if is_alive(owner, arch):
        mistake = "it is missing where it should exist"
    problem = f"{shortened(key, 80)} is said to be {shortened(owner_name, 80)}, and {mistake}"
    return FedloomError(rule, problem, "fix its `owner`, or build only what `arch` names")


def check_costs(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> None:
    """The cost formula must return whole numbers: searches under a limit and all results use it."""
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
    """A space with a cost table must have a cost for every option of every slot, and path layers.

    A search for tiers of devices needs both: it scores paths layer by layer. A space without such a
    table cannot be searched in that way, and is not refused here.
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
        problem = f"its rows have {costs} costs, and the slots {options} options"
        raise FedloomError(rule, problem, "fix it")
    if not isinstance(net, PathNetwork):
        network = f"the network of search space {shown(space.family)}, which has a `cost_table`,"
        rule = f"{network} must be a fedloom.spaces.paths.PathNetwork"
        raise FedloomError(rule, f"it is {shortened(type(net).__name__, 80)}", GUIDE)
