"""Decisions on validation samples: their options, what clients count, and how sums are merged.

Clients reply only sums over their validation samples (learning/judging.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.data.augmenting.augment import augmenter
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.formula import SampleCost
from fedloom.learning.judging import (
    Parts,
    ValidationSums,
    answers,
    disagreement,
    held_back,
    is_right,
    validation_sums,
)
from fedloom.learning.prior import log_prior
from fedloom.learning.training import StepOptions
from fedloom.records.decision import Decision
from fedloom.types import Fields, Json, Meta, Order, Reply, State, Task

# The augmentations that are tested, by kind of data.
CHANGES: Mapping[str, Sequence[str]] = {
    "image": ("flip", "crop:SHIFT", "rotate:10"),
    "speech": ("timeshift:SHIFT", "hiss:0.2", "timemask:MASK", "bandmask:MASK"),
}
OF_SIDE = {"SHIFT": 8, "MASK": 6}  # an amount in pixels or frames is the side divided by this

# The fields of replies: of training, of scoring several networks, of testing augmentations.
TRAINING_META = {"loss": float, "nll": float, "correct": int, "samples": int}
JUDGE_FIELDS = Fields(meta={"nll": list[float], "correct": list[int], "samples": int}, writes=False)
INVARIANCE_FIELDS = Fields(
    meta={"plain": int, "changed": list[int], "up": int, "down": int, "samples": int}, writes=False
)
PRIVACY_NOTES = (
    "Clients reply with sums over their validation samples: how many a network answers correctly, "
    "and the log-likelihood of their labels.",
    "A client's class proportions never leave it: they only shift its own scores.",
)


class DecisionOptions(StepOptions):
    """The client prior, augmentation by invariance, and the end of training."""

    prior: Literal["on", "off"] = Field(
        "on", description="add the logarithm of a client's own class proportions to its scores"
    )
    changes: Literal["decide", "none"] = Field(
        "decide",
        description="decide: choose augmentations by their effect on validation accuracy, unless "
        "augment= names them",
    )
    invariance: float = Field(
        0.9,
        gt=0,
        le=1,
        description="an augmentation is used if augmented validation samples keep at least this "
        "share of the accuracy that the network has beyond the most common class",
    )
    changes_after: float = Field(
        0.25,
        gt=0,
        lt=0.75,
        description="share of the budget that goes into the network before augmentations are "
        "tested on it",
    )
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="learning rate of the last phase; before that it is constant"
    )
    stop: Literal["plateau", "never"] = Field(
        "plateau", description="end training before its budget if validation stops improving"
    )
    window: int = Field(
        8,
        ge=1,
        description="least number of validation figures in each of the two windows that are "
        "compared; a third of all figures if that is more",
    )
    check_every: int = Field(3, ge=1, description="rounds between two validation figures")
    held_back: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="share of a client's training samples that is held back for decisions; the "
        "last phase trains on them too",
    )

    @property
    def decides_changes(self) -> bool:
        return self.changes == "decide" and self.augment == "none"


def shift_of(options: DecisionOptions, data: Samples, task: Task) -> torch.Tensor | None:
    """What a client's prior adds to the scores; None without a prior."""
    if not has_prior(options, task):
        return None
    return log_prior(data.y, len(task.labels))


def has_prior(options: DecisionOptions, task: Task) -> bool:
    return options.prior == "on" and task.kind != "regression"


def assumptions_of(options: DecisionOptions, task: Task) -> tuple[str, ...]:
    """What an exported network assumes about future data."""
    if not has_prior(options, task):
        return ()
    return (
        "How often each class came up in this client's training samples is part of its scores "
        "(of the shared model's, if it has no client: every class equally). Where classes come up "
        "in other proportions, its answers lean to those that were common here.",
    )


# Augmentations


