"""Decisions on samples that clients hold back: their options, their counts, and how a client tries.

What clients reply to be decided by are sums over those samples (learning/judging.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.data.augmenting.augment import augmenter
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.judging import Judged, held_back, judged
from fedloom.learning.prior import log_prior
from fedloom.learning.training import StepOptions
from fedloom.records.decision import Decision
from fedloom.types import Fields, Json, Order, Reply, State, Task

# Changes of samples that a network may be asked to bear, by kind of data.
CHANGES: Mapping[str, Sequence[str]] = {
    "image": ("flip", "crop:SHIFT", "rotate:10"),
    "speech": ("timeshift:SHIFT", "hiss:0.2", "timemask:MASK", "bandmask:MASK"),
}
OF_SIDE = {"SHIFT": 8, "MASK": 6}  # an amount in pixels or frames: the side over this

# What replies hold, by kind of order: to train, to judge several networks, to try changes.
TRAINING_META = ("loss", "nll", "correct", "samples")
JUDGE_FIELDS = Fields(meta={"nll": list[float], "correct": list[int], "samples": int}, writes=False)
INVARIANCE_FIELDS = Fields(meta={"plain": int, "changed": list[int], "samples": int}, writes=False)
PRIVACY_NOTES = (
    "Clients reply sums over their validation samples: how many a network answers rightly and "
    "how likely it finds their labels.",
    "A client's proportions of classes stay with it: they are part of its scores alone.",
)


class DecisionOptions(StepOptions):
    """The client prior, augmentation by invariance, and the end of training."""

    prior: Literal["on", "off"] = Field(
        "on", description="a client's own proportions of classes, in its loss and in its answers"
    )
    changes: Literal["decide", "none"] = Field(
        "decide",
        description="augmentation by what the network bears on validation; what augment= says is "
        "not decided again",
    )
    invariance: float = Field(
        0.9,
        gt=0,
        le=1,
        description="a change of samples is trained with if validation accuracy on changed samples "
        "is at least this share of the plain one",
    )
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="of the learning rate at the end; until then it is constant"
    )
    stop: Literal["plateau", "never"] = Field(
        "plateau", description="training ends before its budget if validation stops improving"
    )
    window: int = Field(
        8,
        ge=1,
        description="validation figures, at least, whose mean is compared with that of as many "
        "before them; a third of all, if that is more",
    )
    check_every: int = Field(3, ge=1, description="rounds between two validation figures")
    held_back: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="share of a client's training samples that decisions are made on; the last "
        "part of training has them too",
    )

    @property
    def decides_changes(self) -> bool:
        return self.changes == "decide" and self.augment == "none"


def shift_of(options: DecisionOptions, data: Samples, task: Task) -> torch.Tensor | None:
    """What a client's prior adds to the scores; None: nothing, as for numbers."""
    if not has_prior(options, task):
        return None
    return log_prior(data.y, len(task.labels))


def has_prior(options: DecisionOptions, task: Task) -> bool:
    return options.prior == "on" and task.kind != "regression"


def assumptions_of(options: DecisionOptions, task: Task) -> tuple[str, ...]:
    """What an exported network takes for granted."""
    if not has_prior(options, task):
        return ()
    return (
        "How often each class came up in this client's training samples is part of its scores "
        "(of the shared model's, if it has no client: every class equally). Where classes come up "
        "in other proportions, its answers lean to those that were common here.",
    )


# Changes of samples


def changes_for(task: Task) -> list[str]:
    """The changes that are tried on such samples."""
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


def sums_reply(order: Order, data: Samples, sums: Sequence[Judged]) -> Reply:
    """What a client says of several networks, all judged on the same samples."""
    meta = {
        "nll": [each.nll for each in sums],
        "correct": [each.correct for each in sums],
        "samples": sums[0].samples,
    }
    return Reply(order.client, weight=len(data), meta=meta)


def changes_reply(
    net: nn.Module, order: Order, data: Samples, options: DecisionOptions, run: ClientRun
) -> Reply:
    """How many validation samples a network answers rightly, plain and after each change."""
    validation = held_back(data, options.held_back).validation
    changed = []
    for change in order.meta["changes"]:
        samples = validation
        if len(validation):
            change_all = augmenter(change, run.task.kind, run.task.mean, data.x)
            moved = change_all(validation.x, run.rng(f"change {change}"))
            samples = Samples(moved, validation.y)
        changed.append(judged(net, samples, run.device).correct)
    plain = judged(net, validation, run.device).correct
    meta = {"plain": plain, "changed": changed, "samples": len(validation)}
    return Reply(order.client, weight=len(data), meta=meta)


def dishonest_sums(order: Order, networks: int, reply: Reply, samples: int) -> str | None:
    """Why a client of so many samples cannot have counted this, or None.

    `networks`: how many an order of kind "judge" brought.
    """
    if order.kind == "judge" and len(reply.meta["nll"]) != networks:
        return "it judged another number of networks than it was sent"
    if order.kind == "judge" and len(reply.meta["correct"]) != networks:
        return "it counted for another number of networks than it was sent"
    if order.kind == "invariance" and len(reply.meta["changed"]) != len(order.meta["changes"]):
        return "it tried another number of changes than it was asked for"
    judged_samples = reply.meta.get("samples")
    if judged_samples is not None and judged_samples > samples:
        return f"it judged {judged_samples} samples and trains on {samples}"
    return None


# What the server makes of them


def judged_in(reply: Reply, place: int) -> Judged:
    meta = reply.meta
    return Judged(meta["nll"][place], meta["correct"][place], meta["samples"])


def total(sums: Sequence[Judged]) -> Judged:
    return Judged(
        sum(each.nll for each in sums),
        sum(each.correct for each in sums),
        sum(each.samples for each in sums),
    )


def decision(what: str, options: Sequence[str], counts: Json, chosen: str) -> dict[str, Json]:
    """A decision as result.json has it."""
    return {"decision": what, "options": list(options), "counts": counts, "chosen": chosen}


def decisions_in(state: State) -> tuple[Decision, ...]:
    return tuple(Decision.model_validate(taken) for taken in state.meta["decisions"])
