"""Measures a model's scores on samples of a task, by the task's metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import metric_of
from fedloom.types import Task


def measured(scores: NDArray[Any], labels: NDArray[Any], task: Task) -> Figures:
    """Returns the figures of a network's scores. `labels` are as the client's samples have them."""
    metric = metric_of(task.kind)
    return metric.measure(in_own_units(scores, task), in_own_units(labels, task), len(task.labels))


def in_own_units(values: NDArray[Any], task: Task) -> NDArray[Any]:
    """Returns standardised labels, predicted or true, in the units of the label's column.

    Classes stay as they are.
    """
    if task.target is None:
        return values
    mean, std = task.target
    return mean + std * values.astype(np.float64)
