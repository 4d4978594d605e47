"""The folder of a run. It is never overwritten, and only one process at a time works in it.

run.json         the kind and version of the folder   split.json      which client has which samples
config.toml      all settings of the run              metrics.jsonl   one row per round, with ledger
checkpoints/     the last two rounds and the best     clients/        the clients' own states
spool/           replies of the current round         exchange/       weights and data for workers
result.json      the figures, once finished           run.log         refusals, tracebacks, warnings
report.html      the figures as a page for people     classes.json    samples per client and class
metrics.csv      metrics.jsonl as flat columns        plots/          figures, if asked for
init.state       the weights that --init started from exports/        exported models
sites.json       what a federation's sites reported   NAME.state      the result of stage NAME
scores.jsonl     paths that a search scored           searches/       results of `fedloom search`
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom import reading
from fedloom.config.models import Experiment, validated
from fedloom.errors import FedloomError, RunStopped
from fedloom.files import write_whole
from fedloom.options import as_before
from fedloom.reading import Unreadable
from fedloom.records.comparison import ComparisonResult
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult
from fedloom.records.rows import METRICS_FILE, MetricsRow, read_rows
from fedloom.types import Json
from fedloom.version import __version__

FORMAT = 1
RUNS = Path("runs")
HEAD = "run.json"
CONFIG = "config.toml"
KINDS = ("run", "compare")


class Head(BaseModel):
    """run.json: the kind of the folder, and the versions of fedloom that worked in it."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    format: int = Field(ge=1)
    kind: str
    fedloom: str = "unknown"  # the version that created it
    resumed_by: list[str] = []  # other versions that continued the run, in order
    # For a federation's run: the id under which its sites keep their states.
    experiment: str | None = None
    # For a federation's run: whether it has the classes of all its sites, not only those that most
    # sites have.
    joins_labels: bool = False

    @property
    def versions(self) -> list[str]:
        """All versions that worked on the run, each once."""
        return list(dict.fromkeys([self.fedloom, *self.resumed_by]))


