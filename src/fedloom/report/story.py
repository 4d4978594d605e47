"""All that a report tells of one run, read from its folder. It only reads: a run that goes on is not disturbed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.metrics.metric import METRICS, Metric, metric_of
from fedloom.reading import Unreadable
from fedloom.records.folder import SITES, RunFolder
from fedloom.records.gain import NAME as GAIN
from fedloom.records.gain import GainMatrix
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import ClientResult, RunResult
from fedloom.records.rows import METRICS_FILE, MetricsRow
from fedloom.report import classes
from fedloom.report.classes import Classes
from fedloom.spaces.genotype import recall
from fedloom.types import Json

Standing = Literal["finished", "running", "stopped"]
Found = TypeVar("Found")
RECENT = 60.0  # seconds


@dataclass(frozen=True)
class Story:
    path: Path
    standing: Standing
    config: Experiment | None  # None: damaged
    toml: str
    result: RunResult | None  # None: not finished
    rows: list[MetricsRow]  # of metrics.jsonl, without their ledgers
    samples: list[int]  # of each client; empty: unknown
    split: str | None  # its hash
    classes: Classes | None
    gain: GainMatrix | None  # None: nobody measured it, or the file is damaged
    names: list[str]  # of clients that are sites
    damage: str | None = None  # what is wrong with result.json

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def method(self) -> str:
        if self.result is not None:
            return self.result.short_method
        if self.config is not None:
            return self.config.method.rpartition("/")[2]
        return "?"

    @property
    def federated(self) -> bool:
        return self.config is not None and self.config.is_federated

    @cached_property
    def metric(self) -> Metric:
        """What the run is judged by; before its first evaluation, as most are."""
        if self.result is not None:
            return self.result.judged_by
        for row in self.rows:
            if row.evaluation is not None:
                return METRICS[row.evaluation.metric]
        return metric_of("image")

    @property
    def clients(self) -> list[ClientResult]:
        return [] if self.result is None else self.result.clients

    def called(self, client: int) -> str:
        return self.names[client] if client < len(self.names) else f"client {client}"

    def figure(self, value: float | None) -> str:
        """As tables print it, with its unit."""
        return "–" if value is None else self.metric.text(value) + self.metric.unit


@dataclass
class Reader:
    """Reads a run's folder, again and again for a live page: what did not change is not read twice."""

    folder: RunFolder
    rows: list[MetricsRow] = field(default_factory=list)
    offset: int = 0  # of metrics.jsonl, up to which it was read
    kept: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def read(self) -> Story:
        result, damage = self._cached(RESULT, self._result)
        split = self._cached("split.json", self._split)
        sizes = [] if split is None else [int(end) for end in split.offsets[1:] - split.offsets[:-1]]
        found = self._cached("config.toml", self._config)
        counted = None if split is None else self._cached(classes.NAME, lambda: classes.find(self.folder))
        names = [] if counted is None else counted.names
        config, toml = found or (None, "")
        return Story(
            path=self.folder.path,
            standing=standing(self.folder, finished=result is not None),
            config=config,
            toml=toml,
            result=result,
            rows=self._metrics(),
            samples=sizes,
            split=None if split is None else split.hash,
            classes=counted,
            gain=self._cached(GAIN, self._gain),
            names=names or sorted(self._cached(SITES, lambda: self._json(SITES)) or {}),
            damage=damage,
        )

    def _cached(self, name: str, read: Callable[[], Found]) -> Found:
        """Read once for every version of the file."""
        mark = mark_of(self.folder.path / name)
        if name not in self.kept or self.kept[name][0] != mark:
            self.kept[name] = (mark, read())
        found: Found = self.kept[name][1]
        return found

    def _result(self) -> tuple[RunResult | None, str | None]:
        """The figures; without them, what is wrong with the file, if there is one. A resume makes it again."""
        try:
            return self.folder.read_result(), None
        except Unreadable as error:
            return None, str(error) if (self.folder.path / RESULT).exists() else None

    def _gain(self) -> GainMatrix | None:
        try:
            return GainMatrix.read(self.folder.path)
        except Unreadable:
            return None

    def _split(self) -> Split | None:
        try:
            return Split.load(self.folder.path / "split.json")
        except FedloomError:  # not there, or damaged
            return None

    def _config(self) -> tuple[Experiment, str] | None:
        try:
            config, text = self.folder.config(), (self.folder.path / "config.toml").read_text()
        except (FedloomError, OSError):
            return None
        recall(config.options)
        return config, text

    def _json(self, name: str) -> Json | None:
        try:
            return finite((self.folder.path / name).read_text())
        except (OSError, ValueError):  # not there, or damaged
            return None

    def _metrics(self) -> list[MetricsRow]:
        """The new lines; from the beginning if a resume has cut some off."""
        path = self.folder.path / METRICS_FILE
        mark = mark_of(path)
        if mark is None or mark[0] < self.offset:
            self.rows, self.offset = [], 0
        if mark is not None and mark[0] > self.offset:
            with path.open("rb") as file:
                file.seek(self.offset)
                whole, _, _ = file.read().rpartition(b"\n")
            self.offset += len(whole) + 1 if whole else 0
            self.rows = grown(self.rows, rows_in(whole))
        return self.rows


def grown(rows: list[MetricsRow], new: list[MetricsRow]) -> list[MetricsRow]:
    """With the new ones. A round that was run again, after a resume, replaces what was there of it and after it."""
    if not new:
        return rows
    earlier = [row for row in rows if row.round < new[0].round]
    return [*earlier, *new]


def rows_in(lines: bytes) -> list[MetricsRow]:
    """Without ledgers, which would fill the memory and are not shown, and without what is damaged."""
    whole = []
    for line in lines.split(b"\n"):
        with suppress(Unreadable):
            whole.append(MetricsRow.from_line(line, with_ledger=False))
    return whole


def finite(text: str | bytes) -> Json:
    """JSON in which NaN and infinity, which it should not hold, are unknown."""
    return json.loads(text, parse_constant=lambda name: None)


def mark_of(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def standing(folder: RunFolder, *, finished: bool) -> Standing:
    if finished:
        return "finished"
    return "running" if at_work(folder) else "stopped"


def at_work(folder: RunFolder) -> bool:
    """Whether a process works in the folder. To try its lock could make that process fail, so the kernel is asked."""
    lock = mark_of(folder.path / "run.lock")
    latest_round = mark_of(folder.path / METRICS_FILE)
    if lock is None:
        return False
    try:
        known = Path("/proc/locks").read_text().splitlines()
    except OSError:  # another system: a round that ended lately tells
        return latest_round is not None and time.time() - latest_round[1] / 1e9 < RECENT
    return any(" FLOCK " in line and line.split()[5].rpartition(":")[2] == str(lock[2]) for line in known)
