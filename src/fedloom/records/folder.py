"""A run is a folder. It is never overwritten, and one process at a time works in it.

run.json         what kind of folder this is       split.json       who has which samples
config.toml      everything that decides it        metrics.jsonl    a row a round, with the ledger
checkpoints/     the last two rounds and the best  clients/         the clients' own states
spool/           replies of the running round      exchange/        weights and data for workers
result.json      the figures, once finished        run.log          refusals, tracebacks, warnings
report.html      the same for a person to look at  classes.json     samples of each class, a client
metrics.csv      the same rows as flat columns     plots/           pictures, if asked for
init.state       what --init made it begin with    exports/         models taken out of it
sites.json       what a federation's sites told    NAME.state       what a stage left, by its name
scores.jsonl     paths that a search scored        searches/         answers of `fedloom search`
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
    """run.json: what kind of folder this is, and which versions of fedloom worked in it."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    format: int = Field(ge=1)
    kind: str
    fedloom: str = "unknown"  # the version that made it
    resumed_by: list[str] = []  # other versions that went on with it, in their order
    # of a federation's run: the id under which its sites keep their states
    experiment: str | None = None
    # of a federation's run: whether it has the classes of all its sites, and not most sites' alone
    joins_labels: bool = False

    @property
    def versions(self) -> list[str]:
        """All that took part, each once."""
        return list(dict.fromkeys([self.fedloom, *self.resumed_by]))


@dataclass(frozen=True)
class RunSummary:
    """One line of `fedloom runs`."""

    run: str  # its folder
    kind: str  # "run" or "compare"; "damaged": it cannot be told
    state: Literal["finished", "unfinished"]
    rounds: int  # that are in metrics.jsonl
    metric: str | None  # None: a comparison, or there are no figures yet
    mean: float | None  # of the metric over clients
    balanced_accuracy: float | None  # the same
    auc: float | None  # the same, where there are two classes
    bytes: int  # on disk


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def create(cls, kind: str, label: str, out: Path | None) -> RunFolder:
        """A new folder: `out`, or the next free runs/<number>-<label>."""
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
        """An existing run, of a version we know; `newer` accepts others too, to be removed."""
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
        """What the run was started with.

        A setting that came later means what fedloom did before.

        The method's own options stand as they were written: `runs.configure.config_of` reads them
        as the method does.
        """
        try:
            raw = reading.read_toml(self.path / CONFIG)
        except Unreadable as error:
            rule = f"{self.path / CONFIG} must be a run's configuration in TOML"
            raise FedloomError(rule, f"{error}", "mend it, or start a new run") from None
        experiment: Experiment = validated(Experiment, as_before(Experiment, raw))
        return experiment

    def config_bytes(self) -> bytes:
        """The configuration as it was written down.

        The run's identity comes from it, whatever version reads it.
        """
        return (self.path / CONFIG).read_bytes()

    def note_version(self) -> list[str]:
        """Write down that this version works here; all versions that did, in their order."""
        head = self.head()
        if __version__ in head.versions:
            return head.versions
        self.write_head(resumed_by=[*head.resumed_by, __version__])
        return [*head.versions, __version__]

    def write_head(self, **changes: Json) -> None:
        """run.json with these values changed or added; what a newer version keeps there stays."""
        self.write_json(HEAD, {**reading.read_json(self.path / HEAD), **changes})

    def write_text(self, name: str, text: str) -> None:
        write_whole(self.path / name, [text.encode()], durable=True)

    def write_json(self, name: str, value: Json) -> None:
        text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
        self.write_text(name, f"{text}\n")

    def read_result(self) -> RunResult:
        """The figures of a run. Raises Unreadable: it is not finished, or the file is damaged."""
        return RunResult.read(self.path / RESULT)

    def read_comparison(self) -> ComparisonResult:
        """The figures of a comparison.

        Raises Unreadable: it is not finished, or the file is damaged.
        """
        return ComparisonResult.read(self.path / RESULT)

    def result(self) -> RunResult | None:
        """The figures of a run.

        None: there are none, or they are damaged, and a resume makes them again.
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
        """Files that are not what they were when the run finished.

        Runs of an earlier version cannot tell.
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
        except (OSError, ValueError):  # it is gone, or that is no path
            return False

    def rows(self) -> Iterator[MetricsRow]:
        """metrics.jsonl, a row a round."""
        return read_rows(self.path / METRICS_FILE)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A full or failing disk stops the run; what was saved before is safe."""
        try:
            yield
        except OSError as error:
            rule = f"{self.path} must be writable"
            raise RunStopped(rule, f"{error}", "make room and resume the run") from error

    def lock(self) -> IO[bytes]:
        """Held while a process works here.

        However the process ends, the system lets go of it.
        """
        # it stays open as long as the lock is held
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
        """Delete the run and all it holds, unless a process works in it."""
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
        """Delete what killed processes left half written, here and in every folder below."""
        for path in self.path.rglob(".*.tmp"):
            path.unlink(missing_ok=True)

    def fresh(self, name: str) -> Path:
        """An empty subfolder: what a killed process left there is wiped."""
        shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / name).mkdir()
        return self.path / name


def has_content(path: Path) -> bool:
    """A file has some, whatever is in it."""
    if not path.exists():
        return False
    return not path.is_dir() or any(path.iterdir())


@contextmanager
def making(path: Path) -> Iterator[None]:
    """While a run's folder is made there is nothing to resume yet."""
    try:
        yield
    except OSError as error:
        rule = f"{path} must be a folder that can be written"
        reason = error.strerror or type(error).__name__
        raise FedloomError(rule, reason, "make room, or change --out") from error


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """What fedloom logs goes into this file, and nowhere else."""
    logger = logging.getLogger("fedloom")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    propagated = logger.propagate
    level = logger.level
    logger.propagate = False
    if level == logging.NOTSET:  # nobody chose one: what is worth knowing is written down, too
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        logger.setLevel(level)
        handler.close()


def numbered(label: str) -> Path:
    """The next free runs/<number>-<label>, created."""
    RUNS.mkdir(exist_ok=True)
    number = max((number_of(path) for path in RUNS.iterdir()), default=0) + 1
    while True:
        path = RUNS / f"{number}-{label}"
        try:
            path.mkdir()
            return path
        except FileExistsError:  # somebody else was faster
            number += 1


def all_runs(folder: Path = RUNS) -> list[RunFolder]:
    """Runs below a folder, in the order of their numbers."""
    paths = [head.parent for head in folder.glob("*/run.json")]
    return [RunFolder(path) for path in sorted(paths, key=by_number)]


def by_number(path: Path) -> tuple[int, str]:
    return number_of(path), path.name


def number_of(path: Path) -> int:
    """Of runs/<number>-<label>; 0: it has none."""
    number = path.name.split("-")[0]
    if not number.isdecimal():
        return 0
    return int(number)
