"""The loss that clients train with.

It is cross-entropy for classes and for text, there at every position of a window, and the mean
squared error for labels that are numbers.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.data.samples import Samples


def training_loss(scores: torch.Tensor, batch: Samples) -> torch.Tensor:
    """Returns the mean over samples and, if there are scores for every position, over positions.

    `scores` are those of `spaces.paths.training_scores`.
    """
    if batch.y.is_floating_point():
        return functional.mse_loss(scores[:, 0], batch.y)
    if scores.dim() == 2:
        return functional.cross_entropy(scores, batch.y)
    return functional.cross_entropy(scores.flatten(0, 1), next_symbols(batch).flatten())


def next_symbols(batch: Samples) -> torch.Tensor:
    """Returns what follows each symbol of a window: the window shifted by one, then the label."""
    return torch.cat([batch.x[:, 1:].long(), batch.y.unsqueeze(1)], dim=1)
