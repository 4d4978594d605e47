"""What does a round cost when clients have nothing to do?

    python bench/bench_round.py

Ten clients return the ten numbers that they are sent, with two workers and no evaluation. What
remains is the round itself: ten orders and replies through two processes, the journal, the mean, a
row of metrics and a checkpoint. The checkpoint is made durable by fsync (of the metrics, the
checkpoint and its folder). The disk determines how long that takes, so it is timed separately in
the same run. The remaining time is divided into waiting for the workers and the server's own work.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.engines import worker_pool
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.options import Options
from fedloom.runs.experiment import create, execute
from fedloom.types import Fields, Order, Reply, Round, Setup, State

CLIENTS = 10
WORKERS = 2
ROUNDS = 200
FEW = 3.0  # milliseconds; 0.3 a client


@dataclass(frozen=True)
class Nothing(Method):
    """Clients that return what they get."""

    fields = {"return": Fields(tensors=("*",))}

    def init(self, setup: Setup, previous: State | None) -> State:
        return State({"w": torch.zeros(10)})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]]:
        return state, [Order(client, "return", state.tensors) for client in r.cohort()]

    def client(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, State | None]:
        return Reply(order.client, order.tensors, len(data)), None

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))  # only for the evaluation at the end


nothing = Recipe("Nothing", Options, lambda task: (Stage("nothing", Nothing()),))


def main() -> None:
    from measuring import Timing, heading, verdict  # see measure

    heading(f"An empty round over {CLIENTS} clients, {WORKERS} workers")
    pool = Pool(WORKERS)
    profile = cProfile.Profile()
    with (
        TemporaryDirectory(prefix="fedloom-bench-", dir=".") as one,
        TemporaryDirectory(dir=".") as two,
    ):
        rounds = measure(Path(one), pool)
        measure(Path(two), pool, profile)
    pool.close()
    beyond_sync = Timing(tuple(seconds.beyond_sync for seconds in rounds))
    timings = {
        "a round": Timing(tuple(seconds.whole for seconds in rounds)),
        "fsync": Timing(tuple(seconds.sync for seconds in rounds)),
        "beyond fsync": beyond_sync,
        "  waiting for workers": Timing(tuple(seconds.waiting for seconds in rounds)),
        "  the server's own work": Timing(tuple(seconds.own_work for seconds in rounds)),
    }
    for name, timing in timings.items():
        print(f"{name:24} {timing}")
    print("\nWhere the server's time goes (profiled, so slower; all rounds, seconds):")
    print(slowest_functions(profile))
    print()
    best = 1e3 * beyond_sync.best
    middle = 1e3 * beyond_sync.middle
    result = f"{best:.1f} ms beyond fsync (median {middle:.1f})"
    verdict("an empty round", result, f"at most {FEW:g} ms", best <= FEW)


@dataclass(frozen=True)
class Seconds:
    """Seconds so far, or those of one round."""

    whole: float
    sync: float
    waiting: float  # for workers

    @property
    def beyond_sync(self) -> float:
        return self.whole - self.sync

    @property
    def own_work(self) -> float:
        return self.whole - self.sync - self.waiting

    def since(self, earlier: Seconds) -> Seconds:
        return Seconds(
            self.whole - earlier.whole,
            self.sync - earlier.sync,
            self.waiting - earlier.waiting,
        )


def measure(folder: Path, pool: Pool, profile: cProfile.Profile | None = None) -> list[Seconds]:
    """The seconds of each round but the first."""
    # imported here, because workers load this file too, to find `nothing`
    from measuring import Stopwatch, experiment, images

    data = {
        "name": images(folder / "images.npz", CLIENTS * 10, (1, 8, 8)),
        "clients": CLIENTS,
        "partition": "iid",
    }
    config = experiment(method=f"{__file__}:nothing", data=data, budget={"rounds": ROUNDS})
    run, prepared = create(config, folder / "run")
    sync = Stopwatch(os.fsync)
    wait = Stopwatch(worker_pool.readable_handles)
    marks: list[Seconds] = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            marks.append(Seconds(time.perf_counter(), sync.seconds, wait.seconds))

    with (
        patch("os.fsync", sync),
        patch("fedloom.federation.engines.worker_pool.readable_handles", wait),
    ):
        if profile is None:
            execute(run, prepared, pool, listen)
        else:
            profile.runcall(execute, run, prepared, pool, listen)
    return [after.since(before) for before, after in pairwise(marks)]


def slowest_functions(profile: cProfile.Profile) -> str:
    """The rows of the table of a profile, without its head."""
    text = StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
    table = text.getvalue().split("ncalls", 1)[1]
    return "\n".join(table.splitlines()[1:]).rstrip()


if __name__ == "__main__":
    main()
