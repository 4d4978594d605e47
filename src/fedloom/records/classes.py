"""classes.json: how many samples of each class the clients of a simulation have.

Runs of a federation have no such file, because the server never learns these numbers.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedloom.reading import bounded, read_large_json
from fedloom.records.record import Count, Figure, Record, object_in

NAME = "classes.json"


class Classes(Record):
    labels: list[str]
    counts: list[list[Count]]  # of the first clients
    names: list[str]  # of all clients, where they have names; else empty
    # The mean accuracy of always answering a client's most common class, on its test part.
    usual: Figure | None

    @model_validator(mode="after")
    def check_rows(self) -> Classes:
        if any(len(row) != len(self.labels) for row in self.counts):
            raise PydanticCustomError("rows", "Input should be rows with a count for each label")
        return self

    @classmethod
    def read(cls, folder: Path) -> Classes:
        """Read the file in this folder. Raises Unreadable if it is missing or damaged."""
        return cls.checked(bounded(object_in(read_large_json(folder / NAME), "it")), {})
