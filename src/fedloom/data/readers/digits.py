"""The handwritten digits that come with scikit-learn.

Their file is read as `sklearn.datasets.load_digits` reads it, but without importing the package.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from fedloom.data.readers.scikit_files import scikit_file
from fedloom.data.source import Source

SIDE = 8  # pixels


def digits(directory: Path | None = None) -> Source:
    """The 1,797 handwritten digits of 8×8 pixels, 0..16, that come with scikit-learn."""
    table = digits_table()
    pixels = table[:, :-1].reshape(-1, 1, SIDE, SIDE).astype(np.uint8)
    classes = table[:, -1].astype(np.int64)
    labels = tuple(str(digit) for digit in range(10))
    # Mean and standard deviation are those of all pixels, in raw units.
    return Source("digits", pixels, classes, labels, mean=(4.8842,), std=(6.0168,))


def digits_table() -> np.ndarray:
    """Returns an array [sample, 64 pixels and the class]."""
    file = scikit_file("digits.csv.gz")
    if file is None:  # this version of scikit-learn keeps the digits elsewhere
        return table_from_package()
    with gzip.open(file, "rt", encoding="utf-8") as text:
        return np.loadtxt(text, delimiter=",")


def table_from_package() -> np.ndarray:
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    return np.column_stack([pixels, classes])
