"""Measures how far predicted numbers are from the true ones, in the label's own units.

A sample whose answer is NaN, or off by more than `WORST`, counts as off by `WORST`: one wild answer
must not make the figures of a whole run infinite.
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
WORST = 1e60  # its fourth power, which the spread of squares needs, is still finite


def measure_errors(answers: NDArray[Any], truth: NDArray[Any], classes: int) -> Figures:
    """Returns the root mean squared error with its interval, and the mean absolute error.

    `answers` is [n, 1]. Answers and truth are in the label's own units.
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
    """Returns the 95 % interval: the roots of a normal one of the mean squared error.

    One sample has no spread, and so no interval.
    """
    if len(squares) < 2:
        return None
    mean = float(squares.mean())
    half = Z * float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return math.sqrt(max(0.0, mean - half)), math.sqrt(min(mean + half, WORST * WORST))


def pooled_mae(clients: Sequence[Figures]) -> float | None:
    """Returns the mean absolute error over all samples of all clients."""
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
    """Returns the root mean squared error over all samples of all clients."""
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
