"""The rows of metrics.jsonl as flat columns, for metrics.csv, `run.metrics` and sinks."""

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
FIRST = ("stage", "round", "progress", "replies", "refused", "deaths")
COUNTED = ("refused", "capped", "deaths", "fresh")
TOTALS = tuple(f"totals.{name}" for name in totals.NAMES)
PER_CLIENT = ("ledger", "observed")  # a line a client, which has no column; metrics.jsonl has them


def read_rounds(path: Path) -> list[Row]:
    """Every round of a metrics.jsonl, flat."""
    return [flat(row) for row in read_rows(path)]


def flat(row: MetricsRow) -> Row:
    """`{"meta": {"loss": 2.3}}` → `{"meta.loss": 2.3}`.

    Of refused and capped clients, and of deaths, there is their number.
    """
    columns: Row = {}
    for name, value in row.to_json().items():
        if name in COUNTED:
            columns[name] = len(value)
        elif name not in PER_CLIENT:
            add_columns(columns, name, value)
    return columns


def add_columns(columns: Row, name: str, value: Json) -> None:
    """A mapping has a column for each of its names; a list has none."""
    if isinstance(value, Mapping):
        for below, part in value.items():
            add_columns(columns, f"{name}.{below}", part)
    elif not isinstance(value, list):
        columns[name] = value


def columns(rows: Iterable[Row]) -> list[str]:
    """In the same order for the same run.

    The round, what the method notes, means of replies, evaluation, totals.
    """
    names = set(chain.from_iterable(rows))
    first = [name for name in FIRST if name in names]
    last = [name for name in TOTALS if name in names]
    between = sorted(names - {*first, *last}, key=place_between)
    return [*first, *between, *last]


def place_between(name: str) -> tuple[bool, bool, str]:
    """Plain values, then those with parts, then the evaluation."""
    return name.startswith("evaluation."), "." in name, name


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
