"""FedorAS: do clients that do not take part cost anything?

100, 1,000 and 10,000 clients are registered, and ten of them take part per round, in all three
stages: cnn-tiny on 8×8 images, ten samples per client, two tiers, paths scored by the clients of a
round, two workers. Each population runs in its own process. Wall-clock and CPU seconds of a round
are medians by stage, without describing clients that work for the first time (with 10,000 clients
all ten are new in every round). Tiers are tuned in turn, by ten clients and by five: their medians
are averaged. The search finds other paths at other costs in every population, so the same two
networks are tuned everywhere instead. Memory is the peak of the server's and its workers' own
memory at the end of a round, without the data itself: samples, labels and the split's arrays.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fedloom.data.split import ARRAYS
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.federation.server.exchange import Exchange
from fedloom.methods import fedoras_tune
from fedloom.runs.experiment import create, execute
from fedloom.searchers.paths import Path as SearchedPath
from fedloom.searchers.tier_search import TierSpace
from fedloom.types import Order
from measuring import cpu_seconds, experiment, heading, images, in_new_process, memory, verdict

POPULATIONS = (100, 1_000, 10_000)
COHORT = 10
SAMPLES = 10
ROUNDS = 40
REPEATS = 1
STAGES = ("supernet", "search", "tune")
TUNED = ((0, 1, 2, 0, 1, 2), (2, 3, 4, 5, 6, 7))  # the operation of every layer, by tier


def one(clients: int) -> None:
    """Run with this many registered clients, and print figures; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        pool = Pool(2)
        config = experiment(
            method="fedoras",
            options={
                "space": "cnn-tiny",
                "epochs": 1,
                "models": 1000,
                "search_share": 0.2,
                "supernet_share": 0.5,
            },
            data={
                "name": images(folder / "images.npz", clients * SAMPLES, (1, 8, 8)),
                "clients": clients,
                "partition": "iid",
            },
            budget={"rounds": ROUNDS, "participation": COHORT / clients},
        )
        marks: list[dict[str, Any]] = []

        def listen(event: Event) -> None:
            if not isinstance(event, RoundEnded):
                return
            marks.append(
                {
                    "stage": event.row.stage,
                    "tier": event.row.notes.get("tier"),
                    "clock": time.perf_counter() - describing.seconds,
                    "cpu": cpu_of(pool) - describing.cpu,
                    "server": memory()["anon"],
                    "workers": sum(memory(worker.process.pid)["anon"] for worker in pool.workers),
                }
            )
            if event.row.round == ROUNDS:
                raise Enough  # the final evaluation of all clients is no round

        run, prepared = create(config, folder / "run")
        ctypes.CDLL(None).malloc_trim(0)
        describing = Describing(pool)
        with (
            patch.object(Exchange, "describe", lambda *arguments: describing(*arguments)),
            patch.object(fedoras_tune, "path_of_tier", same_path),
            suppress(Enough),
        ):
            execute(run, prepared, pool, listen)
        pool.close()
    arrays = [
        prepared.source.x,
        prepared.source.y,
        *(getattr(prepared.split, array) for array in ARRAYS),
    ]
    print(json.dumps({"marks": marks, "data": sum(array.nbytes for array in arrays)}))


class Enough(Exception):
    """Raised when the last round is over."""


class Describing:
    """Asks clients for their descriptions, and measures the time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ask = Exchange.describe
        self.seconds = 0.0
        self.cpu = 0.0

    def __call__(self, exchange: Exchange, orders: Sequence[Order]) -> list[Order]:
        started = time.perf_counter()
        before = cpu_of(self.pool)
        described = self.ask(exchange, orders)
        self.cpu += cpu_of(self.pool) - before
        self.seconds += time.perf_counter() - started
        return described


def cpu_of(pool: Pool) -> float:
    """CPU seconds of the server and its workers so far."""
    return cpu_seconds("self") + sum(cpu_seconds(worker.process.pid) for worker in pool.workers)


def same_path(state: object, space: TierSpace, options: object) -> SearchedPath:
    """The networks to tune, which are the same in every population."""
    return TUNED[space.tier - 1]


def rounds_of(runs: Sequence[dict[str, Any]], stage: str, column: str) -> float:
    """The median over all rounds of a stage but its first; if tiers take turns, their mean."""
    by_tier: dict[int | None, list[float]] = {}
    for run in runs:
        for before, after in pairwise(run["marks"]):
            if before["stage"] == after["stage"] == stage:
                by_tier.setdefault(after["tier"], []).append(after[column] - before[column])
    return mean(median(amounts) for amounts in by_tier.values())


def peak(run: dict[str, Any]) -> float:
    """The peak of the server and its workers in MiB, without the data."""
    most = max(mark["server"] + mark["workers"] for mark in run["marks"])
    return float(most - run["data"]) / 2**20


def main() -> None:
    heading(
        f"FedorAS: {COHORT} clients a round of {', '.join(f'{number:,}' for number in POPULATIONS)}"
    )
    runs: dict[int, list[dict[str, Any]]] = {number: [] for number in POPULATIONS}
    for _ in range(REPEATS):
        for number in POPULATIONS:
            runs[number].append(in_new_process(__file__, number))
    print(
        f"{'registered':>10}  "
        + "".join(f"{stage + ' s (CPU)':>20}" for stage in STAGES)
        + f"{'peak MiB':>12}"
    )
    seconds: dict[int, list[float]] = {}
    memories: dict[int, float] = {}
    for number, several in runs.items():
        clocks = [rounds_of(several, stage, "clock") for stage in STAGES]
        computed = [rounds_of(several, stage, "cpu") for stage in STAGES]
        memories[number] = min(peak(run) for run in several)
        seconds[number] = [*clocks, *computed]
        columns = [f"{clock:.3f} ({cpu:.3f})" for clock, cpu in zip(clocks, computed, strict=True)]
        print(
            f"{number:10,}  "
            + "".join(f"{column:>20}" for column in columns)
            + f"{memories[number]:12.1f}"
        )
    print()
    few, *others = POPULATIONS
    for number in others:
        ratio = memories[number] / memories[few]
        verdict(f"{number:,}: peak memory", f"{ratio:.2f}×", "at most 1.1×", ratio <= 1.1)
        for place, stage in enumerate(STAGES):
            clock = seconds[number][place] / seconds[few][place]
            cpu = seconds[number][place + len(STAGES)] / seconds[few][place + len(STAGES)]
            ratios = f"{clock:.2f}× (CPU {cpu:.2f}×)"
            verdict(f"{number:,}: a round of {stage}", ratios, "at most 1.2×", clock <= 1.2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        main()
