"""Everything that a report shows of one run, read from the run's folder.

Files are only read, so a run that is still going on is not disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

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
from fedloom.records.routes import ClientRoutes, file_of
from fedloom.records.rows import METRICS_FILE, MetricsRow
from fedloom.records.scores import SCORES_FILE, ScoredPath, read_scores
from fedloom.records.sites import Sites
from fedloom.report.attendance import RoundAttendance, attendance_of
from fedloom.report.classes import counted_again
from fedloom.report.damage import Damage
from fedloom.spaces.genotype import recall

Standing = Literal["finished", "running", "stopped"]
Content = TypeVar("Content")
RECENT = 60.0  # seconds since the latest round within which a run counts as running


@dataclass(frozen=True)
class Story:
    """One run, as a report shows it."""

    path: Path
    standing: Standing
    config: Experiment | None  # None: config.toml is damaged
    toml: str
    result: RunResult | None  # None: not finished
    rows: list[MetricsRow]  # the rows of metrics.jsonl, without their ledgers
    samples: list[int]  # how many samples each client has; empty: unknown
    split: str | None  # the split's hash
    classes: Classes | None
    gain: GainMatrix | None  # None: it was not measured, or the file is damaged
    names: list[str]  # the names of the clients, if they are sites
    scores: list[ScoredPath] = field(default_factory=list)  # paths that a search scored
    attendance: list[RoundAttendance] = field(default_factory=list)  # one for each row
    damage: list[Damage] = field(default_factory=list)  # files that exist but cannot be read
    # By client, for models in which each sample takes its own path.
    routes: Mapping[int, ClientRoutes] = field(default_factory=dict)

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
        """The metric that the run is judged by; before its first evaluation, that of images."""
        if self.result is not None:
            return self.result.judged_by
        for row in self.rows:
            if row.evaluation is not None:
                return METRICS[row.evaluation.metric]
        return metric_of("image")

    @property
    def clients(self) -> list[ClientResult]:
        if self.result is None:
            return []
        return self.result.clients

    @property
    def has_tiers(self) -> bool:
        """Whether the run's result has tiers of devices."""
        return self.result is not None and bool(self.result.tiers)

    @property
    def has_damaged_result(self) -> bool:
        return any(damage.file == RESULT for damage in self.damage)

    @property
    def most_common_class(self) -> float | None:
        """What always answering each client's most common class would give.

        None: it is not known, or the metric is not accuracy.
        """
        if self.result is not None and self.result.most_common_class is not None:
            return self.result.most_common_class
        if self.metric.name != "accuracy" or self.classes is None:
            return None
        return self.classes.usual

    def client_name(self, client: int) -> str:
        """Return a site's name, or `client 3`."""
        if client < len(self.names):
            return self.names[client]
        return f"client {client}"

    def figure(self, value: float | None) -> str:
        """Write a value of the run's metric as tables print it, with its unit."""
        if value is None:
            return "–"
        return self.metric.text(value) + self.metric.unit


@dataclass(frozen=True)
class Configuration:
    """The content of config.toml, parsed and as text."""

    experiment: Experiment | None  # None: the file is damaged
    toml: str


@dataclass(frozen=True)
class FileMark:
    """Identifies a version of a file: it changes whenever the file does."""

    size: int
    modified: int  # nanoseconds
    inode: int


@dataclass(frozen=True)
class CachedFile:
    """A file's content, and the mark that the file had when it was read."""

    mark: FileMark | None
    content: Any


