"""The loss that clients train with.

That is cross entropy, for symbols at every position of a window, and for labels that are numbers
the mean squared error.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.data.samples import Samples


def training_loss(scores: torch.Tensor, batch: Samples) -> torch.Tensor:
    """The mean over samples, and over positions where there are scores of each of them.

    `scores` are those of `spaces.paths.training_scores`.
    """
    if batch.y.is_floating_point():
        return functional.mse_loss(scores[:, 0], batch.y)
    if scores.dim() == 2:
        return functional.cross_entropy(scores, batch.y)
    return functional.cross_entropy(scores.flatten(0, 1), next_symbols(batch).flatten())


def next_symbols(batch: Samples) -> torch.Tensor:
    """What follows each symbol of a window: the window shifted by one, and the label."""
    return torch.cat([batch.x[:, 1:].long(), batch.y.unsqueeze(1)], dim=1)
