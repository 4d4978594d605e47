"""scores.jsonl: the score of every path that a search tried, one row each, in order of scoring.

A run's own file is derived from the server's state only, so that a run that was killed and resumed
leaves the same bytes. No path occurs twice: a path that has a score is never scored again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, TypeAdapter, ValidationError

from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.reading import Unreadable, bounded, parse_json
from fedloom.records.mistakes import first_mistake
from fedloom.records.record import Count, Figure, PositiveCount
from fedloom.types import Json

SCORES_FILE = "scores.jsonl"
Share = Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class ScoredPath:
    """A path through the supernet, its figures on validation data, and what it costs."""

    tier: Count  # the tier that it was first scored for; 0: a search after the run scored it
    path: tuple[str, ...]  # its operations, by layer
    loss: Figure  # per sample, with the supernet's weights
    accuracy: Share
    samples: PositiveCount  # on which it was scored
    params: Count
    macs: Count
    # None: the data is text, there is one class, clients scored it (they send sums over all
    # classes), or an earlier version wrote it. The row then lacks the field.
    balanced_accuracy: Share | None = None
    auc: Share | None = None  # likewise, where there are two classes

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = {**vars(self), "path": list(self.path)}
        for name in ("balanced_accuracy", "auc"):
            if row[name] is None:
                del row[name]
        return row

    def to_line(self) -> bytes:
        return json.dumps(self.to_json(), allow_nan=False).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> ScoredPath:
        """Read a row. Raises Unreadable. Fields of a later version are left out."""
        try:
            raw = parse_json(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise Unreadable("it is not text in UTF-8") from None
        if not isinstance(raw, dict):
            raise Unreadable("it is not an object of JSON")
        try:
            return row_checker().validate_python(bounded(raw))
        except ValidationError as error:
            raise Unreadable(first_mistake(error)) from None


@cache
def row_checker() -> TypeAdapter[ScoredPath]:
    return TypeAdapter(ScoredPath)


def read_scores(path: Path) -> list[ScoredPath]:
    """All rows of a scores.jsonl; an empty list if there is no such file.

    An incomplete last line, which a kill may leave, does not count.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            rows.append(ScoredPath.from_line(line))
        except Unreadable as error:
            rule = f"line {number} of {path} must be the score of a path"
            advice = "take the file from a backup, or delete it: its paths are scored again"
            raise FedloomError(rule, f"{error}", advice) from None
    return rows


def write_scores(path: Path, rows: Sequence[ScoredPath]) -> None:
    """Make a file have exactly these rows. Without rows the file is removed.

    Usually the file has the first of these rows already, and the others are appended, perhaps to
    half a line that a kill left. A file with other rows, from rounds that were taken back, is
    rewritten.
    """
    if not rows:
        path.unlink(missing_ok=True)
        return
    content = b"".join(row.to_line() for row in rows)
    present = b""
    if path.exists():
        present = path.read_bytes()
    if present == content:
        return
    if not present or not content.startswith(present):
        write_whole(path, [content], durable=True)
        return
    append(path, content[len(present) :])


def add_scores(path: Path, rows: Iterable[ScoredPath]) -> None:
    """Append rows to those of a file."""
    write_scores(path, [*read_scores(path), *rows])


def append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
