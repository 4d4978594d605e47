"""What a network is worth on a client's validation part, as sums that say nothing of one sample.

Labels may be classes or numbers. A number is never right: of two networks the one that comes closer
has the better answer.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples

LEAST_SAMPLES = 4  # of a client that holds some back
AT_ONCE = 256  # samples that are judged at a time


class Parts(NamedTuple):
    """A client's training samples, some of them held back."""

    train: Samples
    validation: Samples


class Judged(NamedTuple):
    """Sums over validation samples."""

    nll: float  # Σ −log p(label); of numbers Σ (answer − label)²
    correct: int  # of numbers 0
    samples: int


def held_back(data: Samples, share: float) -> Parts:
    """The same samples in every order. A client with fewer than four holds none back."""
    if len(data) < LEAST_SAMPLES:
        return Parts(data, Samples(data.x[:0], data.y[:0]))
    return Parts(*data.split(1 - share))


@torch.no_grad()
def answers(net: nn.Module, part: Samples, device: str) -> torch.Tensor:
    """The scores of every sample, in evaluation mode."""
    net.to(device).eval()
    rows = [net(x.to(device)).cpu() for x in part.x.split(AT_ONCE)]
    return torch.cat(rows).double()


def judged(net: nn.Module, part: Samples, device: str) -> Judged:
    if not len(part):
        return Judged(0.0, 0, 0)
    scores = answers(net, part, device)
    if are_numbers(part):
        return Judged(float(squared_errors(scores, part).sum()), 0, len(part))
    nll = functional.cross_entropy(scores, part.y, reduction="sum")
    return Judged(float(nll), int(right(scores, part).sum()), len(part))


def are_numbers(part: Samples) -> bool:
    return part.y.is_floating_point()


def right(scores: torch.Tensor, part: Samples) -> torch.Tensor:
    """Which samples are answered rightly."""
    return scores.argmax(dim=1) == part.y


def squared_errors(scores: torch.Tensor, part: Samples) -> torch.Tensor:
    return (scores[:, 0] - part.y.double()).square()


class Disagreement(NamedTuple):
    """Samples that only one of two networks answers rightly, or comes closer to."""

    up: int  # the first
    down: int  # the second
    samples: int


def disagreement(first: torch.Tensor, second: torch.Tensor, part: Samples) -> Disagreement:
    """Of two networks' scores."""
    if are_numbers(part):
        errors = squared_errors(first, part)
        other_errors = squared_errors(second, part)
        up = int((errors < other_errors).sum())
        down = int((other_errors < errors).sum())
        return Disagreement(up, down, len(part))
    by_first = right(first, part)
    by_second = right(second, part)
    up = int((by_first & ~by_second).sum())
    down = int((by_second & ~by_first).sum())
    return Disagreement(up, down, len(part))


def is_decisive(up: int, down: int) -> bool:
    """Whether one network is better than the other by more than chance would have it.

    `up` and `down` are samples that only one of them answers better. Where both are equally good,
    these are thrown like coins, and their difference varies by √(up + down).
    """
    return up - down > sqrt(up + down)
