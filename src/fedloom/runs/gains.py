"""`fedloom gain RUN`: the matrix p_ij of a finished run.

It evaluates one client's architecture on another client's data, which only a simulation can do.
Cells are measured in separate processes. Every finished cell becomes a line of gain.jsonl at once,
so that a call that was stopped continues from there. gain.json holds the whole matrix.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn

from fedloom.data.mapped_clients import MappedClients
from fedloom.errors import FedloomError
from fedloom.evaluate.gain import FineTuning, fine_tuned, gains, mean_gain, sgd_of
from fedloom.export.finished import served
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.files import cut_torn_line
from fedloom.methods import stages
from fedloom.metrics.metric import METRICS
from fedloom.records.folder import RunFolder
from fedloom.records.gain import LINES, NAME, GainLine, GainMatrix, Start, read_gain_lines
from fedloom.records.opening import FinishedRun, one_run
from fedloom.runs.experiment import site_spec
from fedloom.runs.loop_settings import worker_count
from fedloom.runs.preparing import Prepared, reopen
from fedloom.threads import one_thread
from fedloom.types import Json, Task

MOST_COLUMNS = 10  # architectures that a table shows side by side
Cell = tuple[int, int]  # i, whose data; j, whose architecture
Progress = Callable[[str, int, int], None]  # name of the work, finished cells, all cells
INHERITED = "so the gain is by architecture and weights; with --start fresh by architecture alone"
START = {"inherit": f"its weights ({INHERITED})", "fresh": "fresh weights"}


@dataclass(frozen=True)
class Gain:
    """The matrix, its gains, and how they were measured."""

    path: Path
    metric: str
    clients: tuple[int, ...]
    how: FineTuning
    cells: dict[Cell, float | None]
    balanced: Mapping[Cell, float]  # balanced accuracy of the cells for which it is known
    auc: Mapping[Cell, float] = field(default_factory=dict)  # AUC, if there are two classes

    @property
    def matrix(self) -> list[list[float | None]]:
        return self._rows(self.cells)

    def _rows(self, cells: Mapping[Cell, float | None]) -> list[list[float | None]]:
        """The cells as rows by the data's client, with a column for each client's architecture."""
        rows = []
        for i in self.clients:
            rows.append([cells.get((i, j)) for j in self.clients])
        return rows

    @property
    def gains(self) -> list[float | None]:
        return gains(self.matrix, lower_is_better=METRICS[self.metric].lower_is_better)

    @property
    def missing(self) -> str:
        """A note about cells without a figure, if there are any."""
        count = sum(row.count(None) for row in self.matrix)
        if count == 0:
            return ""
        reason = "fine-tuning diverged (try a lower --lr), or no test data"
        return f" {count} cells have no figure: {reason}."

    @property
    def record(self) -> GainMatrix:
        matrix = GainMatrix(
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
        if self.balanced:
            matrix = matrix.replace(balanced_accuracy=self._rows(self.balanced))
        if self.auc:
            matrix = matrix.replace(auc=self._rows(self.auc))
        return matrix

    def to_json(self) -> Json:
        return self.record.to_json()

    def table(self) -> None:
        """Print the matrix, with one row per client and one column per architecture."""
        from rich.console import Console

        from fedloom.report.numbers import percent
        from fedloom.report.tables import plain_table

        metric = METRICS[self.metric]
        columns: tuple[int, ...] = ()
        if len(self.clients) <= MOST_COLUMNS:
            columns = self.clients
        figure = f"{metric.title}{metric.unit}"
        title = f"{self.path}: {figure} of client j's architecture on client i's data"
        mean = f"{metric.text(mean_gain(self.gains), '+')}{metric.unit}"
        caption = (
            f"A cell: client j's network, from {START[self.how.start]}, "
            f"after {self.how.epochs} epochs on client i's training data, on its test data. "
            f"Gain (Eq. 6 of SPIDER): how far client i's own network is ahead of the others; "
            f"mean {mean}. One seed: no interval.{self.missing}"
        )
        headings = [f"j={j}" for j in columns]
        names = ["client", *headings, "own"]
        if self.balanced:
            names.append("bal.")
            caption += " bal.: balanced accuracy of i's own network: every class counts the same."
        if self.auc:
            names.append("AUC")
            caption += " AUC: area under the ROC curve of i's own network, in percent."
        table = plain_table(title, caption, [*names, "gain"])
        for i, gain in zip(self.clients, self.gains, strict=True):
            cells = [metric.text(self.cells[i, j]) for j in columns]
            cells.append(metric.text(self.cells[i, i]))
            if self.balanced:
                cells.append(percent(self.balanced.get((i, i))))
            if self.auc:
                cells.append(percent(self.auc.get((i, i))))
            table.add_row(str(i), *cells, metric.text(gain, "+"))
        Console(markup=False).print(table)


@dataclass(frozen=True)
class CellFigures:
    """The figures of one cell of the matrix."""

    # By the run's metric; None: fine-tuning diverged, or there is no test data.
    figure: float | None
    # None: the data is text, or an earlier version measured the cell.
    balanced: float | None = None
    auc: float | None = None  # also None unless there are two classes


@dataclass(frozen=True)
class Job:
    """Everything that a process needs to measure one cell."""

    folder: str
    site: SiteSpec
    task: Task
    round: int  # the checkpoint's
    how: FineTuning
    cell: Cell

    def measure(self) -> CellFigures:
        i, j = self.cell
        device = self.site.device
        with one_thread():
            data = self.site.site(stages).data(i)
            try:
                figures = fine_tuned(self.network(j), data, self.task, self.how, i, device)
            except FloatingPointError:  # training diverged: this cell has no figure, others may
                return CellFigures(None)
        auc = None
        if len(self.task.labels) == 2:
            auc = figures.of("auc")
        return CellFigures(figures.value, figures.of("balanced_accuracy"), auc)

    def network(self, client: int) -> nn.Module:
        """The network of this client, with its final weights."""
        checkpoint = Archive(Path(self.folder)).load(self.round)
        return served(checkpoint, self.task, self.site.site(stages), client).network()


def measure(job: Job) -> CellFigures:
    return job.measure()


def no_progress(work: str, done: int, total: int) -> None:
    """Ignore progress."""


def find_gain(
    path: Path | str,
    *,
    epochs: int = 30,
    clients: Sequence[int] | None = None,
    start: Start = "inherit",
    lr: float | None = None,
    workers: int | None = None,
    tell: Progress = no_progress,
) -> Gain:
    """Measure the gain matrix of a finished run.

    Cells that an earlier call measured with the same settings are not measured again.
    """
    folder = one_run(path)
    if folder.config().is_federated:
        reason = "it needs one client's architecture at another client"
        raise FedloomError(
            f"a gain matrix must be of a simulation: {reason}",
            f"{path} ran in a federation",
            "measure it in a simulation with similar data",
        )
    run = FinishedRun.open(path)
    prepared = reopen(folder)
    final = Archive(folder.path).final()
    chosen = chosen_clients(run, final, clients)
    if lr is None:
        lr = sgd_of(prepared.task.options).lr
    how = FineTuning(epochs, start, lr)
    if workers is None:
        workers = prepared.config.engine.workers
    with folder.writing(), folder.lock():
        lines = GainFile(folder.path / LINES, run.metric.name, how)
        cells = lines.read()
        missing = missing_cells(chosen, cells)
        tell("gain", 0, len(missing))
        measurements = measure_cells(folder, prepared, final, how, missing, workers)
        for done, (cell, figures) in enumerate(measurements, start=1):
            lines.append(cell, figures)
            cells[cell] = figures
            tell("gain", done, len(missing))
        gain = gain_of(folder.path, run.metric.name, chosen, how, cells)
        folder.write_json(NAME, gain.to_json())
    return gain


def gain_of(
    path: Path,
    metric: str,
    clients: tuple[int, ...],
    how: FineTuning,
    cells: Mapping[Cell, CellFigures],
) -> Gain:
    values = {}
    balanced = {}
    auc = {}
    for cell, figures in cells.items():
        values[cell] = figures.figure
        if figures.balanced is not None:
            balanced[cell] = figures.balanced
        if figures.auc is not None:
            auc[cell] = figures.auc
    return Gain(path, metric, clients, how, values, balanced, auc)


def missing_cells(clients: Sequence[int], cells: Mapping[Cell, CellFigures]) -> list[Cell]:
    """The cells of the clients' matrix that no earlier call has measured."""
    missing = []
    for i in clients:
        for j in clients:
            if (i, j) not in cells:
                missing.append((i, j))
    return missing


