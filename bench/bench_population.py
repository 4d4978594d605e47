"""Do clients that do not take part cost anything?

    python bench/bench_population.py

10⁵ registered clients are compared with 100, with ten of them per round: FedAvg with a
quarter-width CNN on 4×4 images, ten samples per client, two workers. Time and memory of a round
should be the same. Each population runs in its own process, in turns. Memory is that of the server
and its workers (mapped files belong to the page cache) in the last round; the data itself is
subtracted from the server's: the samples, their labels and the split's arrays. Memory that was
freed after making the split is returned to the system before the run: it is not a cost of a round.

A client is described before its first work. With 10⁵ clients all ten are new in every round, with
100 soon none is, so describing is timed separately: it is the cost of taking part for the first
time, not of being registered. (So is the space that a description takes in every later checkpoint;
the table shows the last one's size.) The CPU time of server and workers is shown because it
depends less on what else the machine does.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fedloom.config.models import Experiment
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.federation.server.exchange import Exchange
from fedloom.runs.experiment import create, execute
from measuring import (
    Stopwatch,
    Timing,
    bytes_of_data,
    cpu_of_pool,
    experiment,
    heading,
    images,
    in_new_process,
    memory_of_workers,
    own_memory,
    verdict,
)

FEW = 100  # registered clients
MANY = 100_000
COHORT = 10
SAMPLES = 10
ROUNDS = 60
REPEATS = 3
MOST_TIME = 1.2  # the largest accepted ratios, many registered clients to few
MOST_MEMORY = 1.1


def main() -> None:
    heading(f"Population: {COHORT} clients a round of {FEW:,} or {MANY:,}")
    runs: dict[int, list[Figures]] = {FEW: [], MANY: []}
    for _ in range(REPEATS):
        for clients, figures in runs.items():
            figures.append(Figures.from_plain(in_new_process(__file__, clients)))
    few = Summary.of(runs[FEW])
    many = Summary.of(runs[MANY])
    print(f"{'registered':>10}{'a round':>30}{'without describing':>33}{'CPU':>10}")
    few.print(FEW)
    many.print(MANY)
    print()
    compare("round time", few.whole.best, many.whole.best, MOST_TIME)
    compare("round time without describing", few.work.best, many.work.best, MOST_TIME)
    compare("memory of the server", few.server_alone, many.server_alone, MOST_MEMORY)
    compare("memory of the workers", few.workers, many.workers, MOST_MEMORY)


@dataclass(frozen=True)
class Seconds:
    """Seconds so far, or those of one round."""

    clock: float
    describing: float
    cpu: float  # of the server and its workers

    def since(self, earlier: Seconds) -> Seconds:
        return Seconds(
            self.clock - earlier.clock,
            self.describing - earlier.describing,
            self.cpu - earlier.cpu,
        )


@dataclass(frozen=True)
class Figures:
    """What one run needed; bytes are those of its last round."""

    rounds: list[Seconds]
    server: int
    workers: int
    data: int
    checkpoint: int

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Figures:
        """The figures that another process printed as JSON."""
        rounds = [Seconds(**row) for row in plain["rounds"]]
        return cls(**{**plain, "rounds": rounds})


@dataclass(frozen=True)
class Summary:
    """Several runs with equally many registered clients; memory is the least of all, in MiB."""

    whole: Timing
    work: Timing  # without describing
    cpu: float
    server: float
    workers: float
    data: float
    checkpoint: int  # bytes

    @classmethod
    def of(cls, runs: Sequence[Figures]) -> Summary:
        whole = []
        work = []
        cpu = []
        for run in runs:
            for seconds in run.rounds:
                whole.append(seconds.clock)
                work.append(seconds.clock - seconds.describing)
                cpu.append(seconds.cpu)
        return cls(
            whole=Timing(tuple(whole)),
            work=Timing(tuple(work)),
            cpu=median(cpu),
            server=min(run.server for run in runs) / 2**20,
            workers=min(run.workers for run in runs) / 2**20,
            data=min(run.data for run in runs) / 2**20,
            checkpoint=runs[0].checkpoint,
        )

    @property
    def server_alone(self) -> float:
        """The server's memory without the data."""
        return self.server - self.data

    def print(self, clients: int) -> None:
        print(f"{clients:10,}  {self.whole}  {self.work}  {1e3 * self.cpu:5.1f} ms")
        print(
            f"{'':10}  server {self.server:.1f} MiB, of it data {self.data:.1f}; "
            f"workers {self.workers:.1f} MiB; checkpoint {self.checkpoint / 1000:.0f} kB"
        )


def compare(name: str, few: float, many: float, most: float) -> None:
    ratio = f"{many / few:.2f}×"
    verdict(name, ratio, f"the same (at most {most}×)", many <= most * few)


def one(clients: int) -> None:
    """Run with this many registered clients, and print figures; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        figures = figures_of(clients, Path(name))
    print(json.dumps(asdict(figures)))


def figures_of(clients: int, folder: Path) -> Figures:
    pool = Pool(2)
    run, prepared = create(config_of(clients, folder), folder / "run")
    ctypes.CDLL(None).malloc_trim(0)
    describe = Stopwatch(Exchange.describe)
    marks: list[Seconds] = []
    bytes_at_end: dict[str, int] = {}

    def listen(event: Event) -> None:
        if not isinstance(event, RoundEnded):
            return
        marks.append(Seconds(time.perf_counter(), describe.seconds, cpu_of_pool(pool)))
        if event.row.round == ROUNDS:
            checkpoint = run.path / "checkpoints" / f"{ROUNDS:06d}.state"
            bytes_at_end["server"] = own_memory()
            bytes_at_end["workers"] = memory_of_workers(pool)
            bytes_at_end["checkpoint"] = checkpoint.stat().st_size

    with patch.object(Exchange, "describe", lambda *arguments: describe(*arguments)):
        execute(run, prepared, pool, listen)
    pool.close()
    rounds = [after.since(before) for before, after in pairwise(marks)]
    return Figures(rounds, data=bytes_of_data(prepared), **bytes_at_end)


def config_of(clients: int, folder: Path) -> Experiment:
    data = {
        "name": images(folder / "images.npz", clients * SAMPLES, (1, 4, 4)),
        "clients": clients,
        "partition": "iid",
    }
    return experiment(
        method="fedavg",
        options={"width": 0.25},
        data=data,
        budget={"rounds": ROUNDS, "participation": COHORT / clients},
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        main()
