"""The share of a round that clusters and the clock cost: FedAvg of ten small clients, and FINCH.

    python bench/bench_hierarchy.py

The runs use digits, ten clients and the small CNN, or FINCH's search in sub-spaces, without worker
processes: all CPU seconds are those of this process. During the run the server's own functions are
timed: what a topology does besides asking clients (clusters, aggregators, means inside clusters and
the bytes that are sent up), and which clients are available, which leave and how long all takes. A
round lasts from its planning to its checkpoint; the last one includes an evaluation.

The means inside clusters replace a part of the server's own mean. They are counted nevertheless;
the last column of the table leaves them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fedloom.federation.server import loop
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.budgets import Allowance
from fedloom.federation.server.cluster_round import ClusterRound
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.planning import clock_of
from fedloom.federation.server.topology import Flat
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.running import carry_out
from measuring import heading, verdict

ROUNDS = 12
REPEATS = 3
MOST_SHARE = 0.03
MOST_OF_FINCH = 0.01
# A group of four cells, of which every cluster searches a part.
FINCH = {"nodes": 2, "channels": 8, "batch": 20, "stack": 1}
CLOCK = {
    "devices": {"table": "phones"},
    "clock": {"availability": "duty:600,0", "dropout": 0.1},
    "budget": {"rounds": ROUNDS, "limits": "seconds=100000,wan=10G,macs=100T"},
}
CLUSTERS: dict[str, Any] = {
    "engine": {"workers": 0, "topology": "clustered:3x2"},
    "topology": {"clusters": "labels"},
}
FLAT: dict[str, Any] = {"engine": {"workers": 0, "topology": "flat"}}


def main() -> None:
    heading(f"Clusters and the simulated clock: {ROUNDS} rounds of ten small clients")
    measure("clusters and clock", CLUSTERS, MOST_SHARE)
    measure("clock alone", FLAT, MOST_SHARE)
    measure(
        "FINCH", {"engine": {"workers": 0}, "options": FINCH}, MOST_OF_FINCH, "finch", repeats=1
    )


@dataclass
class Costs:
    """CPU seconds of one run's rounds."""

    rounds: float = 0.0
    topology_and_clock: float = 0.0
    means: float = 0.0  # the part of it for means of replies inside clusters
    # Whether time counts now; inside an exchange with clients it does not.
    counting: list[bool] = field(default_factory=list)
    since: float = 0.0

    def switch(self) -> None:
        """Book the time since the last switch."""
        now = time.process_time()
        if self.counting and self.counting[-1]:
            self.topology_and_clock += now - self.since
        self.since = now

    @contextmanager
    def of(self, counts: bool) -> Iterator[None]:
        self.switch()
        self.counting.append(counts)
        try:
            yield
        finally:
            self.switch()
            self.counting.pop()


def counted(costs: Costs, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        with costs.of(counts=True):
            return function(*arguments, **named)

    return timed


def gathering(costs: Costs, gather: Callable[..., Any]) -> Callable[..., Any]:
    """Time a topology's round without the exchange with clients, but with judging the clock."""

    def timed(topology: Any, orders: Any, exchange: Callable[..., Any], situation: Any) -> Any:
        def asked(orders_of_hop: Any, hop: int, timing: Callable[..., Any]) -> Any:
            with costs.of(counts=False):
                return exchange(orders_of_hop, hop, counted(costs, timing))

        with costs.of(counts=True):
            return gather(topology, orders, asked, situation)

    return timed


def averaging(costs: Costs, average: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        began = time.process_time()
        result = average(*arguments)
        costs.means += time.process_time() - began
        return result

    return timed


def round_timed(costs: Costs, one_round: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        result = one_round(*arguments, **named)
        costs.rounds += time.process_time() - began
        return result

    return timed


def costs_of(sections: dict[str, Any], folder: Path, method: str = "fedavg") -> Costs:
    tree = {
        "data": {"name": "digits", "clients": 10, "partition": "dirichlet:1.0"},
        "evaluate": {"every": ROUNDS},
        **CLOCK,
        **sections,
    }
    costs = Costs()
    run_folder, prepared = create(configure(method, tree), folder)
    with (
        patch.object(Clustered, "gather", gathering(costs, Clustered.gather)),
        patch.object(Clustered, "clustering_for", counted(costs, Clustered.clustering_for)),
        patch.object(Flat, "gather", gathering(costs, Flat.gather)),
        patch.object(ClusterRound, "average", averaging(costs, ClusterRound.average)),
        patch.object(loop, "clock_of", counted(costs, clock_of)),
        patch.object(Attendance, "present", counted(costs, Attendance.present)),
        patch.object(Allowance, "stopped_by", counted(costs, Allowance.stopped_by)),
        patch.object(Allowance, "after", counted(costs, Allowance.after)),
        patch.object(loop.Loop, "_round", round_timed(costs, loop.Loop._round)),
    ):
        carry_out(run_folder, prepared, lambda event: None)
    return costs


def measure(
    name: str, sections: dict[str, Any], most: float, method: str = "fedavg", repeats: int = REPEATS
) -> None:
    measured = []
    with TemporaryDirectory(prefix="fedloom-bench-") as scratch:
        for turn in range(repeats + 1):
            costs = costs_of(sections, Path(scratch) / f"run-{turn}", method)
            if turn > 0:  # the first one warms up
                measured.append(costs)
    print(f"{name:20} {'round':>10} {'of it ours':>12} {'without means':>14}")
    for costs in measured:
        share_of_both = costs.topology_and_clock / costs.rounds
        without_means = (costs.topology_and_clock - costs.means) / costs.rounds
        milliseconds = 1e3 * costs.rounds / ROUNDS
        percents = f"{100 * share_of_both:10.2f} % {100 * without_means:12.2f} %"
        print(f"{'':20} {milliseconds:7.1f} ms {percents}")
    shares = sorted(costs.topology_and_clock / costs.rounds for costs in measured)
    share = shares[len(shares) // 2]
    verdict(name, f"{100 * share:.2f} % of a round", f"under {100 * most:g} %", share < most)


if __name__ == "__main__":
    main()