def chosen_clients(
    run: FinishedRun,
    final: Checkpoint,
    clients: Sequence[int] | None,
) -> tuple[int, ...]:
    """The clients to compare, by default all; each must have an architecture of its own."""
    architectures = personal_architectures(run, final)
    if clients is None:
        clients = list(architectures)
    chosen = sorted(set(clients))
    for client in chosen:
        if client not in architectures:
            numbers = ", ".join(str(number) for number in sorted(architectures))
            rule = "--clients must name clients with an architecture"
            raise FedloomError(rule, f"got {client}", f"choose from {numbers}")
    if len(chosen) < 2:
        rule = "a gain must compare at least two clients"
        raise FedloomError(rule, f"got {len(chosen)}", "name more --clients")
    return tuple(chosen)


def personal_architectures(run: FinishedRun, final: Checkpoint) -> dict[int, str]:
    """Every client's own architecture as text; they must not all be the same."""
    architectures = {}
    for client in run.record.clients:
        if client.is_searched and client.client in final.versions:
            architectures[client.client] = json.dumps(client.architecture)
    rule = "a run must have an architecture for each client"
    advice = "try fednas:personal=true or another personal search"
    if not architectures:
        raise FedloomError(rule, f"{run.path} has one for all clients", advice)
    if len(architectures) > 1 and len(set(architectures.values())) == 1:
        otherwise = "if this run was one, search longer, or with another seed"
        raise FedloomError(
            rule,
            f"all {len(architectures)} clients of {run.path} have the same",
            f"{advice}; {otherwise}",
        )
    return architectures


