"""The labels that a picture of a split shows: classes, or the fifths that numbers fall into."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedloom.data.source import Source

FIFTHS = (0.2, 0.4, 0.6, 0.8)


class ShownLabels(NamedTuple):
    labels: tuple[str, ...]
    y: np.ndarray  # [n], int64, indices into `labels`


def labels_shown(source: Source) -> ShownLabels:
    """Returns the classes, or for a numeric label five ranges with about as many samples each."""
    if source.target is None:
        return ShownLabels(source.labels, source.y)
    mean, std = source.target
    values = mean + std * source.y.astype(np.float64)
    edges = np.unique(np.quantile(values, FIFTHS))
    names = [f"below {edges[0]:.4g}"]
    for low, high in pairwise(edges):
        names.append(f"{low:.4g} to {high:.4g}")
    names.append(f"from {edges[-1]:.4g}")
    return ShownLabels(tuple(names), np.searchsorted(edges, values, side="right"))
