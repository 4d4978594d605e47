"""What values a model was trained on: their type, and the least and the largest of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedloom.data.checks import TABLES
from fedloom.data.mapped import blocks
from fedloom.export.finished import Finished

BYTES = 127.5  # mean and std by which bytes are normalised, unless others are given


class InputValues(NamedTuple):
    dtype: str
    low: float | None = None  # None: not known here, or symbols, which are numbers by chance
    high: float | None = None

    @property
    def has_range(self) -> bool:
        return self.low is not None and self.high is not None


def input_values(finished: Finished) -> InputValues:
    """Of the run's samples, or at a site of a federation of its own; its server has none."""
    x = samples_here(finished)
    if x is None:
        return InputValues(told_type(finished))
    # Columns have units of their own; of tinted data, the files are grey and the input is not.
    if finished.task.kind in ("text", *TABLES) or finished.is_tinted:
        return InputValues(str(x.dtype))
    lows = []
    highs = []
    for _, block in blocks(x):
        lows.append(float(block.min()))
        highs.append(float(block.max()))
    return InputValues(str(x.dtype), min(lows), max(highs))


def samples_here(finished: Finished) -> np.ndarray | None:
    if len(finished.source.x) > 0:
        return finished.source.x
    if finished.site is None or finished.here is None:
        return None
    data = finished.site.data(finished.here)
    parts = [data.train.x.numpy(), data.validation.x.numpy(), data.test.x.numpy()]
    return np.concatenate(parts)


def told_type(finished: Finished) -> str:
    """A federation's server knows how values are normalised, and by that whether they are bytes."""
    task = finished.task
    if task.kind in TABLES:
        return "float32"
    if task.kind == "text":
        return str(finished.source.x.dtype)
    if set(task.mean) == set(task.std) == {BYTES}:
        return "uint8"
    return "unknown"
