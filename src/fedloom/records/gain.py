"""gain.json: how well client j's architecture does on client i's data.

`fedloom gain` writes it. Before that it writes gain.jsonl, with one line per finished cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, bounded, parse_json, read_large_json
from fedloom.records.record import Count, Figure, Record, object_in, renamed

NAME = "gain.json"
LINES = "gain.jsonl"
Start = Literal["inherit", "fresh"]


class GainMatrix(Record):
    """p_ij, and how far each client's own architecture is ahead of the others' (SPIDER, Eq. 6)."""

    run: str
    metric: str
    epochs: Count
    start: Start
    lr: Figure
    clients: list[Count]
    # One row for each client's data, one column for each client's architecture.
    matrix: list[list[Figure | None]]
    # The same for balanced accuracy; None: the data is text, or an earlier version measured it.
    balanced_accuracy: list[list[Figure | None]] | None = None
    auc: list[list[Figure | None]] | None = None  # likewise, where there are two classes
    gains: list[Figure | None]
    gain: Figure | None  # their mean

    @model_validator(mode="after")
    def check_square(self) -> GainMatrix:
        size = len(self.clients)
        is_square = True
        for matrix in (self.matrix, self.balanced_accuracy, self.auc):
            if matrix is not None:
                is_square = is_square and has_size(matrix, size)
        if not is_square or len(self.gains) != size:
            rule = "a matrix with a row and a column for each client"
            raise PydanticCustomError("square", f"Input should be {rule}")
        return self

    @classmethod
    def read(cls, folder: Path) -> GainMatrix:
        """Read the file. Raises Unreadable if it was never measured or the file is damaged."""
        return cls.checked(object_in(read_large_json(folder / NAME), "it"), {})


class GainLine(Record):
    """A cell of the matrix. In the file its figure has the name of the run's metric."""

    i: Count  # the client whose data is used
    j: Count  # the client whose architecture is used
    epochs: Count
    start: Start
    lr: Figure
    figure: Figure | None  # None: fine-tuning diverged, or there is no test data
    balanced_accuracy: Figure | None = None  # None: text, or an earlier version measured the cell
    auc: Figure | None = None  # likewise, where there are two classes

    def to_line(self, metric: str) -> bytes:
        fields = {}
        for name, value in self.to_json().items():
            if name == "figure":
                name = metric
            fields[name] = value
        return json.dumps(fields, allow_nan=False).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes, metric: str) -> GainLine:
        """Read a line. Raises Unreadable."""
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable("it is not text in UTF-8") from None
        raw = bounded(object_in(parse_json(text), "it"))
        return cls.checked(renamed({metric: "figure"}, raw), {"figure": metric})


def read_gain_lines(path: Path, metric: str) -> Iterator[GainLine]:
    """Every line of a gain.jsonl; there may be no such file yet."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield GainLine.from_line(line, metric)
        except Unreadable as error:
            rule = f"line {number} of {path} must hold a measured cell"
            advice = "remove the file, so that all cells are measured again"
            raise FedloomError(rule, f"{error}", advice) from None


def has_size(matrix: Sequence[Sequence[float | None]], size: int) -> bool:
    """Whether a matrix has `size` rows and columns."""
    return len(matrix) == size and all(len(row) == size for row in matrix)
