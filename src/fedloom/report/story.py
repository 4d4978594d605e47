"""All that a report tells of one run, read from its folder. It only reads: a run that goes on is not disturbed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.metrics.metric import METRICS, Metric, metric_of
from fedloom.records.folder import RunFolder, is_whole
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
    result: Json | None  # None: not finished
    rows: list[Json]  # of metrics.jsonl, without their ledgers
    samples: list[int]  # of each client; empty: unknown
    split: str | None  # its hash
    classes: Classes | None
    gain: Json | None
    names: list[str]  # of clients that are sites

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def method(self) -> str:
        told = self.result["method"] if self.result else self.config.method if self.config else "?"
        return str(told).rpartition("/")[2]

    @property
    def federated(self) -> bool:
        return self.config is not None and self.config.engine.federation is not None

    @cached_property
    def metric(self) -> Metric:
        """What the run is judged by; before its first evaluation, as most are."""
        told = [row["evaluation"]["metric"] for row in self.rows if "evaluation" in row]
        return METRICS[self.result["metric"]] if self.result else METRICS[told[0]] if told else metric_of("image")

    @property
    def clients(self) -> list[Json]:
        found: list[Json] = self.result["clients"] if self.result else []
        return found

    def called(self, client: int) -> str:
        return self.names[client] if client < len(self.names) else f"client {client}"

    def figure(self, value: float | None) -> str:
        """As tables print it, with its unit."""
        return "–" if value is None else self.metric.text(value) + self.metric.unit


@dataclass
class Reader:
    """Reads a run's folder, again and again for a live page: what did not change is not read twice."""

    folder: RunFolder
    rows: list[Json] = field(default_factory=list)
    offset: int = 0  # of metrics.jsonl, up to which it was read
    kept: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def read(self) -> Story:
        result = self._cached("result.json", self._result)
        split = self._cached("split.json", self._split)
        sizes = [] if split is None else [int(end) for end in split.offsets[1:] - split.offsets[:-1]]
        found = self._cached("config.toml", self._config)
        counted = None if split is None else self._cached(classes.NAME, lambda: classes.find(self.folder))
        names = [] if counted is None else counted.names
        return Story(
            self.folder.path, standing(self.folder, result), found and found[0], found[1] if found else "",
            result, self._metrics(), sizes, None if split is None else split.hash, counted,
            self._cached("gain.json", lambda: self._json("gain.json")),
            names or sorted(self._cached("sites.json", lambda: self._json("sites.json")) or {}),
        )  # fmt: skip

    def _cached(self, name: str, read: Callable[[], Found]) -> Found:
        """Read once for every version of the file."""
        mark = mark_of(self.folder.path / name)
        if name not in self.kept or self.kept[name][0] != mark:
            self.kept[name] = (mark, read())
        found: Found = self.kept[name][1]
        return found

    def _result(self) -> Json | None:
        """Something else than a result is none, as a damaged one is: a resume makes it again."""
        found = self._json("result.json")
        if found is None or not is_whole(found, "run"):
            return None
        return found if found["metric"] in METRICS else None

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

    def _metrics(self) -> list[Json]:
        """The new lines; from the beginning if a resume has cut some off."""
        path = self.folder.path / "metrics.jsonl"
        mark = mark_of(path)
        if mark is None or mark[0] < self.offset:
            self.rows, self.offset = [], 0
        if mark is not None and mark[0] > self.offset:
            with path.open("rb") as file:
                file.seek(self.offset)
                whole, _, _ = file.read().rpartition(b"\n")
            self.offset += len(whole) + 1 if whole else 0
            self.rows = grown(self.rows, [without_ledger(line) for line in whole.splitlines()])
        return self.rows


def grown(rows: list[Json], new: list[Json | None]) -> list[Json]:
    """With the new ones. A round that was run again, after a resume, replaces what was there of it and after it."""
    found = [row for row in new if row is not None]
    first = found[0]["round"] if found else None
    return [*(row for row in rows if first is None or row["round"] < first), *found]


def without_ledger(line: bytes) -> Json | None:
    """A round without its ledger, which would fill the memory and is not shown; None: damaged."""
    try:
        row = finite(line)
        whole = {"round", "totals"} <= set(row)
        return {name: value for name, value in row.items() if name != "ledger"} if whole else None
    except (ValueError, AttributeError, TypeError):
        return None


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


def standing(folder: RunFolder, result: Json | None) -> Standing:
    return "finished" if result is not None else "running" if at_work(folder) else "stopped"


def at_work(folder: RunFolder) -> bool:
    """Whether a process works in the folder. To try its lock could make that process fail, so the kernel is asked."""
    lock, rows = mark_of(folder.path / "run.lock"), mark_of(folder.path / "metrics.jsonl")
    if lock is None:
        return False
    try:
        known = Path("/proc/locks").read_text().splitlines()
    except OSError:  # another system: a round that ended lately tells
        return rows is not None and time.time() - rows[1] / 1e9 < RECENT
    return any(" FLOCK " in line and line.split()[5].rpartition(":")[2] == str(lock[2]) for line in known)
