"""scores.jsonl: the score of every path that a search tried, a row each, in the order of scoring.

A run's own file is made of the server's state alone, so that a run which was killed and resumed
leaves the same bytes. No path is in it twice: what has a score is never scored again.
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

    tier: Count  # that it was first scored for, from 1; 0: a search after the run scored it
    path: tuple[str, ...]  # its operations, by layer
    loss: Figure  # a sample, with the supernet's weights
    accuracy: Share
    samples: PositiveCount  # that it was scored on
    params: Count
    macs: Count
    # None: text, one class, clients scored it (they send sums over all classes), or an earlier
    # version wrote it. The row leaves it out then.
    balanced_accuracy: Share | None = None
    auc: Share | None = None  # the same, where there are two classes

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
        """Raises Unreadable. What a later version added is left out."""
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
    """Every row of a scores.jsonl; none where there is no such file.

    What a kill left of a last line is no score.
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
            advice = "take the file from a backup, or delete it: what it had is scored again"
            raise FedloomError(rule, f"{error}", advice) from None
    return rows


def write_scores(path: Path, rows: Sequence[ScoredPath]) -> None:
    """Make a file have exactly these rows. No rows: no file.

    Usually they are those that it has and some more, which are appended, also to half a line that
    a kill left. A file with other rows, of rounds that were taken back, is written anew.
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
