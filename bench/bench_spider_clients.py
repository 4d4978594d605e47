"""Do the private models of a hundred clients cost memory?

    python bench/bench_spider_clients.py

SPIDER with 100 clients is compared with 10: the DARTS s2 supernet with 3 cells of 2 nodes and 8
channels, 8×8 images, 20 samples per client, all clients in every round, two workers, 4 rounds
through all phases. Every client has its own weights, momentum and architecture: they are on disk,
in one file per client and version, and a process holds one at a time. Memory is the peak over
rounds of the server's and its workers' own memory (mapped files belong to the page cache). Each
population runs in its own process.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.config.models import Experiment
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import (
    experiment,
    heading,
    images,
    in_new_process,
    memory_of_workers,
    own_memory,
    verdict,
)

FEW = 10
MANY = 100
SAMPLES = 20
ROUNDS = 4
MORE = 1.25  # the largest accepted memory of a hundred clients, relative to ten


@dataclass
class Peaks:
    """The largest memory of any round so far; what is on disk now; the seconds of the run."""

    server: int = 0
    workers: int = 0
    states: int = 0  # on disk
    seconds: float = 0.0

    @property
    def memory(self) -> int:
        return self.server + self.workers


def main() -> None:
    heading("Private models of many clients")
    peaks = {}
    for clients in (FEW, MANY):
        peaks[clients] = Peaks(**in_new_process(__file__, clients))
    for clients, row in peaks.items():
        print(
            f"{clients:4} clients: server {row.server / 1e6:6.1f} MB, "
            f"two workers {row.workers / 1e6:6.1f} MB, "
            f"states on disk {row.states / 1e6:6.1f} MB, {row.seconds:5.1f} s"
        )
    ratio = peaks[MANY].memory / peaks[FEW].memory
    verdict("memory of 100 clients against 10", f"{ratio:.2f}×", f"{MORE}×", ratio <= MORE)


def one(clients: int) -> None:
    """Run with this many clients, and print the peaks; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        peaks = peaks_of(clients, Path(name))
    print(json.dumps(asdict(peaks)))


def peaks_of(clients: int, folder: Path) -> Peaks:
    pool = Pool(2)
    peaks = Peaks()

    def listen(event: Event) -> None:
        if not isinstance(event, RoundEnded):
            return
        peaks.server = max(peaks.server, own_memory())
        peaks.workers = max(peaks.workers, memory_of_workers(pool))
        peaks.states = bytes_of_states(run.path / "clients")

    try:
        pool.start()
        run, prepared = create(config_of(clients, folder), folder / "run")
        started = time.perf_counter()
        execute(run, prepared, pool, listen)
        peaks.seconds = time.perf_counter() - started
    finally:
        pool.close()
    return peaks


def bytes_of_states(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.state"))


def config_of(clients: int, folder: Path) -> Experiment:
    data = {
        "name": images(folder / "images.npz", clients * SAMPLES, (1, 8, 8)),
        "clients": clients,
        "partition": "iid",
    }
    return experiment(
        method="spider",
        options={"cells": 3, "nodes": 2, "channels": 8, "batch": 8},
        data=data,
        budget={"rounds": ROUNDS},
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        main()
