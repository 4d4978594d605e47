"""Search by perturbation: an operation is worth the loss in accuracy when it is left out.

Wang, Cheng, Chen, Tang, Hsieh, "Rethinking Architecture Selection in Differentiable NAS", ICLR
2021, edge by edge as in SPIDER's Algorithm 2.

Each live operation of an edge is left out in turn, and the network is scored on validation data. No
gradients are computed, operations that were removed by decisions are not computed, and what the
variants share is computed once.
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
from fedloom.spaces.space import NONE, Rivals, Slot, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

if TYPE_CHECKING:
    import numpy as np

    from fedloom.data.samples import Samples

Keep = Literal["impact", "printed"]
WORST = 1e30  # stands for a loss that is not finite, which files cannot hold
K = TypeVar("K")  # an operation or a slot, whichever is scored


class Score(NamedTuple):
    """The score on validation data of a network without an operation or a slot."""

    accuracy: float
    loss: float


Scorer = Callable[[Sequence[Arch]], list[Score]]


@dataclass(frozen=True)
class Decision:
    """The operations that are kept in a slot, and the scores without each of the candidates."""

    slot: int
    kept: tuple[int, ...]
    without: Mapping[int, Score]

    def noted(self, space: Space, number: int) -> NotedDecision:
        """Returns a record with the names of operations and the round of the decision."""
        name, options = space.slots[self.slot]
        without = {}
        for op, score in self.without.items():
            without[options[op]] = NotedScore(accuracy=score.accuracy, loss=score.loss)
        kept_options = [options[op] for op in self.kept]
        return NotedDecision(round=number, slot=name, kept=kept_options, without=without)


class Candidate(NamedTuple):
    """An operation of a slot that a decision may remove."""

    slot: int
    op: int


def edges(space: Space, *, paired: bool) -> list[tuple[int, ...]]:
    """Returns the slots that are decided at the same time: paired slots, or single slots."""
    if paired:
        return space.together()
    return space.one_by_one()


def decide(
    arch: Arch,
    slots: Sequence[int],
    score: Scorer,
    keep: Keep,
) -> tuple[Arch, list[Decision]]:
    """Lines 6–9 of Algorithm 2: keeps one operation in each slot.

    All slots are scored in the same network.
    """
    candidates = candidates_of(arch, slots)
    variants = [without(arch, candidate) for candidate in candidates]
    scores = dict(zip(candidates, score(variants), strict=True))
    decisions = []
    for slot in slots:
        slot_scores = {}
        for candidate, candidate_score in scores.items():
            if candidate.slot == slot:
                slot_scores[candidate.op] = candidate_score
        operations = arch.choice[slot]
        if slot_scores:
            operations = tuple(strongest(slot_scores, keep, 1))
        decisions.append(Decision(slot, operations, slot_scores))
    return applied(arch, decisions), decisions


def candidates_of(arch: Arch, slots: Sequence[int]) -> list[Candidate]:
    """Returns the operations of all slots that have more than one."""
    candidates = []
    for slot in slots:
        live = arch.choice[slot]
        if len(live) > 1:
            candidates += [Candidate(slot, op) for op in live]
    return candidates


def prune(space: Space, arch: Arch, score: Scorer, keep: Keep) -> tuple[Arch, list[Decision]]:
    """Keeps the strongest inputs of every node, as many as the space allows.

    Those are the inputs without which the network is worst.
    """
    crowded = crowded_nodes(space, arch)
    candidates: list[int] = []
    for rivals in crowded:
        candidates += rivals.slots
    variants = [with_operations(arch, slot, ()) for slot in candidates]
    scores = dict(zip(candidates, score(variants), strict=True))
    kept_slots: set[int] = set()
    for rivals in crowded:
        node_scores = {slot: scores[slot] for slot in rivals.slots}
        kept_slots.update(strongest(node_scores, keep, rivals.kept))
    decisions = []
    for slot in candidates:
        live = arch.choice[slot]
        operations: tuple[int, ...] = ()
        if slot in kept_slots:
            operations = live
        decisions.append(Decision(slot, operations, {live[0]: scores[slot]}))
    return applied(arch, decisions), decisions


def crowded_nodes(space: Space, arch: Arch) -> list[Rivals]:
    """Returns the nodes with more live inputs than they may keep, each with those inputs."""
    crowded = []
    for rivals in space.rivals():
        alive = tuple(slot for slot in rivals.slots if is_alive(space, arch, slot))
        if len(alive) > rivals.kept:
            crowded.append(Rivals(alive, rivals.kept))
    return crowded


def is_alive(space: Space, arch: Arch, slot: int) -> bool:
    """Whether a slot has an operation other than `none`."""
    options = space.slots[slot].options
    return any(options[op] != NONE for op in arch.choice[slot])


def strongest(scores: Mapping[K, Score], keep: Keep, count: int) -> list[K]:
    """Returns the candidates without which the network is worst; "printed" is line 8 literally.

    Ties are broken by the loss, then by order.
    """
    sign = 1
    if keep == "printed":
        sign = -1

    def by_score(candidate: K) -> tuple[float, float]:
        score = scores[candidate]
        return sign * score.accuracy, -sign * score.loss

    return sorted(scores, key=by_score)[:count]


def without(arch: Arch, candidate: Candidate) -> Arch:
    """Returns the architecture without one operation of a slot."""
    operations = list(arch.choice[candidate.slot])
    operations.remove(candidate.op)
    return with_operations(arch, candidate.slot, tuple(operations))


def applied(arch: Arch, decisions: Sequence[Decision]) -> Arch:
    """Returns the architecture after these decisions."""
    for decision in decisions:
        arch = with_operations(arch, decision.slot, decision.kept)
    return arch


def with_operations(arch: Arch, slot: int, operations: tuple[int, ...]) -> Arch:
    """Returns the architecture with these operations in a slot."""
    choice = list(arch.choice)
    choice[slot] = operations
    return replace(arch, choice=tuple(choice))


def by_validation(model: Model, data: Samples, batch: int) -> Scorer:
    """Returns a scorer of variants of a model, in its current mode (training or evaluation)."""
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
        for correct_count, loss in zip(correct, losses, strict=True):
            scores.append(Score(correct_count / len(data), finite(loss / len(data))))
        return scores

    return score


def parts(data: Samples, batch: int) -> Iterator[Samples]:
    """Yields the samples in order, in parts of at least one batch.

    BN takes its statistics from them, and must not get a single sample.
    """
    count = max(1, len(data) // max(2, batch))
    for x, y in zip(data.x.tensor_split(count), data.y.tensor_split(count), strict=True):
        yield replace(data, x=x, y=y)


def finite(loss: float) -> float:
    if isfinite(loss):
        return loss
    return WORST


def by_chance(generator: torch.Generator) -> Scorer:
    """Returns a scorer that draws random scores: the control."""

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
    """Appendix C: decides by the magnitudes of softmax(α); `pruned` keeps two inputs per node."""
    rows = []
    for tensor in strength:
        rows.append(tensor.detach().cpu().numpy())
    choice: list[tuple[int, ...]] = []
    if pruned:
        choice += space.derive(rows).choice
    else:
        for slot, row in zip(space.slots, rows, strict=True):
            choice.append((strongest_operation(slot, row),))
    return [Decision(slot, operations, {}) for slot, operations in enumerate(choice)]


def strongest_operation(slot: Slot, strength: np.ndarray) -> int:
    """Returns the operation of the largest strength, `none` aside; of equals, the first."""
    operations = []
    for op, name in enumerate(slot.options):
        if name != NONE:
            operations.append(op)
    return max(operations, key=lambda op: strength[op])
