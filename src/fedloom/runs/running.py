"""Carrying out a run in this process and its workers: a new one, or one that was started before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.events import Listener
from fedloom.records.folder import RunFolder, logging_to
from fedloom.records.opening import one_run, tell_damage
from fedloom.records.result import NAME as RESULT
from fedloom.records.searches import SEARCHES
from fedloom.report.page import NAME, try_report
from fedloom.report.progress import Screen
from fedloom.report.sinks import mirrored, require
from fedloom.runs.experiment import create, execute
from fedloom.runs.preparing import Prepared, prepared_again, reopen
from fedloom.runs.results import Run, searches_foreign_space, write_result
from fedloom.runs.same_space import check_space_again


def begin(
    config: Experiment,
    out: Path | None,
    screen: Screen,
    announce: Callable[[RunFolder], None],
    split: Split | None = None,
) -> Run:
    """Carry out a new run in this process and its workers.

    `announce` is called with the run's folder before it starts. `split` is used if it is given;
    otherwise one is made.
    """
    require(config.evaluate.sinks or ())
    folder, prepared = create(config, out, split, alone=True)
    announce(folder)
    return carry_out(folder, prepared, screen.listener(folder.path.name))


def go_on(folder: RunFolder, screen: Screen) -> Run:
    """Resume a run that was started before, in this process and its workers."""
    return carry_out(folder, reopen(folder), screen.listener(folder.path.name))


def open_tidied(folder: RunFolder) -> Run:
    """Open a finished run.

    Leftovers are removed, damage is reported, and the report is written if it is missing.
    """
    tell_damage(folder)
    with folder.lock():
        folder.sweep()
    if not (folder.path / NAME).exists():
        # the disk was full, or the process was killed, after the results were written
        try_report(folder)
    return Run.open(folder.path)


def carry_out(
    folder: RunFolder,
    prepared: Prepared,
    listen: Listener,
    pool: Pool | None = None,
) -> Run:
    """Run to the end, from wherever the run stands, and write its result."""
    with mirrored(folder.path, prepared.config, listen) as listener:
        outcome = execute(folder, prepared, pool, listener)
    with folder.writing(), logging_to(folder.path / "run.log"):
        return write_result(folder, prepared, outcome)


def check_own_space(folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Refuse to resume a simulated run from a checkpoint if its search space has changed."""
    if searches_foreign_space(folder.config()):
        check_space_again(prepared_again(folder).task, checkpoint)


def take_back(
    folder: RunFolder,
    number: int,
    check_space: Callable[[RunFolder, Checkpoint], None] = check_own_space,
) -> None:
    """Make the checkpoint of an earlier round the last one.

    Everything after it is deleted, results included; `check_space` may refuse before that.
    """
    one_run(folder.path, "--from must be for one run")
    if type(number) is not int or number < 0:
        advice = "name one whose checkpoint is kept, or 0"
        raise FedloomError("--from must be a round", f"got {number!r}", advice)
    folder.config()  # before anything is deleted: a resumed run needs a readable configuration
    with folder.writing(), folder.lock():
        archive = Archive(folder.path)
        checkpoint = archive.returnable(number)
        check_space(folder, checkpoint)
        for name in (RESULT, "metrics.csv", NAME):
            (folder.path / name).unlink(missing_ok=True)
        # searches used weights that may change
        shutil.rmtree(folder.path / SEARCHES, ignore_errors=True)
        # the journal belongs to a round that is no longer the next
        (folder.path / "spool" / "journal.jsonl").unlink(missing_ok=True)
        archive.take_back(number)
        ClientStore(folder.path / "clients").cut_after(number)
