"""What a model's scores are worth on samples of a task."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import metric_of
from fedloom.types import Task


def measured(scores: NDArray[Any], labels: NDArray[Any], task: Task) -> Figures:
    """Scores and labels are as a network and a client's samples have them."""
    metric = metric_of(task.kind)
    return metric.measure(in_own_units(scores, task), in_own_units(labels, task), len(task.labels))


def in_own_units(values: NDArray[Any], task: Task) -> NDArray[Any]:
    """Numbers that are foretold, or true, as the label's column has them; classes stay."""
    if task.target is None:
        return values
    mean, std = task.target
    return mean + std * values.astype(np.float64)
