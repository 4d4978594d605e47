"""SPIDER, a client's search: Algorithm 2 by perturbation, or appendix C by gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from fedloom.cost.meter import searching
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.optimizers import Sgd, remembered
from fedloom.learning.training import (
    AfterBackward,
    converging,
    sgd,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.methods.spider_options import SpiderOptions
from fedloom.methods.spider_private import PrivateModel
from fedloom.nets.model import Model
from fedloom.searchers import perturbation
from fedloom.searchers.milenas import MiLeNAS, endless
from fedloom.searchers.perturbation import Score, Scorer
from fedloom.spaces import space_for
from fedloom.spaces.mixed import Mixed
from fedloom.types import ALPHA, Arch


def with_due_decisions(
    private: PrivateModel,
    due: int,
    validation: Samples,
    options: SpiderOptions,
    run: ClientRun,
) -> PrivateModel:
    """Decides all that has become due since this client's last round."""
    with searching():
        if options.by_gradient:
            if due and private.alpha:
                return derived(private, options, run)
            return private
        score = scorer_of(private, validation, options, run)
        private = with_edges_decided(private, due, score, options, run)
        if options.prune_edges and due == options.events and not private.pruned:
            private = with_inputs_pruned(private, score, options, run)
        return private


# Algorithm 2, the search by perturbation


def with_edges_decided(
    private: PrivateModel,
    due: int,
    score: Scorer,
    options: SpiderOptions,
    run: ClientRun,
) -> PrivateModel:
    """Decides every edge that is due (lines 4–9)."""
    edges = options.slot_groups
    draw = run.rng("edges")
    while private.open_edges and len(edges) - len(private.open_edges) < due:
        position = int(torch.randint(len(private.open_edges), (), generator=draw))  # line 4
        edge = private.open_edges[position]
        slots = edges[edge]
        keep = options.keep
        arch, decisions = perturbation.decide(private.arch, slots, score, keep)  # lines 6–9
        private = private.decided(arch, decisions, options, run.round)
        still_open = tuple(other for other in private.open_edges if other != edge)
        private = replace(private, open_edges=still_open)
    return private


def with_inputs_pruned(
    private: PrivateModel,
    score: Scorer,
    options: SpiderOptions,
    run: ClientRun,
) -> PrivateModel:
    """Every node keeps its strongest inputs."""
    space = space_for(options)
    arch, decisions = perturbation.prune(space, private.arch, score, options.keep)
    private = private.decided(arch, decisions, options, run.round)
    return replace(private, pruned=True)


def scorer_of(
    private: PrivateModel,
    validation: Samples,
    options: SpiderOptions,
    run: ClientRun,
) -> Scorer:
    """Returns a scorer of a copy of v: BN in training mode would change v's running statistics.

    The copy is built when the first score is needed.
    """
    if options.search == "random":
        return perturbation.by_chance(run.rng("chance"))

    @cache
    def scorer_of_copy() -> Scorer:
        v = private.network(options, run.task).to(run.device)
        training_mode(v, options.bn)
        return perturbation.by_validation(v, validation.to(run.device), options.batch)

    def score(archs: Sequence[Arch]) -> list[Score]:
        if not archs:
            return []
        return scorer_of_copy()(archs)

    return score


# Appendix C, the search by gradients


def trained_by_gradient(
    private: PrivateModel,
    v: Model,
    lr: float,
    pull: AfterBackward | None,
    training: Samples,
    validation: Samples,
    options: SpiderOptions,
    run: ClientRun,
) -> PrivateModel:
    """Trains (v, α) by MiLeNAS, with a step of α for every step of v."""
    alpha = {}
    for name, row in private.alpha.items():
        alpha[name] = row.to(run.device, copy=True).requires_grad_()
    v_optimizer = sgd(v, options, lr, private.momentum)
    mixed = Mixed(v, alpha)
    searcher = MiLeNAS(
        v,
        alpha,
        mixed.mix_to_train,
        v_optimizer,
        Sgd(alpha, options.alpha_lr),
        lam=options.alpha_lam,
        clip=options.clip,
        order="simultaneous",
        forward_both=mixed.mix_both_to_train,
        after_backward=pull,
    )
    training_mode(v, options.bn)
    validation_batches = endless(
        validation.to(run.device),
        options.batch,
        run.rng("validation batches"),
    )
    losses = []
    for batch in training_batches(training, options, run):
        losses.append(searcher.step(batch, next(validation_batches)))
    weights = weights_of(v)
    for name, row in alpha.items():
        weights[f"{ALPHA}{name}"] = row.detach().cpu().clone()
    converging(sum(losses) / max(1, len(losses)), weights)
    return replace(private, weights=weights, momentum=remembered(v_optimizer))


def derived(private: PrivateModel, options: SpiderOptions, run: ClientRun) -> PrivateModel:
    """Derives the network from α, which is not needed any more."""
    rows = list(private.alpha.values())
    if options.search == "random":
        chance = run.rng("chance")
        rows = [torch.rand(len(row), generator=chance) for row in rows]
    strength = [torch.softmax(row, 0) for row in rows]
    space = space_for(options)
    decisions = perturbation.by_strength(space, strength, pruned=options.prune_edges)
    arch = perturbation.applied(private.arch, decisions)
    weights = {}
    for name, tensor in private.weights.items():
        if not name.startswith(ALPHA):
            weights[name] = tensor
    private = private.decided(arch, decisions, options, run.round)
    return replace(private, weights=weights)
