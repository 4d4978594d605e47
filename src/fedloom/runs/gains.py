"""`fedloom gain RUN`: the matrix p_ij of a finished run, cell by cell, in processes of their own, and resumable.

It lays one client's architecture next to another client's data, which only a simulation can do. Every finished cell is
a line of gain.jsonl at once; a call that was stopped goes on from there. gain.json holds the whole.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn

from fedloom.data.mapped_clients import MappedClients
from fedloom.errors import FedloomError
from fedloom.evaluate.gain import FineTuning, Start, fine_tuned, gains, mean_gain, sgd_of
from fedloom.export.finished import served
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.methods import stages
from fedloom.metrics.metric import METRICS
from fedloom.records.folder import RunFolder
from fedloom.records.gain import NAME, GainMatrix
from fedloom.records.opening import FinishedRun, one_run
from fedloom.runs.experiment import Prepared, reopen, worker_count
from fedloom.threads import one_thread
from fedloom.types import Json, Task

LINES = "gain.jsonl"
MOST_COLUMNS = 10  # architectures that a table shows side by side
Cell = tuple[int, int]  # i, whose data; j, whose architecture
Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Gain:
    """The matrix, its gains, and how they were measured."""

    path: Path
    metric: str
    clients: tuple[int, ...]
    how: FineTuning
    cells: dict[Cell, float | None]

    @property
    def matrix(self) -> list[list[float | None]]:
        return [[self.cells[i, j] for j in self.clients] for i in self.clients]

    @property
    def gains(self) -> list[float | None]:
        return gains(self.matrix, lower_is_better=METRICS[self.metric].lower_is_better)

    @property
    def missing(self) -> str:
        """What a reader must know of cells without a figure."""
        count = sum(value is None for row in self.matrix for value in row)
        return f" {count} cells have no figure: fine-tuning diverged (try a lower --lr), or no test data." * (count > 0)

    @property
    def record(self) -> GainMatrix:
        return GainMatrix(
            run=str(self.path),
            metric=self.metric,
            epochs=self.how.epochs,
            start=self.how.start,
            lr=self.how.lr,
            clients=list(self.clients),
            matrix=self.matrix,
            gains=self.gains,
            gain=mean_gain(self.gains),
        )

    def to_json(self) -> Json:
        return self.record.to_json()

    def table(self) -> None:
        """Print it: a line a client, a column an architecture."""
        from rich.console import Console

        from fedloom.report.tables import plain_table

        metric = METRICS[self.metric]
        shown = self.clients if len(self.clients) <= MOST_COLUMNS else ()
        weights = {
            "inherit": "its weights (so gain is of architecture and weights; --start fresh is of architecture alone)",
            "fresh": "fresh weights",
        }[self.how.start]
        table = plain_table(
            f"{self.path}: {metric.name}{metric.unit} of client j's architecture on client i's data",
            f"A cell: client j's network, from {weights}, after {self.how.epochs} epochs on client i's training data, "
            f"on its test data. Gain (Eq. 6 of SPIDER): how far i's own is ahead of the others'; "
            f"mean {metric.text(mean_gain(self.gains), '+')}{metric.unit}. One seed: no interval.{self.missing}",
            ("client", *(f"j={j}" for j in shown), "own", "gain"),
        )  # fmt: skip
        for i, found in zip(self.clients, self.gains, strict=True):
            cells = [metric.text(self.cells[i, j]) for j in shown]
            table.add_row(str(i), *cells, metric.text(self.cells[i, i]), metric.text(found, "+"))
        Console(markup=False).print(table)


@dataclass(frozen=True)
class Job:
    """All that a process needs to measure one cell."""

    folder: str
    site: SiteSpec
    task: Task
    round: int  # the checkpoint's
    how: FineTuning
    cell: Cell

    def measure(self) -> float | None:
        i, j = self.cell
        with one_thread():
            data = self.site.site(stages).data(i)
            try:
                return fine_tuned(self.network(j), data, self.task, self.how, i, self.site.device)
            except FloatingPointError:  # it diverged: this cell has no figure, the others may
                return None

    def network(self, client: int) -> nn.Module:
        """What the run's method made for this client, with its final weights."""
        at = Archive(Path(self.folder)).load(self.round)
        return served(at, self.task, self.site.site(stages), client).network()


def measure(job: Job) -> float | None:
    return job.measure()


