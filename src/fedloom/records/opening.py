"""Opening a run that must exist: a single run or comparison that is finished and undamaged.

Anything else is a FedloomError.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedloom.errors import FedloomError
from fedloom.metrics.metric import Metric
from fedloom.reading import Unreadable
from fedloom.records.comparison import ComparisonResult
from fedloom.records.folder import RunFolder
from fedloom.records.result import NAME, RunResult

log = logging.getLogger("fedloom")


@dataclass(frozen=True)
class FinishedRun:
    """A run that has a result."""

    path: Path
    record: RunResult

    @classmethod
    def open(cls, path: Path | str) -> Self:
        folder = one_run(path)
        return cls(folder.path, finished_result(folder))

    @property
    def metric(self) -> Metric:
        """The metric by which the run is judged."""
        return self.record.judged_by


def one_run(path: Path | str, rule: str | None = None) -> RunFolder:
    """The folder of a single run; `rule` replaces the usual rule in the error for a comparison."""
    folder = RunFolder.open(Path(path))
    if folder.kind == "run":
        return folder
    advice = "name one of the runs in it"
    if rule is None:
        raise FedloomError(f"{path} must be one run", "it is a comparison", advice)
    raise FedloomError(rule, f"{path} is a comparison", advice)


def finished_result(folder: RunFolder) -> RunResult:
    try:
        return folder.read_result()
    except Unreadable as error:
        raise not_finished(folder, "a finished run", error) from None


def finished_comparison(folder: RunFolder) -> ComparisonResult:
    try:
        return folder.read_comparison()
    except Unreadable as error:
        raise not_finished(folder, "finished", error) from None


def not_finished(folder: RunFolder, expected: str, error: Unreadable) -> FedloomError:
    """The error for a run whose result is missing or damaged; resuming it creates the result."""
    rule = f"{folder.path} must be {expected}"
    resume = f"`fedloom resume {folder.path}`"
    if not (folder.path / NAME).exists():
        return FedloomError(rule, "it has no result yet", resume)
    return FedloomError(rule, f"its {NAME} is damaged: {error}", f"{resume} makes it again")


def tell_damage(folder: RunFolder) -> None:
    """Log which files of a finished run have changed since it finished."""
    for name in folder.damaged():
        log.warning("%s/%s was changed or damaged after the run had finished", folder.path, name)
