"""The rows of metrics.jsonl as flat columns: metrics.csv, `run.metrics`, and what sinks are told."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from fedloom.federation.server.ledger import Totals
from fedloom.types import Json

Value = str | float | int | bool | None
Row = dict[str, Value]
FIRST = ("stage", "round", "progress", "replies", "refused", "deaths")
COUNTED = ("refused", "capped", "deaths", "fresh")
TOTALS = tuple(f"totals.{part.name}" for part in fields(Totals))
PER_CLIENT = ("ledger", "observed")  # a line a client, which has no column; metrics.jsonl has them


def read_rounds(path: Path) -> list[Row]:
    """Every round of a metrics.jsonl, flat. What a kill left of a last line is not a round."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [flat(json.loads(line)) for line in whole.splitlines()]


def flat(row: Mapping[str, Json]) -> Row:
    """`{"meta": {"loss": 2.3}}` → `{"meta.loss": 2.3}`; refused and capped clients and deaths by their number."""
    found: Row = {}
    for name, value in row.items():
        if name in COUNTED:
            found[name] = len(value)
        elif isinstance(value, Mapping) and name not in PER_CLIENT:
            found.update({f"{name}.{below}": each for below, each in flat(value).items()})
        elif not isinstance(value, list | Mapping):
            found[name] = value
    return found


def columns(rows: Iterable[Row]) -> list[str]:
    """The same for the same run: the round, what the method notes, means of replies, evaluation, totals."""
    names = {name for row in rows for name in row}
    own = sorted(names - {*FIRST, *TOTALS}, key=lambda name: (name.startswith("evaluation."), "." in name, name))
    return [*(name for name in FIRST if name in names), *own, *(name for name in TOTALS if name in names)]


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
