"""Do a hundred clients' private models cost memory?

SPIDER with 100 clients against 10: the DARTS s2 supernet, 3 cells of 2 nodes, 8 channels, 8×8 images, 20 samples a
client, all of them every round, two workers, 4 rounds through all phases. Every client has weights, momentum and an
architecture of its own: they live on disk, a file a client and version, and a process holds one at a time. Memory is
what the server and its workers have of their own (mapped files are the page cache's), at most over the rounds. Each
population runs in a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.federation.engines.local import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import experiment, heading, images, in_new_process, memory, verdict

POPULATIONS = (10, 100)
SAMPLES, ROUNDS = 20, 4
MORE = 1.25  # times the memory of ten clients that a hundred may take


def one(clients: int) -> None:
    """In a process of its own: a run with so many clients."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        pool = Pool(2)
        data = {"name": images(Path(name) / "images.npz", clients * SAMPLES, (1, 8, 8)), "clients": clients}
        config = experiment(
            method="spider",
            options={"cells": 3, "nodes": 2, "channels": 8, "batch": 8},
            data={**data, "partition": "iid"},
            budget={"rounds": ROUNDS},
        )
        found = {"server": 0, "workers": 0}

        def listen(event: Event) -> None:
            if not isinstance(event, RoundEnded):
                return
            workers = sum(memory(worker.process.pid)["anon"] for worker in pool.workers)
            found["server"], found["workers"] = max(found["server"], memory()["anon"]), max(found["workers"], workers)
            found["states"] = sum(path.stat().st_size for path in (run.path / "clients").rglob("*.state"))

        try:
            pool.start()
            run, prepared = create(config, Path(name) / "run")
            started = time.perf_counter()
            execute(run, prepared, pool, listen)
            print(json.dumps({**found, "seconds": time.perf_counter() - started}))
        finally:
            pool.close()


def main() -> None:
    heading("Private models of many clients")
    rows = {clients: in_new_process(__file__, clients) for clients in POPULATIONS}
    for clients, row in rows.items():
        print(
            f"{clients:4} clients: server {row['server'] / 1e6:6.1f} MB, two workers {row['workers'] / 1e6:6.1f} MB, "
            f"states on disk {row['states'] / 1e6:6.1f} MB, {row['seconds']:5.1f} s"
        )
    few, many = (sum(rows[clients][part] for part in ("server", "workers")) for clients in POPULATIONS)
    verdict("memory of 100 clients against 10", f"{many / few:.2f}×", f"{MORE}×", many / few <= MORE)


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
