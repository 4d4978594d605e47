"""All samples of a data set, as arrays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedloom.data.mapped import blocks

if TYPE_CHECKING:
    from fedloom.data.tables.samples import TableForm


class SkippedFile(NamedTuple):
    """A file that could not be read and was left out, because the user asked for that."""

    file: str
    rule: str  # the rule that it breaks
    reason: str
    advice: str  # what to do about it


@dataclass(frozen=True, eq=False)  # arrays have no truth value; compare digests
class Source:
    """All samples of a data set.

    `open_source` fills in `labels`, `mean` and `std` if they are empty. `x` may be a read-only
    memory map of a file that is larger than memory: read it in blocks (`mapped.blocks`).
    """

    name: str
    # Raw values. Images and speech: [n,c,h,w], uint8 or finite float32. Text: [n,window], symbol
    # numbers. Tables: [n,inputs], float32.
    x: np.ndarray
    y: np.ndarray  # [n], int64; for regression float32, in standard deviations from the mean
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()  # per channel, in raw units
    std: tuple[float, ...] = ()
    # "image", "speech", "text", "table", or "regression": a table whose label is a number
    kind: str = "image"
    # [n], int64, who a sample comes from: indices into group_names
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    grouping: str = "site"  # what a group is: a site, writer, speaker, role, …
    # [n], uint8, the data set's own parts: 0 train, 1 validation, 2 test
    official: np.ndarray | None = None
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()  # sentences for the user about how the data was read
    table: TableForm | None = None  # how the columns of a table are encoded; None: it is no table

    @property
    def target(self) -> tuple[float, float] | None:
        """Mean and standard deviation of a numeric label, in its own units; None for classes."""
        if self.table is None:
            return None
        return self.table.encoding.target

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all arrays: two sources with the same digest have the same samples."""
        sha = hashlib.sha256()
        for array in (self.x, self.y, self.groups, self.official):
            if array is None:
                continue
            sha.update(f"{array.dtype.str}{array.shape};".encode())
            for _, block in blocks(array):
                sha.update(np.ascontiguousarray(block).data)
        return sha.hexdigest()
