"""Search by perturbation: Wang, Cheng, Chen, Tang, Hsieh, "Rethinking Architecture Selection in Differentiable NAS",
ICLR 2021, edge by edge as in SPIDER's Algorithm 2.

An operation is worth what its absence costs: each live one of an edge is left out in turn, and the network is scored on
validation data. No gradient is computed, no operation that was decided away, and what the variants share only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import torch
from torch.nn import functional

from fedloom.nets.model import Model
from fedloom.spaces.joint import Joint
from fedloom.spaces.space import NONE, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json

if TYPE_CHECKING:
    from fedloom.data.samples import Samples

Keep = Literal["impact", "printed"]
WORST = 1e30  # a loss that is none, as a number that files can hold
K = TypeVar("K")


class Score(NamedTuple):
    """Of a network without something, on validation data."""

    accuracy: float
    loss: float


Scorer = Callable[[Sequence[Arch]], list[Score]]


@dataclass(frozen=True)
class Decision:
    """What was kept in a slot, and how the network did without each of the candidates."""

    slot: int
    kept: tuple[int, ...]
    without: Mapping[int, Score]

    def to_json(self, space: Space) -> Json:
        name, options = space.slots[self.slot]
        without = {options[op]: score._asdict() for op, score in self.without.items()}
        return {"slot": name, "kept": [options[op] for op in self.kept], "without": without}


def edges(space: Space, *, paired: bool) -> list[tuple[int, ...]]:
    """What is decided at a time: slots that belong together, or one alone."""
    if paired:
        return space.together()
    return space.one_by_one()


def decide(arch: Arch, slots: Sequence[int], score: Scorer, keep: Keep) -> tuple[Arch, list[Decision]]:
    """Lines 6–9 of Algorithm 2: one operation stays in each slot. All slots are measured in the same network."""
    pairs = [(slot, op) for slot in slots if len(arch.choice[slot]) > 1 for op in arch.choice[slot]]
    found = dict(zip(pairs, score([without(arch, *pair) for pair in pairs]), strict=True))
    made = []
    for slot in slots:
        scores = {op: found[slot, op] for op in arch.choice[slot] if (slot, op) in found}
        made.append(Decision(slot, tuple(strongest(scores, keep, 1)) or arch.choice[slot], scores))
    return applied(arch, made), made


def prune(space: Space, arch: Arch, score: Scorer, keep: Keep) -> tuple[Arch, list[Decision]]:
    """Every node keeps its strongest inputs, as many as the space says: those without which the network does worst."""
    crowded = []
    for rivals in space.rivals():
        alive = tuple(slot for slot in rivals.slots if computed(space, arch, slot))
        if len(alive) > rivals.kept:
            crowded.append(rivals._replace(slots=alive))
    candidates = [slot for rivals in crowded for slot in rivals.slots]
    without_each = [applied(arch, [Decision(slot, (), {})]) for slot in candidates]
    scores = dict(zip(candidates, score(without_each), strict=True))
    staying: set[int] = set()
    for rivals in crowded:
        staying.update(strongest({slot: scores[slot] for slot in rivals.slots}, keep, rivals.kept))
    decisions = []
    for slot in candidates:
        kept = arch.choice[slot] if slot in staying else ()
        decisions.append(Decision(slot, kept, {arch.choice[slot][0]: scores[slot]}))
    return applied(arch, decisions), decisions


def computed(space: Space, arch: Arch, slot: int) -> bool:
    return any(space.slots[slot].options[op] != NONE for op in arch.choice[slot])


def strongest(scores: Mapping[K, Score], keep: Keep, count: int) -> list[K]:
    """Whose absence hurts most; "printed" is line 8 taken literally. Ties are broken by the loss, then by order."""
    sign = 1 if keep == "impact" else -1
    return sorted(scores, key=lambda what: (sign * scores[what].accuracy, -sign * scores[what].loss))[:count]


def without(arch: Arch, slot: int, op: int) -> Arch:
    return applied(arch, [Decision(slot, tuple(other for other in arch.choice[slot] if other != op), {})])


def applied(arch: Arch, made: Sequence[Decision]) -> Arch:
    new = {decision.slot: decision.kept for decision in made}
    return replace(arch, choice=tuple(new.get(slot, live) for slot, live in enumerate(arch.choice)))


def by_validation(model: Model, data: Samples, batch: int) -> Scorer:
    """Scores variants of a model, in the mode of training or evaluation that it is in."""
    net = model.net
    assert isinstance(net, Supernet)
    if not len(data):
        raise ValueError("there is nothing to validate on")

    @torch.no_grad()
    def score(archs: Sequence[Arch]) -> list[Score]:
        joint, correct, losses = Joint(net, archs), [0] * len(archs), [0.0] * len(archs)
        for part in parts(data, batch):
            for number, answer in enumerate(joint(model.normalised(part.x))):
                correct[number] += int((answer.argmax(1) == part.y).sum())
                losses[number] += float(functional.cross_entropy(answer, part.y, reduction="sum"))
        return [Score(c / len(data), finite(loss / len(data))) for c, loss in zip(correct, losses, strict=True)]

    return score


def parts(data: Samples, batch: int) -> Iterator[Samples]:
    """In order, each of at least a batch: BN takes its statistics from them, and must not meet one sample alone."""
    count = max(1, len(data) // max(2, batch))
    for x, y in zip(data.x.tensor_split(count), data.y.tensor_split(count), strict=True):
        yield replace(data, x=x, y=y)


def finite(loss: float) -> float:
    return loss if isfinite(loss) else WORST


def by_chance(generator: torch.Generator) -> Scorer:
    """The control: nothing is measured."""
    return lambda archs: [Score(value, 0.0) for value in torch.rand(len(archs), generator=generator).tolist()]


def by_strength(space: Space, strength: Sequence[torch.Tensor], *, pruned: bool) -> list[Decision]:
    """Appendix C: what the magnitudes of softmax(α) say; if `pruned`, every node has two inputs."""
    rows = [row.detach().cpu().numpy() for row in strength]
    if pruned:
        return [Decision(slot, kept, {}) for slot, kept in enumerate(space.derive(rows).choice)]
    useful = [[op for op, name in enumerate(slot.options) if name != NONE] for slot in space.slots]
    return [Decision(slot, (max(ops, key=lambda op: rows[slot][op]),), {}) for slot, ops in enumerate(useful)]
