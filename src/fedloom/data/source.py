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
    """A file that could not be read, and that was left out because the user asked for it."""

    file: str
    rule: str  # what it breaks
    reason: str
    advice: str  # what to do about it


@dataclass(frozen=True, eq=False)  # arrays have no truth value; compare digests
class Source:
    """All samples of a data set. Left empty, labels, mean and std are filled in by `open_source`.

    `x` may be a read-only map of a file that is larger than memory: read it in blocks
    (`mapped.blocks`).
    """

    name: str
    # [n,c,h,w], raw values, uint8 or finite float32; of a text [n,window], symbol numbers; of a
    # table [n,inputs], float32
    x: np.ndarray
    y: np.ndarray  # [n], int64; of a regression float32, in units of the label's own spread
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()  # per channel, in raw units
    std: tuple[float, ...] = ()
    # "image", "speech", "text", "table", or "regression": a table whose label is a number
    kind: str = "image"
    groups: np.ndarray | None = None  # [n], int64, who a sample comes from, in group_names
    group_names: tuple[str, ...] = ()
    grouping: str = "site"  # what a group is: a site, writer, speaker, role, …
    # [n], uint8, the data set's own parts: 0 train, 1 validation, 2 test
    official: np.ndarray | None = None
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()  # what a person should hear of how it was read
    table: TableForm | None = None  # what the columns of a table became; None: it is none

    @property
    def target(self) -> tuple[float, float] | None:
        """Mean and standard deviation of a label that is a number, in its own units."""
        if self.table is None:
            return None
        return self.table.encoding.target

    @cached_property
    def digest(self) -> str:
        sha = hashlib.sha256()
        for array in (self.x, self.y, self.groups, self.official):
            if array is None:
                continue
            sha.update(f"{array.dtype.str}{array.shape};".encode())
            for _, block in blocks(array):
                sha.update(np.ascontiguousarray(block).data)
        return sha.hexdigest()
