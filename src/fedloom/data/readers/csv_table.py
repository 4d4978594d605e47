"""CSV files of numbers and categories, with a header and one row per sample.

A file is read twice, in chunks: first for numeric columns, then for the others. So cells are never
kept as text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.tables.table import (
    GAP,
    MISSING,
    Column,
    Numbers,
    Table,
    Texts,
    number_in,
)
from fedloom.errors import FedloomError

CHUNK = 10_000  # rows
DELIMITERS = ",;\t"
ODD_NUMBER = re.compile(r"_|^\s*[+-]?0\d", re.MULTILINE)  # looks like a number, but is text
LONGEST_CELL = 1000  # characters; longer texts are cut off
Rows = list[tuple[int, list[str]]]  # cells, with the row's number as a person counts it


def read_header(path: Path) -> list[str]:
    """Returns the names of the columns, as they are written."""
    with reading(path) as lines:
        return [name.strip() for name in next(lines, [])]


def read_csv_table(path: Path) -> Table:
    header = read_header(path)
    check_header(path, header)
    first = first_pass(path, header)
    texts = text_columns(path, header, [name for name in header if name not in first.numbers])
    columns: dict[str, Column] = {}
    for name in header:
        if name in first.numbers:
            columns[name] = first.numbers[name]
        else:
            columns[name] = texts[name]
    table = Table(str(path), columns, first.row_numbers)
    check_finite(table)
    return table


class FirstPass(NamedTuple):
    """What is known after a file was read once."""

    numbers: dict[str, Numbers]  # columns in which every cell is a number or missing
    row_numbers: np.ndarray


def first_pass(path: Path, header: Sequence[str]) -> FirstPass:
    """Reads the numeric columns, and the number of every row."""
    row_numbers: list[int] = []
    parts: dict[str, list[np.ndarray]] = {name: [] for name in header}
    for rows in chunks(path, header):
        row_numbers += [number for number, _ in rows]
        for place, name in enumerate(header):
            if name not in parts:
                continue
            values = numbers_in([cells[place] for _, cells in rows])
            if values is None:
                del parts[name]
            else:
                parts[name].append(values)
    columns = {}
    for name, arrays in parts.items():
        columns[name] = Numbers(np.concatenate([np.zeros(0), *arrays]))
    return FirstPass(columns, np.array(row_numbers, np.int64))


def numbers_in(cells: Sequence[str]) -> np.ndarray | None:
    """Returns cells as numbers. None: one of them is text."""
    plain = plain_numbers(cells)
    if plain is not None:
        return plain
    values = np.empty(len(cells))
    for place, cell in enumerate(cells):
        number = number_in(cell)
        if number is None:
            return None
        values[place] = number
    return values


def plain_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Converts cells with numpy, which is several times as fast. None: one needs a closer look."""
    if ODD_NUMBER.search("\n".join(cells)):
        return None
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return None


def text_columns(path: Path, header: Sequence[str], names: Sequence[str]) -> dict[str, Texts]:
    """Reads these columns as texts."""
    if not names:
        return {}
    places: dict[str, dict[str, int]] = {name: {} for name in names}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for rows in chunks(path, header):
        for name in names:
            place = header.index(name)
            codes = [code_of(cells[place], places[name]) for _, cells in rows]
            parts[name].append(np.array(codes, np.int32))
    columns = {}
    for name in names:
        columns[name] = Texts(np.concatenate(parts[name]), tuple(places[name]))
    return columns


def code_of(cell: str, places: dict[str, int]) -> int:
    text = cell.strip()[:LONGEST_CELL]
    if text.lower() in MISSING:
        return GAP
    return places.setdefault(text, len(places))


# Rows


@contextmanager
def reading(path: Path) -> Iterator[Iterator[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first_line = stream.readline()
            stream.seek(0)
            yield csv.reader(stream, delimiter=delimiter_of(first_line))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        rule = f"{path} must be a CSV in UTF-8"
        raise FedloomError(rule, f"it cannot be read ({error})", "save it again") from error


def delimiter_of(first_line: str) -> str:
    """Returns the delimiter that occurs most often in the header."""
    return max(DELIMITERS, key=first_line.count)


def chunks(path: Path, header: Sequence[str]) -> Iterator[Rows]:
    """Yields the rows below the header, many at a time. Empty lines are left out."""
    with reading(path) as lines:
        next(lines, None)
        rows: Rows = []
        for number, cells in enumerate(lines, 2):
            if not cells:
                continue
            if len(cells) != len(header):
                rule = f"every row of {path} must have {len(header)} cells, as its header has"
                raise FedloomError(rule, f"row {number} has {len(cells)}", "correct that row")
            rows.append((number, cells))
            if len(rows) == CHUNK:
                yield rows
                rows = []
        if rows:
            yield rows


# Checks


def check_header(path: Path, header: Sequence[str]) -> None:
    if not any(header):
        rule = f"{path} must begin with the names of its columns"
        raise FedloomError(rule, "it is empty", "add a header and rows")
    for place, name in enumerate(header):
        if not name:
            rule = f"every column of {path} must have a name"
            raise FedloomError(rule, f"column {place + 1} has none", "name it, or remove it")
    check_distinct(path, header)


def check_distinct(path: Path, header: Sequence[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            rule = f"every column of {path} must have a different name"
            raise FedloomError(rule, f"{name} occurs {header.count(name)} times", "rename one")


def check_finite(table: Table) -> None:
    """Refuses numbers that float32, the type of samples, cannot hold."""
    largest = float(np.finfo(np.float32).max)
    for name, column in table.columns.items():
        if not isinstance(column, Numbers):
            continue
        wrong = np.flatnonzero(np.abs(column.values) > largest)
        if len(wrong):
            value = column.values[wrong[0]]
            row = table.row_numbers[wrong[0]]
            rule = f"numbers of {table.where} must be finite, and at most {largest:.2g}"
            problem = f"row {row} has {value:g} in the column {name}"
            raise FedloomError(rule, problem, "correct it, or leave the cell empty")
