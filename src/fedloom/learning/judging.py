"""Scores a network on a client's validation samples, as sums that reveal no single sample.

Labels may be classes or numbers. For numbers there is no right answer: of two networks, the one
that comes closer has the better answer.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples

LEAST_SAMPLES = 4  # a client with fewer holds none back for validation
AT_ONCE = 256  # samples in one forward pass


class Parts(NamedTuple):
    """A client's training samples, split into those it trains on and those it holds back."""

    train: Samples
    validation: Samples


class ValidationSums(NamedTuple):
    """Sums over validation samples."""

    nll: float  # Σ −log p(label); for numbers Σ (answer − label)²
    correct: int  # always 0 for numbers
    samples: int


def held_back(data: Samples, share: float) -> Parts:
    """Split off the validation samples, the same ones every time.

    A client with fewer than four samples holds none back.
    """
    if len(data) < LEAST_SAMPLES:
        return Parts(data, Samples(data.x[:0], data.y[:0]))
    return Parts(*data.split(1 - share))


def number_held_back(samples: int, share: float) -> int:
    """How many samples `held_back` takes from so many."""
    if samples < LEAST_SAMPLES:
        return 0
    return samples - round((1 - share) * samples)


@torch.no_grad()
def answers(net: nn.Module, part: Samples, device: str) -> torch.Tensor:
    """The network's scores for every sample, in evaluation mode."""
    net.to(device).eval()
    rows = [net(x.to(device)).cpu() for x in part.x.split(AT_ONCE)]
    return torch.cat(rows).double()


def validation_sums(net: nn.Module, part: Samples, device: str) -> ValidationSums:
    if not len(part):
        return ValidationSums(0.0, 0, 0)
    scores = answers(net, part, device)
    if are_numbers(part):
        return ValidationSums(float(squared_errors(scores, part).sum()), 0, len(part))
    nll = functional.cross_entropy(scores, part.y, reduction="sum")
    return ValidationSums(float(nll), int(is_right(scores, part).sum()), len(part))


def are_numbers(part: Samples) -> bool:
    return part.y.is_floating_point()


def is_right(scores: torch.Tensor, part: Samples) -> torch.Tensor:
    """Which samples are answered correctly, as booleans."""
    return scores.argmax(dim=1) == part.y


def squared_errors(scores: torch.Tensor, part: Samples) -> torch.Tensor:
    return (scores[:, 0] - part.y.double()).square()


class Disagreement(NamedTuple):
    """How many samples only one of two networks answers correctly, or answers more closely."""

    up: int  # only the first network
    down: int  # only the second network
    samples: int


def disagreement(first: torch.Tensor, second: torch.Tensor, part: Samples) -> Disagreement:
    """Count the samples on which the scores of two networks disagree."""
    if are_numbers(part):
        errors = squared_errors(first, part)
        other_errors = squared_errors(second, part)
        up = int((errors < other_errors).sum())
        down = int((other_errors < errors).sum())
        return Disagreement(up, down, len(part))
    by_first = is_right(first, part)
    by_second = is_right(second, part)
    up = int((by_first & ~by_second).sum())
    down = int((by_second & ~by_first).sum())
    return Disagreement(up, down, len(part))


def is_decisive(up: int, down: int, deviations: float = 1.0) -> bool:
    """Whether the first network is better than the second by more than chance explains.

    `up` and `down` count the samples that only one of them answers better. If both were equally
    good, each of these samples would be a coin flip, and the standard deviation of the difference
    would be √(up + down).
    """
    return up - down > deviations * sqrt(up + down)
