"""Do the private models of a hundred clients cost memory?

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
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import experiment, heading, images, in_new_process, memory, verdict

POPULATIONS = (10, 100)
SAMPLES = 20
ROUNDS = 4
MORE = 1.25  # the largest accepted memory of a hundred clients, relative to ten


def one(clients: int) -> None:
    """Run with this many clients, and print the peaks; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        pool = Pool(2)
        data = {
            "name": images(Path(name) / "images.npz", clients * SAMPLES, (1, 8, 8)),
            "clients": clients,
        }
        config = experiment(
            method="spider",
            options={"cells": 3, "nodes": 2, "channels": 8, "batch": 8},
            data={**data, "partition": "iid"},
            budget={"rounds": ROUNDS},
        )
        peaks = {"server": 0, "workers": 0}

        def listen(event: Event) -> None:
            if not isinstance(event, RoundEnded):
                return
            workers = sum(memory(worker.process.pid)["anon"] for worker in pool.workers)
            peaks["server"], peaks["workers"] = (
                max(peaks["server"], memory()["anon"]),
                max(peaks["workers"], workers),
            )
            peaks["states"] = sum(
                path.stat().st_size for path in (run.path / "clients").rglob("*.state")
            )

        try:
            pool.start()
            run, prepared = create(config, Path(name) / "run")
            started = time.perf_counter()
            execute(run, prepared, pool, listen)
            print(json.dumps({**peaks, "seconds": time.perf_counter() - started}))
        finally:
            pool.close()


def main() -> None:
    heading("Private models of many clients")
    rows = {clients: in_new_process(__file__, clients) for clients in POPULATIONS}
    for clients, row in rows.items():
        print(
            f"{clients:4} clients: server {row['server'] / 1e6:6.1f} MB, two workers "
            f"{row['workers'] / 1e6:6.1f} MB, "
            f"states on disk {row['states'] / 1e6:6.1f} MB, {row['seconds']:5.1f} s"
        )
    few, many = (
        sum(rows[clients][part] for part in ("server", "workers")) for clients in POPULATIONS
    )
    verdict(
        "memory of 100 clients against 10", f"{many / few:.2f}×", f"{MORE}×", many / few <= MORE
    )


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