@dataclass
class Reader:
    """Reads a run's folder; a live page reads it again and again.

    Files that did not change are not read twice.
    """

    folder: RunFolder
    rows: list[MetricsRow] = field(default_factory=list)
    attendance: list[RoundAttendance] = field(default_factory=list)  # one for each row
    offset: int = 0  # bytes of metrics.jsonl that were read
    lines: int = 0  # lines of metrics.jsonl that were read
    left_out: list[str] = field(default_factory=list)  # damaged lines: which, and what is wrong
    cache: dict[str, CachedFile] = field(default_factory=dict)  # by the file's name
    damage: dict[str, Damage] = field(default_factory=dict)  # by the file's name

    def read(self) -> Story:
        result = self._cached(RESULT, self._result)
        split = self._cached("split.json", self._split)
        config = self._cached("config.toml", self._config)
        counted = None
        samples: list[int] = []
        split_hash = None
        if split is not None:
            samples = (split.offsets[1:] - split.offsets[:-1]).tolist()
            split_hash = split.hash
            counted = self._cached(classes.NAME, self._classes)
        names = self._cached(sites.NAME, self._site_names)
        if counted is not None and counted.names:
            names = counted.names
        rows = self._metrics(config.experiment)
        gain = self._cached(GAIN, self._gain)
        scores = self._cached(SCORES_FILE, self._scores)
        routes = self._routes(result)
        return Story(
            path=self.folder.path,
            standing=standing(self.folder, finished=result is not None),
            config=config.experiment,
            toml=config.toml,
            result=result,
            rows=rows,
            samples=samples,
            split=split_hash,
            classes=counted,
            gain=gain,
            names=names,
            scores=scores,
            attendance=self.attendance,
            damage=[*self.damage.values(), *self._damaged_rows()],  # of all that was read above
            routes=routes,
        )

    def _cached(self, name: str, read: Callable[[], Content]) -> Content:
        """Return a file's content; `read` is called once for every version of the file."""
        mark = mark_of(self.folder.path / name)
        if name not in self.cache or self.cache[name].mark != mark:
            self.damage.pop(name, None)
            self.cache[name] = CachedFile(mark, read())
        content: Content = self.cache[name].content
        return content

    def _note_damage(self, name: str, reason: str, consequence: str) -> None:
        """Note that a file is damaged. A missing file is not: many runs do not have it."""
        if (self.folder.path / name).exists():
            self.damage[name] = Damage(name, f"{name} is damaged: {reason}. {consequence}")

    def _result(self) -> RunResult | None:
        try:
            return self.folder.read_result()
        except Unreadable as error:
            remedy = f"`fedloom resume {self.folder.path}` makes it again."
            self._note_damage(RESULT, f"{error}", remedy)
            return None

    def _gain(self) -> GainMatrix | None:
        try:
            return GainMatrix.read(self.folder.path)
        except Unreadable as error:
            remedy = f"`fedloom gain {self.folder.path}` measures it again."
            self._note_damage(GAIN, f"{error}", remedy)
            return None

    def _scores(self) -> list[ScoredPath]:
        try:
            return read_scores(self.folder.path / SCORES_FILE)
        except (FedloomError, OSError) as error:
            reason = f"{error}".rstrip(".")
            self._note_damage(SCORES_FILE, reason, "What the search scored is left out.")
            return []

    def _routes(self, result: RunResult | None) -> dict[int, ClientRoutes]:
        """Read the routes by client; a large run has written only those of the first clients."""
        if result is None:
            return {}
        routes = {}
        for client in result.clients:
            if client.routes is None:
                continue
            read = partial(self._routes_of, client.client)
            client_routes = self._cached(file_of(client.client), read)
            if client_routes is not None:
                routes[client.client] = client_routes
        return routes

    def _routes_of(self, client: int) -> ClientRoutes | None:
        try:
            return ClientRoutes.read(self.folder.path, client)
        except Unreadable as error:
            self._note_damage(file_of(client), f"{error}", "The client's paths are left out.")
            return None

    def _classes(self) -> Classes | None:
        try:
            return Classes.read(self.folder.path)
        except Unreadable as error:
            counted = counted_again(self.folder)
            consequence = "The classes of each client were counted again from the data."
            if counted is None:
                consequence = "The classes of each client are not known."
            self._note_damage(classes.NAME, f"{error}", consequence)
            return counted

    def _site_names(self) -> list[str]:
        try:
            return Sites.read(self.folder.path).names
        except Unreadable as error:
            self._note_damage(sites.NAME, f"{error}", "Sites are shown by their numbers.")
            return []

    def _split(self) -> Split | None:
        try:
            return Split.load(self.folder.path / "split.json")
        except FedloomError as error:  # not there, or damaged
            reason = f"{error}".rstrip(".")
            self._note_damage("split.json", reason, "The clients' samples are not known.")
            return None

    def _config(self) -> Configuration:
        try:
            experiment = self.folder.config()
            toml = (self.folder.path / "config.toml").read_text()
        except (FedloomError, OSError) as error:
            reason = f"{error}".rstrip(".")
            self._note_damage("config.toml", reason, "Settings are not known.")
            return Configuration(None, "")
        recall(experiment.options)
        return Configuration(experiment, toml)

    def _metrics(self, config: Experiment | None) -> list[MetricsRow]:
        """Read the new lines; from the beginning if a resume has cut some off."""
        path = self.folder.path / METRICS_FILE
        mark = mark_of(path)
        if mark is None or mark.size < self.offset:
            self.rows = []
            self.attendance = []
            self.left_out = []
            self.offset = 0
            self.lines = 0
        if mark is not None and mark.size > self.offset:
            with path.open("rb") as file:
                file.seek(self.offset)
                content = file.read()
            end = content.rfind(b"\n") + 1  # a line without its end is still being written
            self.offset += end
            self._add_rows(content[:end], config)
        return self.rows

    def _add_rows(self, content: bytes, config: Experiment | None) -> None:
        """Add rows without their ledgers, which would fill the memory.

        Of the ledgers only the attendance is kept. Damaged lines are left out and noted.
        """
        deadline = None
        if config is not None:
            deadline = config.clock.round_deadline
        rows = []
        attendance = []
        for line in content.split(b"\n")[:-1]:
            self.lines += 1
            try:
                row = MetricsRow.from_line(line)
            except Unreadable as error:
                self.left_out.append(f"line {self.lines}: {error}")
                continue
            rows.append(replace(row, ledger=()))
            attendance.append(attendance_of(row, deadline))
        self.rows = with_new_rows(self.rows, rows)
        self.attendance = with_new_rows(self.attendance, attendance)

    def _damaged_rows(self) -> list[Damage]:
        count = len(self.left_out)
        if not count:
            return []
        rows = f"{count:,} rows are"
        if count == 1:
            rows = "1 row is"
        consequence = f"{rows} left out of this page, the first is {self.left_out[0]}"
        return [Damage(METRICS_FILE, f"{METRICS_FILE} is damaged: {consequence}.")]


