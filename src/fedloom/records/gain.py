"""gain.json: what client j's architecture is worth on client i's data.

`fedloom gain` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedloom.reading import read_large_json
from fedloom.records.record import Count, Figure, Record, object_in

NAME = "gain.json"


class GainMatrix(Record):
    """p_ij, and how far each client's own architecture is ahead of the others' (SPIDER, Eq. 6)."""

    run: str
    metric: str
    epochs: Count
    start: Literal["inherit", "fresh"]
    lr: Figure
    clients: list[Count]
    # a row for each client's data, a column for each client's architecture
    matrix: list[list[Figure | None]]
    # the same of balanced accuracy; None: text, or an earlier version measured it
    balanced_accuracy: list[list[Figure | None]] | None = None
    gains: list[Figure | None]
    gain: Figure | None  # their mean

    @model_validator(mode="after")
    def check_square(self) -> GainMatrix:
        size = len(self.clients)
        is_square = has_size(self.matrix, size)
        if self.balanced_accuracy is not None:
            is_square = is_square and has_size(self.balanced_accuracy, size)
        if not is_square or len(self.gains) != size:
            rule = "a matrix with a row and a column for each client"
            raise PydanticCustomError("square", f"Input should be {rule}")
        return self

    @classmethod
    def read(cls, folder: Path) -> GainMatrix:
        """Raises Unreadable: nobody measured it, or the file is damaged."""
        return cls.checked(object_in(read_large_json(folder / NAME), "it"), {})


def has_size(matrix: Sequence[Sequence[float | None]], size: int) -> bool:
    """Whether it has so many rows and columns."""
    return len(matrix) == size and all(len(row) == size for row in matrix)
