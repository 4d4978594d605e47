"""A table as it was read: columns of numbers and columns of text, with missing values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedloom.config.models import TableTask

# Texts that stand for a missing value, in upper or lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
LARGEST_WHOLE = 1e15  # below this, every whole number is exact
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")
GAP = -1  # the code of a text that is missing


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Numbers:
    """A column of numbers."""

    values: np.ndarray  # [n], float64; NaN: missing

    @property
    def missing(self) -> np.ndarray:
        """[n], bool."""
        missing: np.ndarray = np.isnan(self.values)
        return missing

    def rows(self, chosen: np.ndarray) -> Numbers:
        return Numbers(self.values[chosen])


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts, each stored once."""

    codes: np.ndarray  # [n], int32, indices into `names`; -1: missing
    names: tuple[str, ...]

    @property
    def missing(self) -> np.ndarray:
        """[n], bool."""
        missing: np.ndarray = self.codes == GAP
        return missing

    @property
    def used(self) -> tuple[str, ...]:
        """The names that occur in some row."""
        codes = np.unique(self.codes)
        return tuple(self.names[code] for code in codes if code != GAP)

    def rows(self, chosen: np.ndarray) -> Texts:
        return Texts(self.codes[chosen], self.names)


Column: TypeAlias = Numbers | Texts


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name."""

    where: str  # what an error calls it
    columns: Mapping[str, Column]  # all of the same length
    row_numbers: np.ndarray  # as a person counts the rows in the file
    task: TableTask = "auto"  # the task that its maker meant it for

    def __len__(self) -> int:
        return len(self.row_numbers)

    def rows(self, chosen: np.ndarray) -> Table:
        columns = {name: column.rows(chosen) for name, column in self.columns.items()}
        return Table(self.where, columns, self.row_numbers[chosen], self.task)


def table_of(where: str, columns: Mapping[str, Column], task: TableTask = "auto") -> Table:
    """Makes a table of columns. Rows are counted from 1."""
    longest = 0
    for column in columns.values():
        longest = max(longest, len(column.missing))
    return Table(where, columns, np.arange(1, longest + 1), task)


def texts_of(cells: Sequence[str | None]) -> Texts:
    """Makes a column of texts. None, empty cells and texts such as `NA` are missing."""
    places: dict[str, int] = {}
    codes = np.empty(len(cells), np.int32)
    for row, cell in enumerate(cells):
        text = (cell or "").strip()
        if text.lower() in MISSING:
            codes[row] = GAP
        else:
            codes[row] = places.setdefault(text, len(places))
    return Texts(codes, tuple(places))


def as_texts(column: Column) -> Texts:
    """Returns a column as texts. The numbers 2 and 2.0 both become `2`."""
    if isinstance(column, Texts):
        return column
    codes = np.full(len(column.values), GAP, np.int32)
    present = ~column.missing
    values, places = np.unique(column.values[present], return_inverse=True)
    codes[present] = places
    return Texts(codes, tuple(number_text(float(value)) for value in values))


def number_text(value: float) -> str:
    if value.is_integer() and abs(value) < LARGEST_WHOLE:
        return str(int(value))
    return repr(value)


def number_in(cell: str) -> float | None:
    """Returns the number in a cell.

    NaN: it is missing. None: it is text, as `007` and `1_000` are.
    """
    try:
        number = float(cell)
    except ValueError:
        if cell.strip().lower() in MISSING:
            return np.nan
        return None
    if "_" in cell or LEADING_ZERO.match(cell):
        return None
    return number
