"""Two inputs, two classes, weights that start at zero: every number of a round can be written down."""

import torch
from torch import nn


class Zero(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, shape[-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ self.weight.T
