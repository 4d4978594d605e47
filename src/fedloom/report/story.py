"""All that a report tells of one run, read from its folder. It only reads: a run that goes on is not disturbed."""

from __future__ import annotations

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
from fedloom.reading import Unreadable
from fedloom.records import classes, sites
from fedloom.records.classes import Classes
from fedloom.records.folder import RunFolder
from fedloom.records.gain import NAME as GAIN
from fedloom.records.gain import GainMatrix
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import ClientResult, RunResult
from fedloom.records.rows import METRICS_FILE, MetricsRow
from fedloom.records.sites import Sites
from fedloom.report.classes import counted_again
from fedloom.report.damage import Damage
from fedloom.spaces.genotype import recall

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
    damage: list[Damage] = field(default_factory=list)  # files that are there and cannot be read

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

    @property
    def has_damaged_result(self) -> bool:
        return any(damage.file == RESULT for damage in self.damage)

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
    lines: int = 0  # of metrics.jsonl, up to there
    left_out: list[str] = field(default_factory=list)  # of these lines: which, and what is wrong with it
    kept: dict[str, tuple[object, Any]] = field(default_factory=dict)
    damage: dict[str, Damage] = field(default_factory=dict)  # by the file's name

    def read(self) -> Story:
        result = self._cached(RESULT, self._result)
        split = self._cached("split.json", self._split)
        config, toml = self._cached("config.toml", self._config)
        counted = None
        samples: list[int] = []
        if split is not None:
            samples = [int(size) for size in split.offsets[1:] - split.offsets[:-1]]
            counted = self._cached(classes.NAME, self._classes)
        names = self._cached(sites.NAME, self._site_names)
        if counted is not None and counted.names:
            names = counted.names
        rows = self._metrics()
        return Story(
            path=self.folder.path,
            standing=standing(self.folder, finished=result is not None),
            config=config,
            toml=toml,
            result=result,
            rows=rows,
            samples=samples,
            split=None if split is None else split.hash,
            classes=counted,
            gain=self._cached(GAIN, self._gain),
            names=names,
            damage=[*self.damage.values(), *self._damaged_rows()],
        )

    def _cached(self, name: str, read: Callable[[], Found]) -> Found:
        """Read once for every version of the file."""
        mark = mark_of(self.folder.path / name)
        if name not in self.kept or self.kept[name][0] != mark:
            self.damage.pop(name, None)
            self.kept[name] = (mark, read())
        found: Found = self.kept[name][1]
        return found

    def _note_damage(self, name: str, reason: str, consequence: str) -> None:
        """Unless the file is not there at all: many runs do without."""
        if (self.folder.path / name).exists():
            self.damage[name] = Damage(name, f"{name} is damaged: {reason}. {consequence}")

    def _result(self) -> RunResult | None:
        try:
            return self.folder.read_result()
        except Unreadable as error:
            self._note_damage(RESULT, f"{error}", f"`fedloom resume {self.folder.path}` makes it again.")
            return None

    def _gain(self) -> GainMatrix | None:
        try:
            return GainMatrix.read(self.folder.path)
        except Unreadable as error:
            self._note_damage(GAIN, f"{error}", f"`fedloom gain {self.folder.path}` measures it again.")
            return None

    def _classes(self) -> Classes | None:
        try:
            return Classes.read(self.folder.path)
        except Unreadable as error:
            counted = counted_again(self.folder)
            consequence = "Who holds what was counted again from the data."
            if counted is None:
                consequence = "Who holds what is not known."
            self._note_damage(classes.NAME, f"{error}", consequence)
            return counted

    def _site_names(self) -> list[str]:
        try:
            return Sites.read(self.folder.path).names
        except Unreadable as error:
            self._note_damage(sites.NAME, f"{error}", "Sites are called by their numbers.")
            return []

    def _split(self) -> Split | None:
        try:
            return Split.load(self.folder.path / "split.json")
        except FedloomError as error:  # not there, or damaged
            self._note_damage("split.json", f"{error}".rstrip("."), "Who holds what is not known.")
            return None

    def _config(self) -> tuple[Experiment | None, str]:
        try:
            config, text = self.folder.config(), (self.folder.path / "config.toml").read_text()
        except (FedloomError, OSError) as error:
            self._note_damage("config.toml", f"{error}".rstrip("."), "Settings are not known.")
            return None, ""
        recall(config.options)
        return config, text

    def _metrics(self) -> list[MetricsRow]:
        """The new lines; from the beginning if a resume has cut some off."""
        path = self.folder.path / METRICS_FILE
        mark = mark_of(path)
        if mark is None or mark[0] < self.offset:
            self.rows, self.left_out = [], []
            self.offset = self.lines = 0
        if mark is not None and mark[0] > self.offset:
            with path.open("rb") as file:
                file.seek(self.offset)
                content = file.read()
            end = content.rfind(b"\n") + 1  # a line without its end is still being written
            self.offset += end
            self.rows = grown(self.rows, self._rows_in(content[:end]))
        return self.rows

    def _rows_in(self, content: bytes) -> list[MetricsRow]:
        """Without ledgers, which would fill the memory and are not shown, and without what is damaged."""
        rows = []
        for line in content.split(b"\n")[:-1]:
            self.lines += 1
            try:
                rows.append(MetricsRow.from_line(line, with_ledger=False))
            except Unreadable as error:
                self.left_out.append(f"line {self.lines}: {error}")
        return rows

    def _damaged_rows(self) -> list[Damage]:
        count = len(self.left_out)
        if not count:
            return []
        rows = "1 row is" if count == 1 else f"{count:,} rows are"
        sentence = f"{METRICS_FILE} is damaged: {rows} left out of this page, the first is {self.left_out[0]}."
        return [Damage(METRICS_FILE, sentence)]


def grown(rows: list[MetricsRow], new: list[MetricsRow]) -> list[MetricsRow]:
    """With the new ones. A round that was run again, after a resume, replaces what was there of it and after it."""
    if not new:
        return rows
    earlier = [row for row in rows if row.round < new[0].round]
    return [*earlier, *new]


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
