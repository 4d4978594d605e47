"""Does a client cost more when many take part?

    python bench/bench_cohort.py

100 and 10,000 clients take part, all of them in every round: FedAvg with a quarter-width CNN on 4×4
images, ten samples per client, two workers. The seconds per client and round should be the same.
The first round is left out, because every client is described in it. Each size runs in its own
process, in turns; CPU seconds are those of the server and its workers.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import cpu_seconds, experiment, heading, images, in_new_process, verdict

ROUNDS = {100: 40, 10_000: 4}  # by clients per round
SAMPLES = 10
REPEATS = 2
MOST = 1.1  # the largest accepted ratio of seconds per client, many clients to few


def one(clients: int) -> None:
    """Print the wall and CPU seconds per client, by round; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        pool = Pool(2)
        data = {
            "name": images(folder / "images.npz", clients * SAMPLES, (1, 4, 4)),
            "clients": clients,
            "partition": "iid",
        }
        config = experiment(
            method="fedavg",
            options={"width": 0.25},
            data=data,
            budget={"rounds": ROUNDS[clients]},
            evaluate={"every": 10**9, "clients": 1},
        )
        marks: list[tuple[float, float]] = []

        def listen(event: Event) -> None:
            if isinstance(event, RoundEnded):
                processes: list[int | str] = [
                    "self",
                    *(worker.process.pid for worker in pool.workers),
                ]
                marks.append((time.perf_counter(), sum(map(cpu_seconds, processes))))

        run, prepared = create(config, folder / "run")
        execute(run, prepared, pool, listen)
        pool.close()
    rounds = []
    for before, after in pairwise(marks):
        rounds.append([(after[0] - before[0]) / clients, (after[1] - before[1]) / clients])
    print(json.dumps({"rounds": rounds}))


def main() -> None:
    heading(
        f"Cohort: {' or '.join(f'{number:,}' for number in ROUNDS)} clients a round, seconds of a "
        f"client"
    )
    rounds: dict[int, list[list[float]]] = {number: [] for number in ROUNDS}
    for _ in range(REPEATS):
        for number in ROUNDS:
            rounds[number] += in_new_process(__file__, number)["rounds"]
    wall = {}
    cpu = {}
    for number, rows in rounds.items():
        wall[number] = min(row[0] for row in rows)
        cpu[number] = min(row[1] for row in rows)
        print(
            f"{number:7,} a round: {1e3 * wall[number]:6.2f} ms by the clock, "
            f"{1e3 * cpu[number]:6.2f} ms of CPU"
        )
    few, many = ROUNDS
    print()
    for name, seconds in {"by the clock": wall, "of CPU": cpu}.items():
        ratio = seconds[many] / seconds[few]
        verdict(f"a client's seconds {name}", f"{ratio:.2f}×", f"at most {MOST}×", ratio <= MOST)


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
