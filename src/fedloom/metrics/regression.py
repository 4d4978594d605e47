"""How far numbers that were foretold are from the true ones, in the label's own units.

A sample whose answer is no number, or further away than `WORST`, counts as that far: one wild
answer must not make the figures of a whole run infinite.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.classification import Z
from fedloom.metrics.figures import Figures

NAME = "rmse"
MAE = "mae"
WORST = 1e60  # squared twice, for the spread of squares, it is still a number


def foretell_numbers(answers: NDArray[Any], truth: NDArray[Any], classes: int) -> Figures:
    """The root of the mean squared error with its interval, and the mean absolute error.

    `answers` is [n, 1], and both are in the label's own units.
    """
    truth = np.asarray(truth, dtype=np.float64)
    samples = len(truth)
    if samples == 0:
        return Figures.of_nothing(NAME, MAE)
    errors = distances(np.asarray(answers, dtype=np.float64)[:, 0], truth)
    squares = errors * errors
    return Figures(
        metric=NAME,
        samples=samples,
        correct=0,
        value=math.sqrt(float(squares.mean())),
        interval=interval(squares),
        beside={MAE: float(errors.mean())},
    )


def distances(answers: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(answers - truth)
    capped: NDArray[np.float64] = np.minimum(np.nan_to_num(errors, nan=WORST), WORST)
    return capped


def interval(squares: NDArray[np.float64]) -> tuple[float, float] | None:
    """95 %: normal on the mean of the squared errors, then its root; one sample has no spread."""
    if len(squares) < 2:
        return None
    mean = float(squares.mean())
    half = Z * float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return math.sqrt(max(0.0, mean - half)), math.sqrt(min(mean + half, WORST * WORST))


def pooled_mae(clients: Sequence[Figures]) -> float | None:
    """The mean absolute error over all samples of all clients."""
    errors = []
    samples = 0
    for figures in clients:
        error = figures.of(MAE)
        if error is None:
            continue
        errors.append(figures.samples * error)
        samples += figures.samples
    if not samples:
        return None
    return math.fsum(errors) / samples


def pooled(clients: Sequence[Figures]) -> float | None:
    """Over all samples of all clients: the root of the mean of all squared errors."""
    squares = []
    samples = 0
    for figures in clients:
        if figures.value is None:  # it has no samples
            continue
        squares.append(figures.samples * figures.value**2)
        samples += figures.samples
    if not samples:
        return None
    return math.sqrt(math.fsum(squares) / samples)
