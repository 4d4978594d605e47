"""Starting a run, continuing it, and taking it back to an earlier round.

A run takes place either in this process and its workers, or on a federation's sites: these
functions choose between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedloom.config.models import Experiment
from fedloom.records.folder import RunFolder
from fedloom.report.progress import Screen
from fedloom.runs import running
from fedloom.runs.results import Run


def begin(
    config: Experiment,
    out: Path | None,
    screen: Screen,
    announce: Callable[[RunFolder], None],
) -> Run:
    """Start a new run. `announce` is called with its folder before it starts."""
    if not config.is_federated:
        return running.begin(config, out, screen, announce)
    from fedloom.deploy import submission

    return submission.begin(config, out, screen, announce)


def go_on(folder: RunFolder, screen: Screen) -> Run:
    """Continue a run that was started before; a finished run is only opened."""
    if folder.result() is not None:
        return running.open_tidied(folder)
    if not folder.config().is_federated:
        return running.go_on(folder, screen)
    from fedloom.deploy import submission

    return submission.go_on(folder, screen)


def take_back(folder: RunFolder, number: int) -> None:
    """Make round `number` the last one of a run, which can then continue from there."""
    if folder.kind != "run" or not folder.config().is_federated:
        running.take_back(folder, number)
        return
    from fedloom.deploy.settled import check_settled_space

    running.take_back(folder, number, check_settled_space)
