"""FedorAS: do clients that do not take part cost anything?

    python bench/bench_tiers.py

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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fedloom.config.models import Experiment
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.federation.server.exchange import Exchange
from fedloom.methods import fedoras_tune
from fedloom.runs.experiment import create, execute
from fedloom.searchers.paths import Path as SearchedPath
from fedloom.searchers.tier_search import TierSpace
from fedloom.types import Order
from measuring import (
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

POPULATIONS = (100, 1_000, 10_000)
COHORT = 10
SAMPLES = 10
ROUNDS = 40
REPEATS = 1
STAGES = ("supernet", "search", "tune")
TUNED = ((0, 1, 2, 0, 1, 2), (2, 3, 4, 5, 6, 7))  # the operation of every layer, by tier


def main() -> None:
    heading(f"FedorAS: {COHORT} clients a round of {listed(POPULATIONS)}")
    runs: dict[int, list[Measured]] = {clients: [] for clients in POPULATIONS}
    for _ in range(REPEATS):
        for clients, measured in runs.items():
            measured.append(Measured.from_plain(in_new_process(__file__, clients)))
    titles = "".join(f"{stage + ' s (CPU)':>20}" for stage in STAGES)
    print(f"{'registered':>10}  {titles}{'peak MiB':>12}")
    summaries = {}
    for clients, measured in runs.items():
        summaries[clients] = Summary.of(measured)
        summaries[clients].print(clients)
    print()
    few, *others = POPULATIONS
    for clients in others:
        compare(clients, summaries[few], summaries[clients])


def listed(numbers: Iterable[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)


@dataclass(frozen=True)
class Mark:
    """The end of a round. Seconds are those since the start, without describing clients."""

    stage: str
    tier: int | None
    clock: float
    cpu: float
    server: int  # bytes
    workers: int


@dataclass(frozen=True)
class Measured:
    """A run: the ends of its rounds, and the bytes of its data."""

    marks: list[Mark]
    data: int

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Measured:
        """The measurements that another process printed as JSON."""
        return cls([Mark(**mark) for mark in plain["marks"]], plain["data"])

    @property
    def peak(self) -> float:
        """The peak of the server and its workers in MiB, without the data."""
        most = max(mark.server + mark.workers for mark in self.marks)
        return (most - self.data) / 2**20


@dataclass(frozen=True)
class Summary:
    """Several runs with equally many registered clients: seconds of a round, by stage."""

    clock: dict[str, float]
    cpu: dict[str, float]
    peak: float

    @classmethod
    def of(cls, runs: Sequence[Measured]) -> Summary:
        clock = {}
        cpu = {}
        for stage in STAGES:
            clock[stage] = typical_round(runs, stage, "clock")
            cpu[stage] = typical_round(runs, stage, "cpu")
        return cls(clock, cpu, min(run.peak for run in runs))

    def print(self, clients: int) -> None:
        line = f"{clients:10,}  "
        for stage in STAGES:
            column = f"{self.clock[stage]:.3f} ({self.cpu[stage]:.3f})"
            line += f"{column:>20}"
        print(f"{line}{self.peak:12.1f}")


def typical_round(runs: Sequence[Measured], stage: str, column: str) -> float:
    """The median over all rounds of a stage but its first; if tiers take turns, their mean."""
    by_tier: dict[int | None, list[float]] = {}
    for run in runs:
        for before, after in pairwise(run.marks):
            if before.stage == after.stage == stage:
                seconds = getattr(after, column) - getattr(before, column)
                by_tier.setdefault(after.tier, []).append(seconds)
    return mean(median(seconds) for seconds in by_tier.values())


def compare(clients: int, few: Summary, many: Summary) -> None:
    ratio = many.peak / few.peak
    verdict(f"{clients:,}: peak memory", f"{ratio:.2f}×", "at most 1.1×", ratio <= 1.1)
    for stage in STAGES:
        clock = many.clock[stage] / few.clock[stage]
        cpu = many.cpu[stage] / few.cpu[stage]
        ratios = f"{clock:.2f}× (CPU {cpu:.2f}×)"
        verdict(f"{clients:,}: a round of {stage}", ratios, "at most 1.2×", clock <= 1.2)


def one(clients: int) -> None:
    """Run with this many registered clients, and print figures; it runs in its own process."""
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        measured = measure(clients, Path(name))
    print(json.dumps(asdict(measured)))


def measure(clients: int, folder: Path) -> Measured:
    pool = Pool(2)
    run, prepared = create(config_of(clients, folder), folder / "run")
    ctypes.CDLL(None).malloc_trim(0)
    describing = Describing(pool)
    marks: list[Mark] = []

    def listen(event: Event) -> None:
        if not isinstance(event, RoundEnded):
            return
        mark = Mark(
            stage=event.row.stage,
            tier=event.row.notes.get("tier"),
            clock=time.perf_counter() - describing.seconds,
            cpu=cpu_of_pool(pool) - describing.cpu,
            server=own_memory(),
            workers=memory_of_workers(pool),
        )
        marks.append(mark)
        if event.row.round == ROUNDS:
            raise LastRoundEnded  # the final evaluation of all clients is no round

    with (
        patch.object(Exchange, "describe", lambda *arguments: describing(*arguments)),
        patch.object(fedoras_tune, "path_of_tier", same_path),
        suppress(LastRoundEnded),
    ):
        execute(run, prepared, pool, listen)
    pool.close()
    return Measured(marks, bytes_of_data(prepared))


def config_of(clients: int, folder: Path) -> Experiment:
    options = {
        "space": "cnn-tiny",
        "epochs": 1,
        "models": 1000,
        "search_share": 0.2,
        "supernet_share": 0.5,
    }
    data = {
        "name": images(folder / "images.npz", clients * SAMPLES, (1, 8, 8)),
        "clients": clients,
        "partition": "iid",
    }
    return experiment(
        method="fedoras",
        options=options,
        data=data,
        budget={"rounds": ROUNDS, "participation": COHORT / clients},
    )


class LastRoundEnded(Exception):
    """Raised to end the run without its final evaluation."""


class Describing:
    """Asks clients for their descriptions, and measures the time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ask = Exchange.describe
        self.seconds = 0.0
        self.cpu = 0.0

    def __call__(self, exchange: Exchange, orders: Sequence[Order]) -> list[Order]:
        started = time.perf_counter()
        before = cpu_of_pool(self.pool)
        described = self.ask(exchange, orders)
        self.cpu += cpu_of_pool(self.pool) - before
        self.seconds += time.perf_counter() - started
        return described


def same_path(state: object, space: TierSpace, options: object) -> SearchedPath:
    """The networks to tune, which are the same in every population."""
    return TUNED[space.tier - 1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        main()
