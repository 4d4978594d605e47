"""What a site remembers of the surveys that it answered, in KIT/state/surveys.

The answer about a table holds sums of its columns. Sums from before and after a row was added would
reveal this row. So a site keeps a mark of every row of each table whose sums have left, and refuses
the sums of a table that differs from one of these by fewer rows than the policy's `min_part`. Marks
are digests of 64 bits that never leave the site.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fedloom.data.tables.table import GAP, Column, Numbers, Table
from fedloom.deploy.closed import Closed
from fedloom.deploy.divisions import Count
from fedloom.deploy.experiments import DIGEST, Digest, read_memory, union, write_memory
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy
from fedloom.deploy.terms import ImageSize
from fedloom.errors import FedloomError
from fedloom.files import write_whole

FOLDER = "surveys"
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)
NO_VALUE = "no value"  # stands for a value that is missing, among bytes of values


class AnsweredSurveys(Closed):
    """state/surveys/answered.json."""

    format: Literal[1] = 1
    questions: tuple[Digest, ...] = ()  # the different ones that were answered
    repeats: Count = 0  # how often a question was asked that had been answered already
    tables: tuple[Digest, ...] = ()  # those whose sums left; the marks are in a file of this name
    sizes: tuple[ImageSize, ...] = ()  # to which images were resized; each has a file in the cache


class Surveys:
    """A site's memory of its surveys. Use it inside `locked_experiments`."""

    def __init__(self, states: Path) -> None:
        self.folder = states / FOLDER
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def path(self) -> Path:
        return self.folder / "answered.json"

    def answered(self) -> AnsweredSurveys:
        return read_memory(self.path, AnsweredSurveys.model_validate_json, AnsweredSurveys())

    def count(self, question: Sequence[object], policy: Policy) -> None:
        """Remember a question. Raises an error if the policy allows no further one.

        One that was asked before has the same answer, so it counts as a repetition: every run
        begins with a survey.
        """
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:DIGEST]
        answered = self.answered()
        if digest in answered.questions:
            if answered.repeats >= policy.evaluations:
                rule = f"this site must repeat at most {policy.evaluations} answers to surveys"
                raise Refusal(rule, "this would be one more", "ask the site")
            self._put(answered.model_copy(update={"repeats": answered.repeats + 1}))
            return
        if len(answered.questions) >= policy.evaluations:
            rule = f"this site must answer at most {policy.evaluations} different surveys"
            raise Refusal(rule, "this is another one", "ask the site")
        questions = (*answered.questions, digest)
        self._put(answered.model_copy(update={"questions": questions}))

    def resize(self, size: ImageSize, policy: Policy) -> None:
        """Remember a size of images. Raises an error if the policy allows no further one."""
        answered = self.answered()
        if size in answered.sizes:
            return
        if len(answered.sizes) >= policy.sizes:
            rule = f"images must be resized to at most {policy.sizes} different sizes here"
            raise Refusal(rule, "this is another one", "use an earlier size, or ask the site")
        self._put(answered.model_copy(update={"sizes": (*answered.sizes, size)}))

    def tell(self, table: Table, policy: Policy) -> None:
        """Remember that sums of this table leave. Raises an error if they reveal a few rows."""
        marks = np.sort(marks_of(table))
        digest = hashlib.sha256(marks.tobytes()).hexdigest()[:DIGEST]
        answered = self.answered()
        if digest in answered.tables:
            return
        for earlier in answered.tables:
            changed = rows_between(marks, self._marks(earlier))
            if changed < policy.min_part:
                least = f"at least {policy.min_part} rows"
                rule = f"a table must change by {least} before sums of its columns leave again"
                found = f"{changed} rows came, went or changed since they left"
                advice = "ask the site to take the table from then, or add more rows"
                raise Refusal(rule, found, advice)
        self._put_marks(digest, marks)
        self._put(answered.model_copy(update={"tables": (*answered.tables, digest)}))

    def take(self, other: Surveys) -> None:
        """Remember what another memory of this site remembers, too."""
        answered, others = self.answered(), other.answered()
        for digest in others.tables:
            if digest not in answered.tables:
                self._put_marks(digest, other._marks(digest))
        changes = {
            "questions": union(answered.questions, others.questions),
            "repeats": max(answered.repeats, others.repeats),
            "tables": union(answered.tables, others.tables),
            "sizes": union(answered.sizes, others.sizes),
        }
        self._put(answered.model_copy(update=changes))

    def _put(self, answered: AnsweredSurveys) -> None:
        write_memory(self.path, answered.model_dump_json(exclude_defaults=True))

    def _put_marks(self, digest: str, marks: np.ndarray) -> None:
        buffer = io.BytesIO()
        np.save(buffer, marks)
        write_whole(self._marks_path(digest), [buffer.getvalue()], durable=True)

    def _marks_path(self, digest: str) -> Path:
        return self.folder / f"{digest}.npy"

    def _marks(self, digest: str) -> np.ndarray:
        """The marks of a table, sorted. Damaged ones are an error: any row might have changed."""
        path = self._marks_path(digest)
        try:
            marks: np.ndarray = np.load(path, allow_pickle=False)
            found = hashlib.sha256(marks.tobytes()).hexdigest()[:DIGEST]
        except (OSError, ValueError, EOFError) as error:
            found = f"{error}"
        if found != digest:
            rule = f"{path} must be as the site wrote it"
            raise FedloomError(rule, "it is missing or damaged", "restore it from a backup")
        return marks


# Rows


def marks_of(table: Table) -> np.ndarray:
    """A number for every row, which is equal for equal rows and hardly ever for others."""
    marks = np.zeros(len(table), np.uint64)
    for name in sorted(table.columns):
        marks ^= cells_of(table.columns[name]) + mark_of(f"column {name}")
        marks *= MULTIPLIER
        marks ^= marks >> SHIFT
    return marks


def cells_of(column: Column) -> np.ndarray:
    """A number for every value of a column."""
    missing = mark_of(NO_VALUE)
    if isinstance(column, Numbers):
        values = np.ascontiguousarray(column.values, np.float64) + 0.0  # -0.0 is 0.0
        cells = values.view(np.uint64) * MULTIPLIER
    else:
        marks = [mark_of(f"text {name}") for name in column.names]
        cells = np.array([*marks, missing], np.uint64)[column.codes]
    assert GAP == -1  # the last of the marks
    chosen: np.ndarray = np.where(column.missing, missing, cells)
    return chosen


def mark_of(text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return np.uint64(int.from_bytes(digest.digest(), "little"))


def rows_between(marks: np.ndarray, others: np.ndarray) -> int:
    """How many rows only one of two tables has. A row that changed is one in both."""
    values, places = np.unique(np.concatenate([marks, others]), return_inverse=True)
    first = np.bincount(places[: len(marks)], minlength=len(values))
    second = np.bincount(places[len(marks) :], minlength=len(values))
    return int(np.abs(first - second).sum())
