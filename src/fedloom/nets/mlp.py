"""The network for tables: two hidden layers, both scaled by the width factor."""

import torch
from torch import nn

from fedloom.data.checks import TABLES
from fedloom.nets.nesting import nests

FIRST = 128
SECOND = 64


@nests
class MLP(nn.Module):
    """Two hidden layers of 128 and 64 with ReLU, a linear classifier; for tables."""

    kinds = TABLES

    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        (inputs,) = shape
        first = max(1, round(FIRST * width))
        second = max(1, round(SECOND * width))
        self.features = nn.Sequential(
            nn.Linear(inputs, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(second, classes)
        self.architecture = f"mlp:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(x))
        return scores