class HasRound(Protocol):
    @property
    def round(self) -> int: ...


Row = TypeVar("Row", bound=HasRound)


def with_new_rows(rows: list[Row], new: list[Row]) -> list[Row]:
    """Append new rows.

    A round that was run again, after a resume, replaces its earlier row and all later ones.
    """
    if not new:
        return rows
    earlier = [row for row in rows if row.round < new[0].round]
    return [*earlier, *new]


def mark_of(path: Path) -> FileMark | None:
    """Return a file's mark; None: there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileMark(status.st_size, status.st_mtime_ns, status.st_ino)


def standing(folder: RunFolder, *, finished: bool) -> Standing:
    if finished:
        return "finished"
    if is_running(folder):
        return "running"
    return "stopped"


def is_running(folder: RunFolder) -> bool:
    """Whether a process works in the folder.

    Trying to take its lock could make that process fail, so the kernel's list of locks is read.
    """
    lock = mark_of(folder.path / "run.lock")
    if lock is None:
        return False
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:  # not Linux: a recent round means that the run goes on
        latest_round = mark_of(folder.path / METRICS_FILE)
        return latest_round is not None and time.time() - latest_round.modified / 1e9 < RECENT
    return any(is_lock_of(line, lock.inode) for line in locks)


def is_lock_of(line: str, inode: int) -> bool:
    """Whether a line of /proc/locks is a lock of this file.

    A line reads `1: FLOCK ADVISORY WRITE 711 08:01:42 0 EOF`; 711 is a process, 42 an inode.
    """
    if " FLOCK " not in line:
        return False
    device_and_inode = line.split()[5]
    return device_and_inode.rpartition(":")[2] == str(inode)
