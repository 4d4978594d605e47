"""Recurrent cells that torch does not have.

They loop over time, which torch.fx cannot trace, so an export copies their source:
nets/standalone.py says what such a class must be like.
"""

from __future__ import annotations

import torch
from torch import nn

from fedloom.nets.standalone import mark_standing_alone


class LiGRU(nn.Module):
    """A light GRU (Ravanelli et al. 2018) without BN: h ← σ(u)·h + (1 − σ(u))·tanh(a)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 2 * hidden, bias=False)
        self.from_state = nn.Linear(hidden, 2 * hidden, bias=False)
        if not self.from_state.weight.is_meta:  # where only sizes are asked for
            nn.init.orthogonal_(self.from_state.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], self.hidden)
        states = []
        for projected in self.from_input(x).unbind(1):
            candidate, update = (projected + self.from_state(state)).chunk(2, 1)
            kept = torch.sigmoid(update)
            state = kept * state + (1 - kept) * torch.tanh(candidate)
            states.append(state)
        return torch.stack(states, 1)


class QuasiRNN(nn.Module):
    """A quasi-recurrent network (Bradbury et al. 2017): c ← f·z + (1 − f)·c, h = o·c. Window 1."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.gates = nn.Linear(inputs, 3 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        candidates, updates, outputs = self.gates(x).chunk(3, 2)
        new = torch.tanh(candidates)
        share = torch.sigmoid(updates)
        memory = x.new_zeros(x.shape[0], self.hidden)
        memories = []
        for number in range(x.shape[1]):
            memory = share[:, number] * new[:, number] + (1 - share[:, number]) * memory
            memories.append(memory)
        return torch.sigmoid(outputs) * torch.stack(memories, 1)


mark_standing_alone(LiGRU)
mark_standing_alone(QuasiRNN)
