"""architecture.json of an export: what the model is, its input, its labels.

It is written and read through this type.
"""

from __future__ import annotations

from pathlib import Path

from fedloom.config.models import Fit
from fedloom.reading import read_json
from fedloom.records.record import Count, Figure, Record, object_in
from fedloom.types import Json

NAME = "architecture.json"
MARK = "fedloom export 1"


class ModelInput(Record):
    """What goes into the network, in the data set's own units."""

    kind: str
    shape: list[Count]  # of one sample
    dtype: str
    mean: list[Figure]  # that the network subtracts itself; empty: nothing is normalised
    std: list[Figure]
    low: Figure | None = None  # the least value of the run's samples; None: not known
    high: Figure | None = None  # the largest
    resize: Count | None = None  # of images: the side that they were brought to
    fit: Fit = "stretch"  # and how those were that are not square
    table: dict[str, Json] | None = None  # what becomes of a row's cells; None: it is no table

    @property
    def in_words(self) -> str:
        """`shape [1, 8, 8], uint8, in the data set's own units, from 0 to 16 in the run's data`"""
        form = f"shape {self.shape}, {self.dtype}, in the data set's own units"
        if self.table is not None:
            columns = len(self.table["columns"])
            return f"{form}: {columns} columns of a table as {self.shape[0]} numbers"
        if self.low is None or self.high is None:
            return form
        return f"{form}, from {self.low:g} to {self.high:g} in the run's data"


class ModelDescription(Record):
    # What builds a searched network again. In the file it stands beside the rest, where
    # `--network architecture.json` looks for it.
    genotype: dict[str, Json] = {}
    head: str | None = None  # what its classifier sees of the last map; None: there is no choice
    format: str
    fedloom: str  # the version that wrote it
    architecture: Json  # a fixed network's name, or a searched one
    input: ModelInput
    labels: list[str]
    params: Count
    macs: Count  # of one sample
    channels_last: bool  # in memory
    client: Count | None  # None: the shared model
    method: str
    stage: str
    round: Count
    # Of a model whose samples take their own paths: see export/paths.py.
    path: str | None = None  # "each" or "likely"; None: there was one path from the start
    share: Figure | None = None  # of the test samples that go the way that the run gives them
    accuracy: Figure | None = None  # on these test samples
    left_out: Count | None = None  # operations that were pruned

    @property
    def is_ours(self) -> bool:
        return self.format == MARK

    def to_json(self) -> dict[str, Json]:
        """As the file has it."""
        fields = super().to_json()
        genotype = fields.pop("genotype", {})
        return {**genotype, **fields}

    @classmethod
    def from_json(cls, raw: Json) -> ModelDescription:
        """Raises Unreadable."""
        fields: dict[str, Json] = {"genotype": {}}
        for name, value in object_in(raw, "it").items():
            if name in cls.model_fields and name != "genotype":
                fields[name] = value
            else:
                fields["genotype"][name] = value
        return cls.checked(fields, {})

    @classmethod
    def read(cls, folder: Path) -> ModelDescription:
        """Raises Unreadable."""
        return cls.from_json(read_json(folder / NAME))
