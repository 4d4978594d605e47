"""FINCH's Algorithm 2: how much faster ours is than three loops, and what 10,000 clients cost.

    python bench/bench_clustering.py

Clients have 200 to 1,000 samples, with label counts drawn from a Dirichlet distribution (α 0.2).
Both versions make the same clusters. CPU seconds are those of the process; memory is what
clustering adds to its peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

from fedloom.federation.protocol.clustering import Cluster, label_clusters
from fedloom.rng import rng
from measuring import heading, in_new_process, verdict

LABELS = 100
SIZE = 10
FEW = 1_000
MANY = 10_000
REPEATS = 5
LEAST_GAIN = 20.0
MOST_SECONDS = 20.0
MOST_MEGABYTES = 200.0


def main() -> None:
    heading(f"Clusters of {SIZE} by labels: {FEW:,} and {MANY:,} clients, {LABELS} labels")
    compare_with_loops()
    cost = Cost(**in_new_process(__file__, "many"))
    print(f"{MANY:,} clients: mean distance to the population {cost.level:.4f}")
    verdict(
        f"{MANY:,} clients",
        f"{cost.seconds:.1f} CPU s",
        f"at most {MOST_SECONDS:g}",
        cost.seconds <= MOST_SECONDS,
    )
    verdict(
        f"{MANY:,} clients",
        f"{cost.megabytes:.0f} MB more",
        f"at most {MOST_MEGABYTES:g}",
        cost.megabytes <= MOST_MEGABYTES,
    )


@dataclass(frozen=True)
class Cost:
    """What clustering many clients costs, and how good the clusters are."""

    seconds: float
    megabytes: float
    level: float  # the clusters' mean distance to the population


def compare_with_loops() -> None:
    histograms = histograms_of(FEW)
    clustered(histograms_of(100))  # one-time set-up is not part of the time
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        clusters = clustered(histograms)
        times.append(time.process_time() - started)
    starts = [cluster.members[0] for cluster in clusters]
    started = time.process_time()
    expected = literal(histograms, starts)
    slow = time.process_time() - started
    fast = min(times)
    gain = slow / fast
    print(f"{FEW:,} clients: {fast:.3f} CPU s, three loops {slow:.1f} CPU s")
    verdict("against three loops", f"{gain:.0f}×", f"at least {LEAST_GAIN:g}×", gain >= LEAST_GAIN)
    same = [cluster.members for cluster in clusters] == expected
    answer = "no"
    if same:
        answer = "yes"
    verdict("the same clusters", answer, "yes", same)


def many() -> None:
    """Print what 10,000 clients cost; it runs in its own process."""
    histograms = histograms_of(MANY)
    clustered(histograms_of(100))  # imports and one-time set-up are not part of the cost
    before = peak_kilobytes()
    started = time.process_time()
    clusters = clustered(histograms)
    seconds = time.process_time() - started
    megabytes = (peak_kilobytes() - before) / 1024
    level = sum(cluster.level or 0.0 for cluster in clusters) / len(clusters)
    print(json.dumps(asdict(Cost(seconds, megabytes, level))))


def peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def histograms_of(clients: int) -> dict[int, list[int]]:
    draws = rng(0, "bench", clients)
    histograms = {}
    for client in range(clients):
        shares = draws.dirichlet(np.full(LABELS, 0.2))
        histograms[client] = draws.multinomial(int(draws.integers(200, 1001)), shares).tolist()
    return histograms


def clustered(histograms: dict[int, list[int]]) -> list[Cluster]:
    return label_clusters(histograms, SIZE, rng(0, "clusters"))


def literal(histograms: dict[int, list[int]], starts: list[int]) -> list[tuple[int, ...]]:
    """Algorithm 2 as it is printed: loops over members, remaining clients and labels."""
    population = [sum(column) for column in zip(*histograms.values(), strict=True)]
    total = sum(population)
    remaining = dict(histograms)
    clusters = []
    for start in starts:
        counts = remaining.pop(start)
        members = [start]
        while remaining and len(members) < SIZE:
            nearest = -1
            least = float("inf")
            for client, row in remaining.items():
                joined_total = sum(counts) + sum(row)
                difference = 0
                for label in range(LABELS):
                    joined = counts[label] + row[label]
                    difference += abs(joined * total - population[label] * joined_total)
                distance = difference / (joined_total * total)
                if distance < least:
                    least = distance
                    nearest = client
            members.append(nearest)
            row = remaining.pop(nearest)
            counts = [counts[label] + row[label] for label in range(LABELS)]
        clusters.append(tuple(members))
    return clusters


if __name__ == "__main__":
    if len(sys.argv) > 1:
        many()
    else:
        main()