@dataclass(frozen=True)
class RunSummary:
    """One line of `fedloom runs`."""

    run: str  # its folder
    kind: str  # "run", "compare", or "damaged" if it is unknown
    state: Literal["finished", "unfinished"]
    rounds: int  # in metrics.jsonl
    metric: str | None  # None: a comparison, or there are no figures yet
    mean: float | None  # of the metric over clients
    balanced_accuracy: float | None  # likewise
    auc: float | None  # likewise, where there are two classes
    bytes: int  # on disk


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def create(cls, kind: str, label: str, out: Path | None) -> RunFolder:
        """Create a new folder: `out`, or the next free runs/<number>-<label>."""
        if out is not None and has_content(out):
            rule = "--out must be a new or empty folder"
            raise FedloomError(rule, f"{out} has content", "name another folder")
        with making(out or RUNS):
            path = out
            if path is None:
                path = numbered(label)
            folder = cls(path)
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.write_json(HEAD, {"format": FORMAT, "kind": kind, "fedloom": __version__})
        return folder

    @classmethod
    def open(cls, path: Path, *, newer: bool = False) -> RunFolder:
        """Open an existing run whose format this version reads.

        With `newer`, later formats are accepted too, so that such runs can be removed.
        """
        folder = cls(path)
        head = folder.head()
        if head.format > FORMAT and not newer:
            written = f"it was written by fedloom {head.fedloom} in format {head.format}"
            raise FedloomError(
                f"{path} must be a run this version can read",
                f"{written}, this one reads {FORMAT}",
                "upgrade fedloom",
            )
        if head.format <= FORMAT and head.kind not in KINDS:
            raise folder.no_run()
        return folder

    def head(self) -> Head:
        try:
            return Head.model_validate(reading.read_json(self.path / HEAD))
        except (Unreadable, ValidationError):
            raise self.no_run() from None

    def no_run(self) -> FedloomError:
        rule = f"{self.path} must be the folder of a run"
        return FedloomError(rule, f"it has no valid {HEAD}", "see `fedloom runs`")

    @property
    def kind(self) -> str:
        """ "run" or "compare"."""
        try:
            return self.head().kind
        except FedloomError:
            return "damaged"

    def config(self) -> Experiment:
        """The settings that the run was started with.

        A setting that was added later has the value by which fedloom behaves as it did before.

        The method's own options are returned as they were written: `runs.configure.config_of` reads
        them as the method does.
        """
        try:
            raw = reading.read_toml(self.path / CONFIG)
        except Unreadable as error:
            rule = f"{self.path / CONFIG} must be a run's configuration in TOML"
            raise FedloomError(rule, f"{error}", "correct it, or start a new run") from None
        experiment: Experiment = validated(Experiment, as_before(Experiment, raw))
        return experiment

    def config_bytes(self) -> bytes:
        """The configuration file's bytes.

        The run's identity is derived from them, so that it does not depend on the version.
        """
        return (self.path / CONFIG).read_bytes()

    def note_version(self) -> list[str]:
        """Record that this version works here, and return all versions that did, in order."""
        head = self.head()
        if __version__ in head.versions:
            return head.versions
        self.write_head(resumed_by=[*head.resumed_by, __version__])
        return [*head.versions, __version__]

    def write_head(self, **changes: Json) -> None:
        """Change or add values of run.json; what a later version keeps there stays."""
        self.write_json(HEAD, {**reading.read_json(self.path / HEAD), **changes})

    def write_text(self, name: str, text: str) -> None:
        write_whole(self.path / name, [text.encode()], durable=True)

    def write_json(self, name: str, value: Json) -> None:
        text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
        self.write_text(name, f"{text}\n")

    def read_result(self) -> RunResult:
        """The figures of a run. Raises Unreadable if it is unfinished or the file is damaged."""
        return RunResult.read(self.path / RESULT)

    def read_comparison(self) -> ComparisonResult:
        """The figures of a comparison.

        Raises Unreadable if it is unfinished or the file is damaged.
        """
        return ComparisonResult.read(self.path / RESULT)

    def result(self) -> RunResult | None:
        """The figures of a run.

        None: there are none, or they are damaged; resuming the run then creates them again.
        """
        try:
            return self.read_result()
        except Unreadable:
            return None

    def comparison(self) -> ComparisonResult | None:
        """The figures of a comparison; None as above."""
        try:
            return self.read_comparison()
        except Unreadable:
            return None

    def checksums(self, names: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of these files, for result.json."""
        digests = {}
        for name in names:
            with (self.path / name).open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests

    def damaged(self) -> list[str]:
        """The files that have changed since the run finished.

        For runs of early versions, which stored no checksums, the list is empty.
        """
        try:
            checksums = self.read_result().checksums
        except Unreadable:
            if (self.path / RESULT).exists():
                return [RESULT]
            return []
        return [name for name, digest in checksums.items() if not self._has_checksum(name, digest)]

    def _has_checksum(self, name: str, digest: str) -> bool:
        try:
            return self.checksums([name])[name] == digest
        except (OSError, ValueError):  # the file is gone, or the name is not a path
            return False

    def rows(self) -> Iterator[MetricsRow]:
        """The rows of metrics.jsonl, one per round."""
        return read_rows(self.path / METRICS_FILE)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Stop the run if the disk is full or fails; what was saved before is safe."""
        try:
            yield
        except OSError as error:
            rule = f"{self.path} must be writable"
            raise RunStopped(rule, f"{error}", "make room and resume the run") from error

    def lock(self) -> IO[bytes]:
        """Lock the folder for this process.

        However the process ends, the system releases the lock.
        """
        # The file stays open as long as the lock is held.
        handle = open(self.path / "run.lock", "wb")  # noqa: SIM115
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise FedloomError(
                f"{self.path} must not be in use",
                "another process works in it",
                "wait for it, or end it first",
            ) from None
        return handle

    def remove(self) -> None:
        """Delete the run and all its files, unless a process works in it."""
        with self.lock():
            shutil.rmtree(self.path)

    def summary(self) -> RunSummary:
        kind = self.kind
        result = self.result()
        metric = None
        mean = None
        balanced = None
        auc = None
        if result is not None:
            metric = result.metric
            mean = result.spread.mean
            balanced = result.spread_of("balanced_accuracy").mean
            if result.has_two_classes:
                auc = result.spread_of("auc").mean
        is_finished = result is not None
        if kind == "compare":
            is_finished = self.comparison() is not None
        rounds = 0
        rows = self.path / METRICS_FILE
        if rows.exists():
            rounds = rows.read_bytes().count(b"\n")
        return RunSummary(
            run=str(self.path),
            kind=kind,
            state="finished" if is_finished else "unfinished",
            rounds=rounds,
            metric=metric,
            mean=mean,
            balanced_accuracy=balanced,
            auc=auc,
            bytes=sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file()),
        )

    def sweep(self) -> None:
        """Delete files that killed processes left half written, here and in all folders below."""
        for path in self.path.rglob(".*.tmp"):
            path.unlink(missing_ok=True)

    def fresh(self, name: str) -> Path:
        """Create an empty subfolder; what a killed process left there is deleted."""
        shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / name).mkdir()
        return self.path / name


def has_content(path: Path) -> bool:
    """Whether a path is a folder that is not empty, or a file."""
    if not path.exists():
        return False
    return not path.is_dir() or any(path.iterdir())


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Report errors of the file system while a folder is created and there is nothing to resume."""
    try:
        yield
    except OSError as error:
        rule = f"{path} must be a folder that can be written"
        reason = error.strerror or type(error).__name__
        raise FedloomError(rule, reason, "make room, or change --out") from error


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write what fedloom logs into this file, and nowhere else."""
    logger = logging.getLogger("fedloom")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    propagated = logger.propagate
    level = logger.level
    logger.propagate = False
    if level == logging.NOTSET:  # nobody chose a level: information is logged too
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        logger.setLevel(level)
        handler.close()


def numbered(label: str) -> Path:
    """Create the next free runs/<number>-<label>."""
    RUNS.mkdir(exist_ok=True)
    number = max((number_of(path) for path in RUNS.iterdir()), default=0) + 1
    while True:
        path = RUNS / f"{number}-{label}"
        try:
            path.mkdir()
            return path
        except FileExistsError:  # another process was faster
            number += 1


def all_runs(folder: Path = RUNS) -> list[RunFolder]:
    """The runs in a folder, in the order of their numbers."""
    paths = [head.parent for head in folder.glob("*/run.json")]
    return [RunFolder(path) for path in sorted(paths, key=by_number)]


def by_number(path: Path) -> tuple[int, str]:
    return number_of(path), path.name


def number_of(path: Path) -> int:
    """The number in runs/<number>-<label>; 0: there is none."""
    number = path.name.split("-")[0]
    if not number.isdecimal():
        return 0
    return int(number)
