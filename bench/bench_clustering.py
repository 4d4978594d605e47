"""FINCH's Algorithm 2: how much faster ours is than three loops, and what 10,000 clients cost.

Clients have 200 to 1,000 samples, with label counts drawn from a Dirichlet distribution (α 0.2).
Both versions make the same clusters. CPU seconds are those of the process; memory is what
clustering adds to its peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

from fedloom.federation.protocol.clustering import Cluster, label_clusters
from fedloom.rng import rng
from measuring import heading, in_new_process, verdict

LABELS = 100
SIZE = 10
FEW = 1_000
MANY = 10_000
LEAST_GAIN = 20.0
MOST_SECONDS = 20.0
MOST_MEGABYTES = 200.0


def histograms_of(clients: int) -> dict[int, list[int]]:
    draws = rng(0, "bench", clients)
    histograms = {}
    for client in range(clients):
        shares = draws.dirichlet(np.full(LABELS, 0.2))
        histograms[client] = draws.multinomial(int(draws.integers(200, 1001)), shares).tolist()
    return histograms


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


def clustered(histograms: dict[int, list[int]]) -> list[Cluster]:
    return label_clusters(histograms, SIZE, rng(0, "clusters"))


def many() -> None:
    """Print what 10,000 clients cost; it runs in its own process."""
    histograms = histograms_of(MANY)
    clustered(histograms_of(100))  # imports and one-time set-up are not part of the cost
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    clusters = clustered(histograms)
    seconds = time.process_time() - began
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    level = sum(cluster.level or 0.0 for cluster in clusters) / len(clusters)
    print(json.dumps({"seconds": seconds, "megabytes": added / 1024, "level": level}))


def main() -> None:
    heading(f"Clusters of {SIZE} by labels: {FEW:,} and {MANY:,} clients, {LABELS} labels")
    histograms = histograms_of(FEW)
    clustered(histograms_of(100))
    times = []
    for _ in range(5):
        began = time.process_time()
        clusters = clustered(histograms)
        times.append(time.process_time() - began)
    began = time.process_time()
    expected = literal(histograms, [cluster.members[0] for cluster in clusters])
    slow = time.process_time() - began
    same = [cluster.members for cluster in clusters] == expected
    gain = slow / min(times)
    print(f"{FEW:,} clients: {min(times):.3f} CPU s, three loops {slow:.1f} CPU s")
    verdict("against three loops", f"{gain:.0f}×", f"at least {LEAST_GAIN:g}×", gain >= LEAST_GAIN)
    verdict("the same clusters", "yes" if same else "no", "yes", same)
    cost = in_new_process(__file__, "many")
    print(f"{MANY:,} clients: mean distance to the population {cost['level']:.4f}")
    seconds = cost["seconds"]
    megabytes = cost["megabytes"]
    verdict(
        f"{MANY:,} clients",
        f"{seconds:.1f} CPU s",
        f"at most {MOST_SECONDS:g}",
        seconds <= MOST_SECONDS,
    )
    holds = megabytes <= MOST_MEGABYTES
    verdict(f"{MANY:,} clients", f"{megabytes:.0f} MB more", f"at most {MOST_MEGABYTES:g}", holds)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        many()
    else:
        main()
