"""SPIDER: the private model of a client, as its state holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedloom.learning.private_state import momentum_in, weights_in, with_prefix
from fedloom.learning.training import MOMENTUM, weights_of
from fedloom.methods.spider_options import SpiderOptions
from fedloom.nets.model import Model
from fedloom.records.decision import NotedDecision
from fedloom.searchers.perturbation import Decision
from fedloom.spaces import space_for
from fedloom.spaces.mixed import alpha_in, fresh_alpha, supernet_model
from fedloom.types import ALPHA, Arch, State, Task, Tensors


@dataclass(frozen=True)
class PrivateModel:
    """A client's private state: v_k, its optimiser, A_k and the decisions that led to A_k."""

    weights: Tensors
    momentum: Tensors
    arch: Arch
    open_edges: tuple[int, ...]  # still to be decided
    decisions: tuple[NotedDecision, ...] = ()
    pruned: bool = False
    diverged: int = 0  # rounds whose training of v was undone

    @classmethod
    def of(cls, own: State | None, options: SpiderOptions, task: Task) -> PrivateModel:
        if own is None:
            return cls.first(options, task)
        return cls(
            weights=weights_in(own),
            momentum=momentum_in(own),
            arch=Arch.from_plain(own.meta["arch"]),
            open_edges=tuple(own.meta["open"]),
            decisions=decisions_of(own),
            pruned=own.meta["pruned"],
            diverged=own.meta["diverged"],
        )

    @classmethod
    def first(cls, options: SpiderOptions, task: Task) -> PrivateModel:
        """Returns the model before a client's first round: v starts from the seed, not from w."""
        weights = weights_of(supernet_model(task, options))
        edges = len(options.slot_groups)
        if options.by_gradient:  # α decides on all edges at once
            weights |= fresh_alpha(options, task.seed)
            edges = 0
        return cls(weights, {}, space_for(options).full(), tuple(range(edges)))

    def state(self) -> State:
        meta = {
            "arch": self.arch.to_plain(),
            "open": list(self.open_edges),
            "decisions": [decision.to_json() for decision in self.decisions],
            "pruned": self.pruned,
            "diverged": self.diverged,
        }
        return State({**self.weights, **with_prefix(MOMENTUM, self.momentum)}, meta)

    def decided(
        self,
        arch: Arch,
        decisions: Sequence[Decision],
        options: SpiderOptions,
        number: int,
    ) -> PrivateModel:
        """Returns the model with the decisions of round `number`.

        Weights and momentum of dead operations are removed when v is next trained.
        """
        space = space_for(options)
        new_decisions = tuple(decision.noted(space, number) for decision in decisions)
        return replace(self, arch=arch, decisions=self.decisions + new_decisions)

    @property
    def alpha(self) -> dict[str, torch.Tensor]:
        """The architecture parameters of appendix C, until a network is derived from them."""
        return alpha_in(self.weights)

    def network(self, options: SpiderOptions, task: Task) -> Model:
        """Returns the supernet with v_k and the operations of A_k."""
        return supernet_model(task, options, arch=self.arch, weights=self.weights)

    def without_dead_weights(self, v: Model) -> PrivateModel:
        """Returns the model with only α and the weights of operations that are alive in `v`."""
        weights = {name: self.weights[name] for name in v.state_dict()}
        return replace(self, weights={**weights, **with_prefix(ALPHA, self.alpha)})


def decisions_of(own: State) -> tuple[NotedDecision, ...]:
    return tuple(NotedDecision.checked(noted, {}) for noted in own.meta["decisions"])