def changes_for(task: Task) -> list[str]:
    """The augmentations that are tested on this kind of data."""
    if task.kind not in CHANGES:
        return []
    side = min(task.shape[1:])
    changes = []
    for text in CHANGES[task.kind]:
        for amount, part in OF_SIDE.items():
            text = text.replace(amount, str(max(1, side // part)))
        changes.append(text)
    return changes


def joined(changes: Sequence[str]) -> str:
    return "+".join(changes) or "none"


# Replies of clients


def sums_reply(order: Order, data: Samples, sums: Sequence[ValidationSums]) -> Reply:
    """A client's reply about several networks, all scored on the same samples."""
    meta = {
        "nll": [each.nll for each in sums],
        "correct": [each.correct for each in sums],
        "samples": sums[0].samples,
    }
    return Reply(order.client, weight=len(data), meta=meta)


def changes_reply(
    net: nn.Module, order: Order, data: Samples, options: DecisionOptions, run: ClientRun
) -> Reply:
    """How many validation samples a network answers correctly, plain and with each augmentation.

    `up` and `down` count the plain samples that only the network answers correctly, and those that
    only the client's most common class does: a network that has learnt nothing yet would pass every
    augmentation.
    """
    parts = held_back(data, options.held_back)
    validation = parts.validation
    if not len(validation):
        no_counts = {"plain": 0, "up": 0, "down": 0, "samples": 0}
        meta = {**no_counts, "changed": [0] * len(order.meta["changes"])}
        return Reply(order.client, weight=len(data), meta=meta)
    scores = answers(net, validation, run.device)
    against_common = disagreement(
        scores, most_common_class(parts, len(run.task.labels)), validation
    )
    changed = []
    for change in order.meta["changes"]:
        augment = augmenter(change, run.task.kind, run.task.mean, data.x)
        augmented = augment(validation.x, run.rng(f"change {change}"))
        changed.append(validation_sums(net, Samples(augmented, validation.y), run.device).correct)
    plain = int(is_right(scores, validation).sum())
    meta = {"plain": plain, "changed": changed, **against_common._asdict()}
    return Reply(order.client, weight=len(data), meta=meta)


def most_common_class(parts: Parts, classes: int) -> torch.Tensor:
    """Scores that give the client's most common class for every validation sample."""
    counts = torch.bincount(parts.train.y, minlength=classes)
    return counts.double().expand(len(parts.validation), -1)


def dishonest_sums(order: Order, networks: int, reply: Reply, samples: int) -> str | None:
    """Why these counts are impossible for a client with so many samples; None if they are not.

    `networks`: the number of networks in an order of kind "judge".
    """
    if order.kind == "judge" and len(reply.meta["nll"]) != networks:
        return "it scored a different number of networks than it was sent"
    if order.kind == "judge" and len(reply.meta["correct"]) != networks:
        return "its counts are for a different number of networks than it was sent"
    if order.kind == "invariance" and len(reply.meta["changed"]) != len(order.meta["changes"]):
        return "it tried a different number of augmentations than it was asked to"
    judged_samples = reply.meta.get("samples")
    if judged_samples is None:
        return None
    if judged_samples < 0:
        return f"it scored {judged_samples} samples"
    if judged_samples > samples:
        return f"it scored {judged_samples} samples, and has {samples} for training"
    return impossible_counts(reply.meta, judged_samples)


def impossible_counts(meta: Meta, samples: int) -> str | None:
    """Why so many validation samples cannot give these sums; None if they can."""
    for name in ("correct", "plain", "changed"):
        for count in as_counts(meta.get(name)):
            if not 0 <= count <= samples:
                return f"it counted {count} correct answers of {samples} samples"
    up = meta.get("up", 0)
    down = meta.get("down", 0)
    if min(up, down) < 0 or up + down > samples:
        return f"it counted {up} and {down} samples that only one network answers, of {samples}"
    for nll in as_counts(meta.get("nll")):
        if nll < 0:
            return f"it reported a negative log-likelihood of {nll:g}, which cannot be below 0"
    return None


def as_counts(value: Json) -> list[Any]:
    """The numbers in a field that holds one, several or none."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [value]


def judging_macs(cost: SampleCost, order: Order, reply: Reply) -> int:
    """The MACs that a client spent on scoring one network of an order."""
    times = 1
    if order.kind == "invariance":
        times += len(order.meta["changes"])
    elif order.kind == "compare":
        times += 1  # its own network of the trial
    return times * int(reply.meta.get("samples") or 0) * cost.forward


# Merging replies


def sums_in(reply: Reply, place: int) -> ValidationSums:
    meta = reply.meta
    return ValidationSums(meta["nll"][place], meta["correct"][place], meta["samples"])


def total(sums: Sequence[ValidationSums]) -> ValidationSums:
    return ValidationSums(
        sum(each.nll for each in sums),
        sum(each.correct for each in sums),
        sum(each.samples for each in sums),
    )


def loss_name(task: Task) -> str:
    """What counts of decisions call the sum by which networks are judged."""
    if task.kind == "regression":
        return "squared error"
    return "nll"


def sums_as_counts(sums: ValidationSums, loss: str) -> dict[str, Json]:
    """Sums in the form of a decision's counts. For numbers there is no right answer to count."""
    if loss == "nll":
        return dict(sums._asdict())
    return {loss: sums.nll, "samples": sums.samples}


def decision(what: str, options: Sequence[str], counts: Json, chosen: str) -> dict[str, Json]:
    """A decision in the form of result.json."""
    return {"decision": what, "options": list(options), "counts": counts, "chosen": chosen}


def decisions_in(state: State) -> tuple[Decision, ...]:
    return tuple(Decision.model_validate(taken) for taken in state.meta["decisions"])