def find_gain(
    path: Path | str, *, epochs: int = 30, clients: Sequence[int] | None = None, start: Start = "inherit",
    lr: float | None = None, workers: int | None = None, tell: Told = lambda what, done, total: None,
) -> Gain:  # fmt: skip
    """The gain matrix of a finished run; cells of an earlier call with the same settings are not measured again."""
    folder = one_run(path)
    if folder.config().is_federated:
        must = "a gain matrix must be of a simulation: it needs one client's architecture at another client"
        raise FedloomError(must, f"{path} ran on a federation", "measure it in a simulation of like data")
    run, prepared = FinishedRun.open(path), reopen(folder)
    at = Archive(folder.path).final()
    chosen = personal(run, at, clients)
    rate = sgd_of(prepared.task.options).lr if lr is None else lr
    how = FineTuning(epochs, start, rate)
    with folder.writing(), folder.lock():
        known = Lines(folder.path / LINES, run.metric.name, how)
        cells = known.read()
        todo = [(i, j) for i in chosen for j in chosen if (i, j) not in cells]
        tell("gain", 0, len(todo))
        for number, (cell, figure) in enumerate(measured(folder, prepared, at, how, todo, workers), 1):
            known.append(cell, figure)
            cells[cell] = figure
            tell("gain", number, len(todo))
        found = Gain(folder.path, run.metric.name, chosen, how, cells)
        folder.write_json(NAME, found.to_json())
    return found


def personal(run: FinishedRun, at: Checkpoint, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The clients to compare: each must have an architecture that was searched for it."""
    searched = {
        client.client: json.dumps(client.architecture)
        for client in run.record.clients
        if client.is_searched and client.client in at.versions
    }
    must, todo = (
        "a run must have an architecture for each client",
        "try fednas:personal=true or another personal search",
    )
    if not searched:
        raise FedloomError(must, f"{run.path} has one for all", todo)
    if len(set(searched.values())) == 1 and len(searched) > 1:
        todo = f"{todo}; if this was one, all clients found the same: search longer, or with another seed"
        raise FedloomError(must, f"all {len(searched)} clients of {run.path} have the same", todo)
    chosen = sorted(searched) if asked is None else sorted(set(asked))
    without = [client for client in chosen if client not in searched]
    if without:
        known = ", ".join(map(str, sorted(searched)))
        raise FedloomError(
            "--clients must name clients with an architecture", f"got {without[0]}", f"choose of {known}"
        )
    if len(chosen) < 2:
        raise FedloomError("a gain must compare at least two clients", f"got {len(chosen)}", "name more --clients")
    return tuple(chosen)


@dataclass(frozen=True)
class Lines:
    """gain.jsonl: a line a finished cell, of any settings."""

    path: Path
    metric: str
    how: FineTuning

    def read(self) -> dict[Cell, float | None]:
        """The cells measured with these settings. What a kill left of a last line is cut off."""
        if not self.path.exists():
            return {}
        whole, _, torn = self.path.read_bytes().rpartition(b"\n")
        if torn:
            os.truncate(self.path, len(whole) + 1 if whole else 0)
        how = self.how.to_json()
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            mine = [row for row in rows if {name: row[name] for name in how} == how]
            return {(row["i"], row["j"]): row[self.metric] for row in mine}
        except (ValueError, KeyError, TypeError) as error:
            must = f"{self.path} must hold a measured cell a line"
            raise FedloomError(must, f"reading it gave {error!r}", "remove it, and all are measured anew") from error

    def append(self, cell: Cell, figure: float | None) -> None:
        row = {"i": cell[0], "j": cell[1], **self.how.to_json(), self.metric: figure}
        with self.path.open("ab") as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def measured(
    folder: RunFolder, prepared: Prepared, at: Checkpoint, how: FineTuning, todo: Sequence[Cell], workers: int | None
) -> Iterator[tuple[Cell, float | None]]:
    """The cells as they are finished."""
    if not todo:
        return
    place = folder.fresh("exchange")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        MappedClients.build(place / "data", prepared.source, prepared.split)
        site = SiteSpec(
            str((place / "data").resolve()), str((folder.path / "clients").resolve()), prepared.hold,
            prepared.task.shape, prepared.task.labels, prepared.config.engine.device,
        )  # fmt: skip
        first = Job(str(folder.path.resolve()), site, prepared.task, at.round, how, todo[0])
        jobs = [replace(first, cell=cell) for cell in todo]
        count = min(len(jobs), worker_count(prepared.config.engine.workers if workers is None else workers))
        if count < 2:
            yield from ((job.cell, job.measure()) for job in jobs)
            return
        pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=settle, initargs=(os.getpid(),))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        futures = {pool.submit(measure, job): job.cell for job in jobs}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


def settle(parent: int) -> None:
    """A worker's beginning: one torch thread, and it goes when its parent has gone, however."""
    torch.set_num_threads(1)
    threading.Thread(target=leave_with, args=(parent,), daemon=True).start()


def leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
