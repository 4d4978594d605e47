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
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.config.models import Experiment
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import cpu_of_pool, experiment, heading, images, in_new_process, verdict

ROUNDS = {100: 40, 10_000: 4}  # by clients per round
SAMPLES = 10
REPEATS = 2
MOST = 1.1  # the largest accepted ratio of seconds per client, many clients to few


@dataclass(frozen=True)
class Seconds:
    clock: float
    cpu: float  # of the server and its workers


def main() -> None:
    few, many = ROUNDS
    heading(f"Cohort: {few:,} or {many:,} clients a round, seconds of a client")
    rounds: dict[int, list[Seconds]] = {few: [], many: []}
    for _ in range(REPEATS):
        for clients, rows in rounds.items():
            for row in in_new_process(__file__, clients):
                rows.append(Seconds(**row))
    least = {}
    for clients, rows in rounds.items():
        least[clients] = Seconds(min(row.clock for row in rows), min(row.cpu for row in rows))
        print(
            f"{clients:7,} a round: {1e3 * least[clients].clock:6.2f} ms by the clock, "
            f"{1e3 * least[clients].cpu:6.2f} ms of CPU"
        )
    print()
    compare("by the clock", least[few].clock, least[many].clock)
    compare("of CPU", least[few].cpu, least[many].cpu)


def compare(kind: str, few: float, many: float) -> None:
    ratio = many / few
    verdict(f"a client's seconds {kind}", f"{ratio:.2f}×", f"at most {MOST}×", ratio <= MOST)


def one(clients: int) -> None:
    """Print the seconds per client, by round; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        rounds = rounds_of(clients, Path(name))
    print(json.dumps([asdict(seconds) for seconds in rounds]))


def rounds_of(clients: int, folder: Path) -> list[Seconds]:
    """The seconds per client in every round but the first."""
    pool = Pool(2)
    marks: list[Seconds] = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            marks.append(Seconds(time.perf_counter(), cpu_of_pool(pool)))

    run, prepared = create(config_of(clients, folder), folder / "run")
    execute(run, prepared, pool, listen)
    pool.close()
    rounds = []
    for before, after in pairwise(marks):
        clock = (after.clock - before.clock) / clients
        cpu = (after.cpu - before.cpu) / clients
        rounds.append(Seconds(clock, cpu))
    return rounds


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
        budget={"rounds": ROUNDS[clients]},
        evaluate={"every": 10**9, "clients": 1},
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        main()
