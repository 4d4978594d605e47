"""A client's own search: steps of MiLeNAS on the weights and the α that it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.optimizers import Adam, Optimizer, Sgd, remembered
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import (
    ADAM,
    MOMENTUM,
    StepOptions,
    converging,
    least_samples,
    sgd,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.options import Options
from fedloom.searchers.milenas import MiLeNAS, UpdateOrder, endless
from fedloom.spaces.mixed import Mixed
from fedloom.types import ALPHA, Tensors


class AlphaOptions(Options):
    """How α learns."""

    alpha_optimizer: Literal["adam", "sgd"] = Field(
        "adam",
        description="of α; plain SGD is for exact comparisons",
    )
    alpha_lr: float = Field(3e-4, gt=0, description="learning rate of α")
    alpha_weight_decay: float = Field(1e-3, ge=0, description="weight decay of α")
    lam: float = Field(1.0, ge=0, description="λ of Eq. 4: multiplies the validation gradient of α")
    order: UpdateOrder = Field("simultaneous", description="Eq. 4, or Algorithm 1's w first")
    train_share: float = Field(
        0.5,
        ge=0.05,
        le=0.95,
        description="share of a client's data for w; the rest is for α",
    )

    @property
    def least_samples(self) -> int:
        return least_samples(self.train_share)


class SearchingOptions(AlphaOptions, StepOptions):
    """A client's search: how w and α learn."""


@dataclass(frozen=True)
class Searched:
    """What a client's search leaves."""

    tensors: dict[str, torch.Tensor]  # w and α
    memory: dict[str, torch.Tensor]  # of both optimisers
    loss: float


def local_search(
    mixed: Mixed,
    memory: Tensors,
    data: Samples,
    options: SearchingOptions,
    lr: float,
    run: ClientRun,
) -> Searched:
    """Steps of Eq. 4 on w and on α (FedNAS, lines 9–15 of Algorithm 1; FINCH, Eq. 4).

    `memory` is what the optimisers remember, as an earlier search left it.
    """
    net = mixed.model
    net.to(run.device)
    alpha = {}
    for name, row in mixed.alpha.items():
        alpha[name] = row.to(run.device, copy=True).requires_grad_()
    w_optimizer = sgd(net, options, lr, without_prefix(MOMENTUM, memory))
    alpha_optimizer = optimizer_of(alpha, options, memory)
    searcher = MiLeNAS(
        net,
        alpha,
        mixed.mix_to_train,
        w_optimizer,
        alpha_optimizer,
        lam=options.lam,
        clip=options.clip,
        order=options.order,
        forward_both=mixed.mix_both_to_train,
    )
    training_mode(net, options.bn)
    train_part, validation_part = data.split(options.train_share)
    validation = endless(
        validation_part.to(run.device),
        options.batch,
        run.rng("validation batches"),
    )
    losses = []
    for batch in training_batches(train_part.to(run.device), options, run):
        losses.append(searcher.step(batch, next(validation)))
    new_tensors = weights_of(net)
    for name, row in alpha.items():
        new_tensors[f"{ALPHA}{name}"] = row.detach().cpu().clone()
    loss = converging(sum(losses) / max(1, len(losses)), new_tensors)
    new_memory = {
        **with_prefix(MOMENTUM, remembered(w_optimizer)),
        **with_prefix(ADAM, remembered(alpha_optimizer)),
    }
    return Searched(new_tensors, new_memory, loss)


def optimizer_of(
    alpha: Mapping[str, torch.Tensor],
    options: SearchingOptions,
    memory: Tensors,
) -> Optimizer:
    """α's optimiser; Adam's moments go on from `memory`, by slot name."""
    if options.alpha_optimizer == "sgd":
        return Sgd(alpha, options.alpha_lr, weight_decay=options.alpha_weight_decay)
    return Adam(
        alpha,
        options.alpha_lr,
        betas=(0.5, 0.999),
        weight_decay=options.alpha_weight_decay,
        memory=without_prefix(ADAM, memory),
    )
