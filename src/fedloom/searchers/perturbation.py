"""Search by perturbation: an operation is worth what its absence costs.

Wang, Cheng, Chen, Tang, Hsieh, "Rethinking Architecture Selection in Differentiable NAS", ICLR
2021, edge by edge as in SPIDER's Algorithm 2.

Each live operation of an edge is left out in turn, and the network is scored on validation data. No
gradient is computed, no operation that was decided away, and what the variants share only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import torch
from torch.nn import functional

from fedloom.nets.model import Model
from fedloom.records.decision import NotedDecision, NotedScore
from fedloom.spaces.joint import Joint
from fedloom.spaces.space import NONE, Rivals, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.data.samples import Samples

Keep = Literal["impact", "printed"]
WORST = 1e30  # a loss that is none, as a number that files can hold
K = TypeVar("K")  # what is scored: an operation or a slot


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

    def noted(self, space: Space, number: int) -> NotedDecision:
        """By names, with the round in which it fell."""
        name, options = space.slots[self.slot]
        without = {}
        for op, score in self.without.items():
            without[options[op]] = NotedScore(accuracy=score.accuracy, loss=score.loss)
        kept = [options[op] for op in self.kept]
        return NotedDecision(round=number, slot=name, kept=kept, without=without)


class Candidate(NamedTuple):
    """An operation of a slot that may be decided away."""

    slot: int
    op: int


def edges(space: Space, *, paired: bool) -> list[tuple[int, ...]]:
    """What is decided at a time: slots that belong together, or one alone."""
    if paired:
        return space.together()
    return space.one_by_one()


def decide(
    arch: Arch,
    slots: Sequence[int],
    score: Scorer,
    keep: Keep,
) -> tuple[Arch, list[Decision]]:
    """Lines 6–9 of Algorithm 2: one operation stays in each slot.

    All slots are measured in the same network.
    """
    candidates = candidates_of(arch, slots)
    variants = [without(arch, candidate.slot, candidate.op) for candidate in candidates]
    scores = dict(zip(candidates, score(variants), strict=True))
    decisions = []
    for slot in slots:
        of_slot = {}
        for candidate, result in scores.items():
            if candidate.slot == slot:
                of_slot[candidate.op] = result
        kept = arch.choice[slot]
        if of_slot:
            kept = tuple(strongest(of_slot, keep, 1))
        decisions.append(Decision(slot, kept, of_slot))
    return applied(arch, decisions), decisions


def candidates_of(arch: Arch, slots: Sequence[int]) -> list[Candidate]:
    """The operations of all slots in which there is something to decide."""
    candidates = []
    for slot in slots:
        live = arch.choice[slot]
        if len(live) > 1:
            candidates += [Candidate(slot, op) for op in live]
    return candidates


def prune(space: Space, arch: Arch, score: Scorer, keep: Keep) -> tuple[Arch, list[Decision]]:
    """Every node keeps its strongest inputs, as many as the space says.

    Those are the inputs without which the network does worst.
    """
    crowded = crowded_nodes(space, arch)
    candidates: list[int] = []
    for rivals in crowded:
        candidates += rivals.slots
    variants = [applied(arch, [Decision(slot, (), {})]) for slot in candidates]
    scores = dict(zip(candidates, score(variants), strict=True))
    staying: set[int] = set()
    for rivals in crowded:
        of_node = {slot: scores[slot] for slot in rivals.slots}
        staying.update(strongest(of_node, keep, rivals.kept))
    decisions = []
    for slot in candidates:
        live = arch.choice[slot]
        kept: tuple[int, ...] = ()
        if slot in staying:
            kept = live
        decisions.append(Decision(slot, kept, {live[0]: scores[slot]}))
    return applied(arch, decisions), decisions


def crowded_nodes(space: Space, arch: Arch) -> list[Rivals]:
    """The nodes with more live inputs than they may keep, each with those inputs."""
    crowded = []
    for rivals in space.rivals():
        alive = tuple(slot for slot in rivals.slots if computed(space, arch, slot))
        if len(alive) > rivals.kept:
            crowded.append(Rivals(alive, rivals.kept))
    return crowded


def computed(space: Space, arch: Arch, slot: int) -> bool:
    return any(space.slots[slot].options[op] != NONE for op in arch.choice[slot])


def strongest(scores: Mapping[K, Score], keep: Keep, count: int) -> list[K]:
    """Whose absence hurts most; "printed" is line 8 taken literally.

    Ties are broken by the loss, then by order.
    """
    sign = 1
    if keep == "printed":
        sign = -1

    def by_score(candidate: K) -> tuple[float, float]:
        score = scores[candidate]
        return sign * score.accuracy, -sign * score.loss

    return sorted(scores, key=by_score)[:count]


def without(arch: Arch, slot: int, op: int) -> Arch:
    others = tuple(other for other in arch.choice[slot] if other != op)
    return applied(arch, [Decision(slot, others, {})])


def applied(arch: Arch, decisions: Sequence[Decision]) -> Arch:
    choice = list(arch.choice)
    for decision in decisions:
        choice[decision.slot] = decision.kept
    return replace(arch, choice=tuple(choice))


def by_validation(model: Model, data: Samples, batch: int) -> Scorer:
    """Scores variants of a model, in the mode of training or evaluation that it is in."""
    net = model.net
    assert isinstance(net, Supernet)
    if not len(data):
        raise ValueError("there is nothing to validate on")

    @torch.no_grad()
    def score(archs: Sequence[Arch]) -> list[Score]:
        joint = Joint(net, archs)
        correct = [0] * len(archs)
        losses = [0.0] * len(archs)
        for part in parts(data, batch):
            for number, answer in enumerate(joint(model.normalised(part.x))):
                correct[number] += int((answer.argmax(1) == part.y).sum())
                losses[number] += float(functional.cross_entropy(answer, part.y, reduction="sum"))
        scores = []
        for hits, loss in zip(correct, losses, strict=True):
            scores.append(Score(hits / len(data), finite(loss / len(data))))
        return scores

    return score


def parts(data: Samples, batch: int) -> Iterator[Samples]:
    """In order, each of at least a batch.

    BN takes its statistics from them, and must not meet one sample alone.
    """
    count = max(1, len(data) // max(2, batch))
    for x, y in zip(data.x.tensor_split(count), data.y.tensor_split(count), strict=True):
        yield replace(data, x=x, y=y)


def finite(loss: float) -> float:
    if isfinite(loss):
        return loss
    return WORST


def by_chance(generator: torch.Generator) -> Scorer:
    """The control: nothing is measured."""

    def score(archs: Sequence[Arch]) -> list[Score]:
        values = torch.rand(len(archs), generator=generator).tolist()
        return [Score(value, 0.0) for value in values]

    return score


def by_strength(
    space: Space,
    strength: Sequence[torch.Tensor],
    *,
    pruned: bool,
) -> list[Decision]:
    """Appendix C: what the magnitudes of softmax(α) say; if `pruned`, every node has two inputs."""
    rows = [row.detach().cpu().numpy() for row in strength]
    if pruned:
        choice = space.derive(rows).choice
        return [Decision(slot, kept, {}) for slot, kept in enumerate(choice)]
    decisions = []
    for number, (slot, row) in enumerate(zip(space.slots, rows, strict=True)):
        useful = [op for op, name in enumerate(slot.options) if name != NONE]
        largest = max(useful, key=lambda op: row[op])
        decisions.append(Decision(number, (largest,), {}))
    return decisions
