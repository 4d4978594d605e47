"""Measures how well the next symbols in one client's text are predicted.

The figure is perplexity, the exponential of the mean cross-entropy. A model that knows nothing of V
symbols has perplexity V; one that is always sure and right has 1. A sample's cross-entropy counts
as at most `CAP` nats, and as exactly `CAP` if a score is NaN: one wild score must not make the
figures of a whole run infinite.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.classification import Z
from fedloom.metrics.figures import Figures

NAME = "perplexity"
CAP = 100.0  # nats; e^100, about 2.7e43, is far beyond any honest figure
WORST = math.exp(CAP)


def measure_perplexity(scores: NDArray[Any], truth: NDArray[Any], classes: int) -> Figures:
    """Returns perplexity with its interval, and accuracy.

    `scores` is [n, classes] and holds logits: log probabilities that are not normalised.
    """
    scores = np.asarray(scores, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.int64)
    samples = len(truth)
    if samples == 0:
        return Figures.of_nothing(NAME, "accuracy")
    valid = ~np.isnan(scores).any(axis=1)
    correct = int((valid & (scores.argmax(axis=1) == truth)).sum())
    losses = cross_entropy(scores, truth)
    return Figures(
        metric=NAME,
        samples=samples,
        correct=correct,
        value=perplexity_of(float(losses.mean())),
        interval=interval(losses),
        beside={"accuracy": correct / samples},
    )


def cross_entropy(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the cross-entropy of each sample, from 0 to CAP nats."""
    with np.errstate(invalid="ignore", over="ignore"):  # inf − inf is NaN, and counts as CAP
        shifted = scores - scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(truth)), truth]
    capped: NDArray[np.float64] = np.clip(np.nan_to_num(losses, nan=CAP, posinf=CAP), 0.0, CAP)
    return capped


def interval(losses: NDArray[np.float64]) -> tuple[float, float] | None:
    """Returns the 95 % interval: a normal one of the mean loss, whose ends become perplexities.

    One sample has no spread to judge by, and so no interval.
    """
    if len(losses) < 2:
        return None
    mean = float(losses.mean())
    half = Z * float(losses.std(ddof=1)) / math.sqrt(len(losses))
    return perplexity_of(mean - half), perplexity_of(mean + half)


def perplexity_of(loss: float) -> float:
    """Returns e to the loss, which counts as at least 0 and at most CAP nats."""
    return math.exp(min(max(loss, 0.0), CAP))


def pooled(clients: Sequence[Figures]) -> float | None:
    """Returns the perplexity over all samples of all clients.

    It is e to the mean of the clients' losses, weighted by their numbers of samples.
    """
    losses = []
    samples = 0
    for figures in clients:
        if figures.value is None:  # it has no samples
            continue
        losses.append(figures.samples * math.log(figures.value))
        samples += figures.samples
    if not samples:
        return None
    return perplexity_of(math.fsum(losses) / samples)
