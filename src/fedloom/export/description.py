"""The type by which an export's architecture.json is written and read.

The file describes the model, its input and its labels.
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
    """The input of the network, in the data set's own units."""

    kind: str
    shape: list[Count]  # of one sample
    dtype: str
    mean: list[Figure]  # which the network itself subtracts; empty: nothing is normalised
    std: list[Figure]
    low: Figure | None = None  # the smallest value of the run's samples; None: unknown
    high: Figure | None = None  # the largest value
    resize: Count | None = None  # the side to which images were resized
    fit: Fit = "stretch"  # what was done with images that are not square
    table: dict[str, Json] | None = None  # the encoding of a table's columns; None: not a table

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
    # The keys from which a searched network is built again. In the file they stand beside the
    # other ones, where `--network architecture.json` looks for them.
    genotype: dict[str, Json] = {}
    head: str | None = None  # what the classifier gets of the last map; None: there is no choice
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
    # For models whose samples take their own paths: see export/paths.py.
    path: str | None = None  # "each" or "likely"; None: the run's network has one path
    share: Figure | None = None  # the share of the test samples that keep their path of the run
    accuracy: Figure | None = None  # on the test samples
    left_out: Count | None = None  # operations that were pruned

    @property
    def is_ours(self) -> bool:
        return self.format == MARK

    def to_json(self) -> dict[str, Json]:
        """The content of the file."""
        fields = super().to_json()
        genotype = fields.pop("genotype", {})
        return {**genotype, **fields}

    @classmethod
    def from_json(cls, raw: Json) -> ModelDescription:
        """Read the content of the file. Raises Unreadable."""
        fields: dict[str, Json] = {"genotype": {}}
        for name, value in object_in(raw, "it").items():
            if name in cls.model_fields and name != "genotype":
                fields[name] = value
            else:
                fields["genotype"][name] = value
        return cls.checked(fields, {})

    @classmethod
    def read(cls, folder: Path) -> ModelDescription:
        """Read the file in this folder. Raises Unreadable."""
        return cls.from_json(read_json(folder / NAME))