@dataclass(frozen=True)
class GainFile:
    """gain.jsonl, which has a line for every finished cell, with any settings."""

    path: Path
    metric: str
    how: FineTuning

    def read(self) -> dict[Cell, CellFigures]:
        """The cells measured with these settings. An incomplete last line is cut off."""
        if not self.path.exists():
            return {}
        cut_torn_line(self.path)
        cells = {}
        for line in read_gain_lines(self.path, self.metric):
            if FineTuning(line.epochs, line.start, line.lr) == self.how:
                figures = CellFigures(line.figure, line.balanced_accuracy, line.auc)
                cells[line.i, line.j] = figures
        return cells

    def append(self, cell: Cell, figures: CellFigures) -> None:
        i, j = cell
        how = self.how
        line = GainLine(
            i=i, j=j, epochs=how.epochs, start=how.start, lr=how.lr, figure=figures.figure
        )
        if figures.balanced is not None:
            line = line.replace(balanced_accuracy=figures.balanced)
        if figures.auc is not None:
            line = line.replace(auc=figures.auc)
        with self.path.open("ab") as file:
            file.write(line.to_line(self.metric))
            file.flush()
            os.fsync(file.fileno())


def measure_cells(
    folder: RunFolder,
    prepared: Prepared,
    final: Checkpoint,
    how: FineTuning,
    cells: Sequence[Cell],
    workers: int | None,
) -> Iterator[tuple[Cell, CellFigures]]:
    """Measure cells in several processes, and yield each when it is finished."""
    if not cells:
        return
    exchange = folder.fresh("exchange")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, exchange, ignore_errors=True)
        MappedClients.build(exchange / "data", prepared.source, prepared.split)
        path = str(folder.path.resolve())
        site = site_spec(folder, prepared, exchange)
        jobs = [Job(path, site, prepared.task, final.round, how, cell) for cell in cells]
        count = min(len(jobs), worker_count(workers))
        if count < 2:
            for job in jobs:
                yield job.cell, job.measure()
            return
        parent = os.getpid()
        context = get_context("spawn")
        pool = ProcessPoolExecutor(count, context, initializer=prepare_worker, initargs=(parent,))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        cell_by_future = {pool.submit(measure, job): job.cell for job in jobs}
        for future in as_completed(cell_by_future):
            yield cell_by_future[future], future.result()


def prepare_worker(parent: int) -> None:
    """Prepare a worker: it uses one torch thread, and exits when its parent is gone."""
    torch.set_num_threads(1)
    threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()


def exit_with_parent(parent: int) -> None:
    """Wait until the parent process has ended in whatever way, and exit."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
