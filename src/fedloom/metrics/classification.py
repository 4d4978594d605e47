"""Measures how well one client's samples are classified, from the model's scores.

It is plain numpy: importing scikit-learn costs a second in every worker, so only the tests use it,
as their oracle. Every value is a plain Python number or None, so that a reply's JSON never holds a
NaN.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.figures import Figures

NAME = "accuracy"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Z = 1.959963984540054  # standard deviations on either side of a normal mean that hold 95 %


def classify(scores: NDArray[Any], truth: NDArray[Any], classes: int) -> Figures:
    """Returns accuracy with its interval, balanced accuracy, macro F1, AUC and `answers`.

    `scores` is [n, classes]; a larger score means a likelier class. Among equal scores the first
    class is predicted. For a sample with a NaN score no class is predicted: it counts as wrong, and
    AUC becomes None. `answers` is the number of different classes that were predicted: a model that
    always gives the same answer says nothing about the samples, however often it is right. Balanced
    accuracy and AUC are None if all samples are of one class: then a constant answer is always
    right or always wrong.
    """
    scores = np.asarray(scores, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.int64)
    samples = len(truth)
    if samples == 0:
        return Figures.of_nothing(NAME, "balanced_accuracy", "f1", "auc", answers=0)
    valid = ~np.isnan(scores).any(axis=1)
    guess = scores.argmax(axis=1)
    hit = valid & (guess == truth)
    hits = _count(truth[hit], classes)
    present = _count(truth, classes)
    predicted = _count(guess[valid], classes)
    correct = int(hit.sum())
    beside = {
        "balanced_accuracy": balanced(hits, present),
        "f1": _mean_ratio(2 * hits, present + predicted),
        "auc": _auc(scores, truth, classes),
    }
    return Figures(
        metric=NAME,
        samples=samples,
        correct=correct,
        value=correct / samples,
        interval=wilson(correct, samples),
        beside=beside,
        answers=int((predicted > 0).sum()),
    )


def confusion(scores: NDArray[Any], truth: NDArray[Any], classes: int) -> list[list[int]]:
    """Returns how many samples of each class (rows) were predicted to be of each (columns).

    Samples for which no class is predicted are left out.
    """
    scores = np.asarray(scores, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.int64)
    valid = ~np.isnan(scores).any(axis=1)
    cells = truth[valid] * classes + scores[valid].argmax(axis=1)
    counts: list[list[int]] = _count(cells, classes * classes).reshape(classes, classes).tolist()
    return counts


def share_correct(clients: Sequence[Figures]) -> float | None:
    """Returns the accuracy over all samples of several clients."""
    samples = sum(figures.samples for figures in clients)
    if not samples:
        return None
    return sum(figures.correct for figures in clients) / samples


def wilson(correct: int, n: int, z: float = Z) -> tuple[float, float]:
    """Returns Wilson's score interval of a proportion, 95 % by default. Of none it is [0, 1]."""
    if n == 0:
        return 0.0, 1.0
    p = correct / n
    z2 = z * z / n
    centre = p + z2 / 2
    half = math.sqrt(z2 * (p * (1 - p) + z2 / 4))
    low = (centre - half) / (1 + z2)
    high = (centre + half) / (1 + z2)
    # The ends are exact by algebra, but not in floating point.
    if correct == 0:
        low = 0.0
    if correct == n:
        high = 1.0
    return low, high


def _count(labels: Ints, classes: int) -> Ints:
    return np.bincount(labels, minlength=classes).astype(np.int64)


def balanced(hits: Ints, present: Ints) -> float | None:
    """Returns the mean recall over classes, or None if there are fewer than two classes."""
    if int((present > 0).sum()) < 2:
        return None
    return _mean_ratio(hits, present)


def _mean_ratio(above: Ints, below: Ints) -> float:
    """Returns the mean of above/below over the classes that occur: where `below` is not 0."""
    occurs = below > 0
    return float((above[occurs] / below[occurs]).mean())


def _auc(scores: Floats, truth: Ints, classes: int) -> float | None:
    """Returns the AUC, or None if a score is NaN or one of the classes has no AUC.

    With two classes it is the AUC of the margin; with more, the macro mean of one class against the
    rest, by the softmax probabilities.
    """
    if np.isnan(scores).any():
        return None
    if classes == 2:
        with np.errstate(invalid="ignore", over="ignore"):  # inf − inf, caught in ranked
            return ranked(scores[:, 1] - scores[:, 0], truth == 1)
    probabilities = _softmax(scores)
    areas = []
    for label in np.unique(truth):
        area = ranked(probabilities[:, label], truth == label)
        if area is None:
            return None
        areas.append(area)
    return float(np.mean(areas))


def ranked(scores: Floats, positive: Bools) -> float | None:
    """Returns how likely a positive outranks a negative, ties counting half (Mann–Whitney U / pq).

    It is None if a score is NaN, or if there are no positives or no negatives.
    """
    p = int(positive.sum())
    q = len(positive) - p
    if p == 0 or q == 0 or np.isnan(scores).any():
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2  # tied scores share the mean of their ranks
    u = float(rank[place][positive].sum()) - p * (p + 1) / 2
    return u / (p * q)


def _softmax(scores: Floats) -> Floats:
    # A row with +inf becomes NaN, and the AUC None.
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = powers / powers.sum(axis=1, keepdims=True)
    return probabilities
