"""Applies a head to the last map of a network. nets/heads.py describes the heads."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.nets.heads import SIDE, Head


def as_vector(x: torch.Tensor, head: Head) -> torch.Tensor:
    """Turns a map into a vector."""
    if head == "grid":
        return functional.adaptive_avg_pool2d(x, SIDE).flatten(1)
    return x.mean((2, 3))
