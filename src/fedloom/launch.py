"""A run is begun, or gone on with, wherever it runs: in this process and its workers, or on a federation's sites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedloom.config.models import Experiment
from fedloom.records.folder import RunFolder
from fedloom.report.progress import Screen
from fedloom.runs import results
from fedloom.runs.results import Run


def begin(config: Experiment, out: Path | None, shown: Screen, tell: Callable[[RunFolder], None]) -> Run:
    """A new run. `tell` hears of its folder before it starts."""
    if not config.is_federated:
        return results.begin(config, out, shown, tell)
    from fedloom.deploy import submission

    return submission.begin(config, out, shown, tell)


def go_on(folder: RunFolder, shown: Screen) -> Run:
    """A run that was begun before; a finished one is only opened."""
    if folder.result() is not None:
        return results.tidied(folder)
    if not folder.config().is_federated:
        return results.go_on(folder, shown)
    from fedloom.deploy import submission

    return submission.go_on(folder, shown)
