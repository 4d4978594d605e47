"""Adaptive Federated Optimization (Reddi et al., ICLR 2021), Algorithm 2: FedAdagrad, FedYogi,
FedAdam.

The difference between the mean of the replies and the old weights is a pseudo-gradient Δ for a
server-side optimiser. This holds for parameters only: running statistics and counters stay plain
means. A tensor to which no reply contributed this round has no Δ, so neither it nor its moments
move. Any method can call `ServerOptimizer.step(state, mean, parameters, merged)` instead of taking
the mean as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from fedloom.federation.protocol.method import SERVER
from fedloom.types import State, Tensors

Rule = Literal["mean", "adagrad", "yogi", "adam"]


@dataclass(frozen=True)
class ServerOptimizer:
    rule: Rule
    lr: float  # η
    beta1: float
    beta2: float
    tau: float  # τ, the adaptivity: larger is closer to plain averaging

    def step(
        self,
        state: State,
        mean: Tensors,
        parameters: Collection[str],
        merged: Mapping[str, torch.Tensor | None] | None = None,
    ) -> State:
        """Returns the state after moving `parameters` along Δ and taking the mean of all else.

        `merged` has the names of the tensors that have a mean, with a mask if only some of their
        elements have one (`Fold.merged`). None: all tensors have one.
        """
        tensors = {**state.tensors, **mean}
        if self.rule == "mean":
            return State(tensors, state.meta)
        for name in parameters:
            if merged is None:
                tensors |= self._move(state, name, mean[name], None)
            elif name in merged:
                tensors |= self._move(state, name, mean[name], merged[name])
        return State(tensors, state.meta)

    def _move(
        self,
        state: State,
        name: str,
        mean: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> Tensors:
        """Returns one parameter and its moments. Where the mask is false, they do not change."""
        old = state.tensors[name]
        delta = mean - old
        start_m = torch.zeros_like(old)
        start_v = torch.full_like(old, self.tau**2)  # v₋₁ ≥ τ²
        old_m = state.tensors.get(f"{SERVER}m/{name}", start_m)
        old_v = state.tensors.get(f"{SERVER}v/{name}", start_v)
        m = self.beta1 * old_m + (1 - self.beta1) * delta
        v = self._second_moment(old_v, delta.square())
        new = old + self.lr * m / (v.sqrt() + self.tau)
        if mask is not None:
            new = torch.where(mask, new, old)
            m = torch.where(mask, m, old_m)
            v = torch.where(mask, v, old_v)
        return {name: new, f"{SERVER}m/{name}": m, f"{SERVER}v/{name}": v}

    def _second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """v of Algorithm 2, which is where its three methods differ."""
        if self.rule == "adagrad":
            return v + square
        if self.rule == "yogi":
            return v - (1 - self.beta2) * square * torch.sign(v - square)
        return self.beta2 * v + (1 - self.beta2) * square
