"""How well one client's next symbols are foretold.

The figure is perplexity, the exponential of the mean cross-entropy. A model that knows nothing of V
symbols has perplexity V, one that is always sure and right has 1. A sample's cross-entropy counts
as at most `CAP` nats, and one with a score that is no number as exactly that: one wild score must
not make the figures of a whole run infinite.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.classification import Z
from fedloom.types import Json

CAP = 100.0  # nats; e^100, about 2.7e43, is far beyond any honest figure
WORST = math.exp(CAP)


def foretell(scores: NDArray[Any], truth: NDArray[Any], classes: int) -> dict[str, Json]:
    """Perplexity with its interval, and accuracy, of one client.

    `scores` is [n, classes], unnormalised log chances.
    """
    scores = np.asarray(scores, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.int64)
    samples = len(truth)
    if samples == 0:
        return {
            "samples": 0,
            "correct": 0,
            "perplexity": None,
            "interval": None,
            "accuracy": None,
        }
    valid = ~np.isnan(scores).any(axis=1)
    correct = int((valid & (scores.argmax(axis=1) == truth)).sum())
    losses = cross_entropy(scores, truth)
    return {
        "samples": samples,
        "correct": correct,
        "perplexity": grown(float(losses.mean())),
        "interval": interval(losses),
        "accuracy": correct / samples,
    }


def cross_entropy(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each sample, from 0 to CAP nats."""
    with np.errstate(invalid="ignore", over="ignore"):  # inf − inf is NaN, and counts as CAP
        shifted = scores - scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(truth)), truth]
    capped: NDArray[np.float64] = np.clip(np.nan_to_num(losses, nan=CAP, posinf=CAP), 0.0, CAP)
    return capped


def interval(losses: NDArray[np.float64]) -> list[float] | None:
    """95 %: normal on the mean loss, then raised to e; one sample has no spread to judge by."""
    if len(losses) < 2:
        return None
    mean = float(losses.mean())
    half = Z * float(losses.std(ddof=1)) / math.sqrt(len(losses))
    return [grown(mean - half), grown(mean + half)]


def grown(loss: float) -> float:
    return math.exp(min(max(loss, 0.0), CAP))


def pooled(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Over all samples of all clients: e to the mean loss, clients weighted by their samples."""
    samples = sum(row["samples"] for row in rows)
    if not samples:
        return None
    losses = math.fsum(row["samples"] * math.log(row["perplexity"]) for row in rows)
    return grown(losses / samples)
