"""Samples operations by the straight-through Gumbel-softmax (Jang, Gu, Poole 2016; FedPNAS, Eq. 3).

    Z = one-hot argmax(log π + g),    ∇Z ≈ ∇ softmax((log π + g) / τ)

The factor of the sampled operation is exactly 1. The gradient of the factor is that of its entry of
the softmax. The other operations are not computed, and have no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

SMALLEST = 1e-20  # keeps the logarithms of a uniform draw finite


class DrawnOps(NamedTuple):
    """The sampled operations and their factors."""

    ops: torch.Tensor  # the numbers of the options
    factors: torch.Tensor  # 1, with the gradient of the softmax at that option


def gumbel_noise(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    exponential = -torch.log(uniform.clamp_min(SMALLEST))
    return -torch.log(exponential.clamp_min(SMALLEST)).to(torch.get_default_dtype())


def straight_through(log_pi: torch.Tensor, noise: torch.Tensor, tau: float) -> DrawnOps:
    """Samples along the last dimension, which is that of the options."""
    scores = log_pi + noise
    ops = scores.detach().argmax(dim=-1, keepdim=True)
    soft = torch.softmax(scores / tau, dim=-1).gather(-1, ops)
    factors = 1 + (soft - soft.detach())
    return DrawnOps(ops.squeeze(-1), factors.squeeze(-1))


def annealed(begin: float, end: float, progress: float) -> float:
    """Returns a temperature that falls geometrically from `begin` to `end`."""
    temperature: float = begin * (end / begin) ** progress
    return temperature
