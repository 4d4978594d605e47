"""What a network's head does to its last map. Which heads there are: nets/heads.py."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.nets.heads import SIDE, Head


def as_vector(x: torch.Tensor, head: Head) -> torch.Tensor:
    """A map as a vector."""
    if head == "grid":
        return functional.adaptive_avg_pool2d(x, SIDE).flatten(1)
    return x.mean((2, 3))
