"""The local search of a client: MiLeNAS steps on the weights and the α that it received."""

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
    """The options of α's training."""

    alpha_optimizer: Literal["adam", "sgd"] = Field(
        "adam",
        description="optimiser of α; plain SGD is for exact comparisons",
    )
    alpha_lr: float = Field(3e-4, gt=0, description="learning rate of α")
    alpha_weight_decay: float = Field(1e-3, ge=0, description="weight decay of α")
    lam: float = Field(1.0, ge=0, description="λ of Eq. 4: multiplies the validation gradient of α")
    order: UpdateOrder = Field(
        "simultaneous",
        description="w and α together (Eq. 4), or w first (Algorithm 1)",
    )
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
    """The options of a client's search: the training of w and of α."""


@dataclass(frozen=True)
class Searched:
    """The result of a client's search."""

    tensors: dict[str, torch.Tensor]  # w and α
    memory: dict[str, torch.Tensor]  # the state of both optimisers
    loss: float


def local_search(
    mixed: Mixed,
    memory: Tensors,
    data: Samples,
    options: SearchingOptions,
    lr: float,
    run: ClientRun,
) -> Searched:
    """Takes steps of Eq. 4 on w and on α (FedNAS, lines 9–15 of Algorithm 1; FINCH, Eq. 4).

    `memory` is the state of both optimisers after an earlier search.
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
    """Returns α's optimiser; Adam continues with the moments in `memory`, by slot name."""
    if options.alpha_optimizer == "sgd":
        return Sgd(alpha, options.alpha_lr, weight_decay=options.alpha_weight_decay)
    return Adam(
        alpha,
        options.alpha_lr,
        betas=(0.5, 0.999),
        weight_decay=options.alpha_weight_decay,
        memory=without_prefix(ADAM, memory),
    )
