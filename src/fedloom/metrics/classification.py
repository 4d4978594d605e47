"""How well one client's samples are classified, from scores alone.

Plain numpy: importing scikit-learn costs a second in every worker, so it is the oracle of the tests
only. Every value is a plain Python number or None, so that a reply's JSON never holds a NaN.
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
    """Accuracy with its interval, balanced accuracy, macro F1, AUC and answers of one client.

    `scores` is [n, classes], the larger the likelier; among equal scores the first class is
    predicted. A sample with a NaN score is predicted to be nothing: it counts as wrong, and AUC
    becomes None. `answers` is how many different classes were predicted: a model with one answer
    says nothing of its samples, however often that answer is right. Balanced accuracy and AUC are
    None where the samples are of one class: there every answer is all right or all wrong.
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
    """How many samples of each class (rows) were taken for each (columns).

    One predicted to be nothing is left out.
    """
    scores = np.asarray(scores, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.int64)
    valid = ~np.isnan(scores).any(axis=1)
    cells = truth[valid] * classes + scores[valid].argmax(axis=1)
    counts: list[list[int]] = _count(cells, classes * classes).reshape(classes, classes).tolist()
    return counts


def share_correct(clients: Sequence[Figures]) -> float | None:
    """Accuracy over all samples of several clients."""
    samples = sum(figures.samples for figures in clients)
    if not samples:
        return None
    return sum(figures.correct for figures in clients) / samples


def wilson(correct: int, n: int, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval of a proportion (95 % by default); of nothing, all is possible."""
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
    """The mean over classes of how many of each are right; one class has nothing to balance."""
    if int((present > 0).sum()) < 2:
        return None
    return _mean_ratio(hits, present)


def _mean_ratio(above: Ints, below: Ints) -> float:
    """The mean of above/below over the classes where `below` is not 0: those that occur."""
    occurs = below > 0
    return float((above[occurs] / below[occurs]).mean())


def _auc(scores: Floats, truth: Ints, classes: int) -> float | None:
    """Binary: of the margin. Otherwise the macro mean of one class against the rest, on chances.

    It is None if a score is NaN, or if the AUC of a class is.
    """
    if np.isnan(scores).any():
        return None
    if classes == 2:
        with np.errstate(invalid="ignore", over="ignore"):  # inf − inf, caught in ranked
            return ranked(scores[:, 1] - scores[:, 0], truth == 1)
    chances = _softmax(scores)
    areas = []
    for label in np.unique(truth):
        area = ranked(chances[:, label], truth == label)
        if area is None:
            return None
        areas.append(area)
    return float(np.mean(areas))


def ranked(scores: Floats, positive: Bools) -> float | None:
    """The chance that a positive outranks a negative, ties counting half (Mann–Whitney U / pq)."""
    p = int(positive.sum())
    q = len(positive) - p
    if p == 0 or q == 0 or np.isnan(scores).any():
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2  # tied scores share the mean of their ranks
    u = float(rank[place][positive].sum()) - p * (p + 1) / 2
    return u / (p * q)


def _softmax(scores: Floats) -> Floats:
    # A row with +inf becomes NaN, so its AUC None.
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances
