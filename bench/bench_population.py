"""Do clients that do not take part cost anything?

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
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fedloom.data.split import ARRAYS
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.federation.server.exchange import Exchange
from fedloom.runs.experiment import create, execute
from measuring import (
    Stopwatch,
    Timing,
    cpu_seconds,
    experiment,
    heading,
    images,
    in_new_process,
    memory,
    verdict,
)

POPULATIONS = (100, 100_000)
COHORT = 10
SAMPLES = 10
ROUNDS = 60
REPEATS = 3


def one(clients: int) -> None:
    """Run with this many registered clients, and print figures; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        pool = Pool(2)
        config = experiment(
            method="fedavg",
            options={"width": 0.25},
            data={
                "name": images(folder / "images.npz", clients * SAMPLES, (1, 4, 4)),
                "clients": clients,
                "partition": "iid",
            },
            budget={"rounds": ROUNDS, "participation": COHORT / clients},
        )
        marks: list[tuple[float, float, float]] = []
        figures: dict[str, float] = {}

        def listen(event: Event) -> None:
            if not isinstance(event, RoundEnded):
                return
            processes: list[int | str] = ["self", *(worker.process.pid for worker in pool.workers)]
            marks.append((time.perf_counter(), describe.seconds, sum(map(cpu_seconds, processes))))
            if event.row.round == ROUNDS:
                figures["server"] = memory()["anon"]
                figures["workers"] = sum(memory(process)["anon"] for process in processes[1:])
                figures["checkpoint"] = (
                    (run.path / "checkpoints" / f"{ROUNDS:06d}.state").stat().st_size
                )

        run, prepared = create(config, folder / "run")
        ctypes.CDLL(None).malloc_trim(0)
        describe = Stopwatch(Exchange.describe)
        with patch.object(Exchange, "describe", lambda *arguments: describe(*arguments)):
            execute(run, prepared, pool, listen)
        pool.close()
    data = [
        prepared.source.x,
        prepared.source.y,
        *(getattr(prepared.split, array) for array in ARRAYS),
    ]
    rounds = [
        [b - a for a, b in zip(before, after, strict=True)] for before, after in pairwise(marks)
    ]
    print(json.dumps({**figures, "data": sum(array.nbytes for array in data), "rounds": rounds}))


def main() -> None:
    heading(
        f"Population: {COHORT} clients a round of "
        f"{' or '.join(f'{number:,}' for number in POPULATIONS)}"
    )
    runs: dict[int, list[dict[str, Any]]] = {number: [] for number in POPULATIONS}
    for _ in range(REPEATS):
        for number in POPULATIONS:
            runs[number].append(in_new_process(__file__, number))
    print(f"{'registered':>10}{'a round':>30}{'without describing':>33}{'CPU':>10}")
    rows = []
    for number, several in runs.items():
        rounds = [row for run in several for row in run["rounds"]]
        whole = Timing(tuple(row[0] for row in rounds))
        work = Timing(tuple(row[0] - row[1] for row in rounds))
        print(f"{number:10,}  {whole}  {work}  {1e3 * median(row[2] for row in rounds):5.1f} ms")
        server, workers, data = (
            min(run[part] / 2**20 for run in several) for part in ("server", "workers", "data")
        )
        rows.append((whole.best, work.best, server - data, workers))
        print(
            f"{'':10}  server {server:.1f} MiB, of it data {data:.1f}; workers {workers:.1f} MiB;",
            end=" ",
        )
        print(f"checkpoint {several[0]['checkpoint'] / 1000:.0f} kB")
    print()
    names = (
        "round time",
        "round time without describing",
        "memory of the server",
        "memory of the workers",
    )
    for name, few, many, most in zip(names, *rows, (1.2, 1.2, 1.1, 1.1), strict=True):
        verdict(name, f"{many / few:.2f}×", f"the same (at most {most}×)", many <= most * few)


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
