"""The values that a model was trained on: their type, the smallest and the largest of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedloom.data.checks import TABLES
from fedloom.data.mapped import blocks
from fedloom.export.finished import Finished

BYTES = 127.5  # the mean and std with which bytes are normalised, unless others are given


class InputValues(NamedTuple):
    dtype: str
    # None: unknown here, or meaningless, as for the numbers of symbols.
    low: float | None = None
    high: float | None = None

    @property
    def has_range(self) -> bool:
        return self.low is not None and self.high is not None


def input_values(finished: Finished) -> InputValues:
    """The values of the run's samples; at a site of a federation, of the site's own samples.

    A federation's server has no samples.
    """
    x = samples_here(finished)
    if x is None:
        return InputValues(type_without_samples(finished))
    # The columns of a table have different units. Tinted data has grey files, but a colour input.
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


def type_without_samples(finished: Finished) -> str:
    """The type of values, as far as a federation's server knows it.

    The server knows how values are normalised, which shows whether they are bytes.
    """
    task = finished.task
    if task.kind in TABLES:
        return "float32"
    if task.kind == "text":
        return str(finished.source.x.dtype)
    if set(task.mean) == set(task.std) == {BYTES}:
        return "uint8"
    return "unknown"
