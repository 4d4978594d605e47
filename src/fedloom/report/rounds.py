"""Turn the rows of metrics.jsonl into flat columns, for metrics.csv, `run.metrics` and sinks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from fedloom.records import totals
from fedloom.records.rows import MetricsRow, read_rows
from fedloom.types import Json

Value = str | float | int | bool | None
Row = dict[str, Value]
FIRST = ("stage", "round", "progress", "replies", "refused", "deaths")  # the first columns
COUNTED = ("refused", "capped", "deaths", "fresh")  # lists, of which only the length is kept
TOTALS = tuple(f"totals.{name}" for name in totals.NAMES)  # the last columns
# These have one entry per client, so they do not fit into columns; metrics.jsonl keeps them.
PER_CLIENT = ("ledger", "observed")


def read_rounds(path: Path) -> list[Row]:
    """Read every round of a metrics.jsonl as a flat row."""
    return [flat(row) for row in read_rows(path)]


def flat(row: MetricsRow) -> Row:
    """Flatten a row: `{"meta": {"loss": 2.3}}` → `{"meta.loss": 2.3}`.

    Refused, capped and fresh clients and deaths of workers are counted, not listed.
    """
    columns: Row = {}
    for name, value in row.to_json().items():
        if name in COUNTED:
            columns[name] = len(value)
        elif name not in PER_CLIENT:
            add_columns(columns, name, value)
    return columns


def add_columns(columns: Row, name: str, value: Json) -> None:
    """Add a value as a column. A mapping gets one column per key; a list is left out."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            add_columns(columns, f"{name}.{key}", part)
    elif not isinstance(value, list):
        columns[name] = value


def columns(rows: Iterable[Row]) -> list[str]:
    """Return the names of all columns, in an order that depends on their names alone.

    The round comes first, then what the method notes, means of replies, the evaluation, totals.
    """
    names = set(chain.from_iterable(rows))
    first = [name for name in FIRST if name in names]
    last = [name for name in TOTALS if name in names]
    middle = sorted(names - {*first, *last}, key=middle_order)
    return [*first, *middle, *last]


def middle_order(name: str) -> tuple[bool, bool, str]:
    """Sort plain values first, then values with parts, then the evaluation."""
    return name.startswith("evaluation."), "." in name, name


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
