"""Evidence for clusters and the simulated clock: interruptible comparisons, and their tables.

    python bench/evidence_clock.py run --images images.npz --out evidence
    python bench/evidence_clock.py tables --images images.npz --out evidence > tables.md

The images are the first 4,000 of CIFAR-10's `data_batch_1` at half their side
(docs/results/clock.md). Forty clients have a hundred each, dealt by dominant:0.4; devices and links
are those of phones, by the seed. A finished comparison is not run again, and an interrupted one is
resumed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from comparisons import (
    Trial,
    accuracy,
    balanced,
    carry_out,
    clock_of,
    difference,
    finished,
    mean_of,
    name_of,
    seconds_saved,
    target_of,
    to_target,
)
from fedloom.federation.protocol.clustering import distance, sum_of
from fedloom.records.result import RunResult

CLIENTS = 40
PARTITION = "dominant:0.4"
ROUNDS = 20
TARGET = 0.4  # accuracy on validation data
SEEDS = (0, 1, 2)

# Some 180 samples a client and round for the flat ones, 200 for those in clusters.
FEDAVG = "fedavg:epochs=3,batch=20"
ADAPTED = "local-adaptation:epochs=3,batch=20"
HFL = "hfl:cluster_size=10,batch=20"
HFL_EXACT = "hfl:cluster_size=10,batch=20,histograms=exact"
METHODS = (FEDAVG, ADAPTED, HFL)


ALWAYS = Trial("always", "all available", METHODS)
CONDITIONS = (
    ALWAYS,
    Trial("dropout", "30 % leave during their work", METHODS, ("--dropout", "0.3")),
    Trial("duty", "60 s available, 30 s not", METHODS, ("--availability", "duty:60,30")),
)
BY_LABELS = Trial("labels", "by labels (Algorithm 2)", (HFL_EXACT,), ("--clusters", "labels"))
CLUSTERS = (
    BY_LABELS,
    Trial("random", "at random", (HFL_EXACT,), ("--clusters", "random")),
    Trial("alike", "of similar clients", (HFL_EXACT,), ("--clusters", "alike")),
)
TRIALS = (*CONDITIONS, *CLUSTERS)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="runs and tables of the evidence for clusters and clock"
    )
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument("--images", type=Path, required=True, help="the .npz file of images")
    parser.add_argument("--out", type=Path, required=True, help="folder of all comparisons")
    parser.add_argument(
        "--only", action="append", choices=[trial.name for trial in TRIALS], help="repeatable"
    )
    arguments = parser.parse_args(argv)
    if arguments.command == "tables":
        print("\n".join(tables(arguments.images, arguments.out)))
        return 0
    worst = 0
    for trial in TRIALS:
        if arguments.only is None or trial.name in arguments.only:
            worst = max(
                worst, carry_out(command_of(trial, arguments.images), arguments.out / trial.name)
            )
    return worst


def command_of(trial: Trial, images: Path) -> list[str]:
    return [
        "compare",
        *trial.methods,
        *split_of(images),
        "--devices",
        "phones",
        *trial.flags,
        "--rounds",
        str(ROUNDS),
        "--target",
        str(TARGET),
        "--seeds",
        ",".join(map(str, SEEDS)),
        "--workers",
        "1",
        "--quiet",
    ]


def split_of(images: Path) -> list[str]:
    return ["--data", str(images), "--clients", str(CLIENTS), "--partition", PARTITION]


# Tables


def tables(images: Path, out: Path) -> Iterator[str]:
    yield from conditions_table(out)
    yield ""
    yield from clusters_table(images, out)


def conditions_table(out: Path) -> Iterator[str]:
    """What each method needs to reach the target, and what is lost when clients leave."""
    yield (
        "| clients | method | accuracy % | − all available | balanced % | total seconds | "
        "seconds to target | "
        "− FedAvg's | WAN to target, MB | LAN to target, MB | GMACs to target | rounds to target "
        "| left, % of orders | "
        "wasted MB | wasted GMACs |"
    )
    yield "|---" * 15 + "|"
    for trial in CONDITIONS:
        for method in trial.methods:
            yield conditions_row(out, trial, method)


def conditions_row(out: Path, trial: Trial, method: str) -> str:
    runs = finished(out, trial, method)
    if not runs:
        return f"| {trial.title} | {name_of(method)} | not run |" + " |" * 12
    against_all = difference(finished(out, ALWAYS, method), runs, accuracy)
    if trial is ALWAYS:
        against_all = ""
    reached = [target_of(out, trial, method, run.seed, TARGET) for run in runs]
    flat = [target_of(out, trial, FEDAVG, run.seed, TARGET) for run in runs]
    clocks = [clock_of(run) for run in runs]
    share_dropped = fmean(clock.dropped / clock.asked for clock in clocks)
    cells = [
        trial.title,
        name_of(method),
        mean_of(runs, accuracy),
        against_all,
        mean_of(runs, balanced),
        f"{fmean(clock.seconds for clock in clocks):.0f}",
        to_target(reached, lambda target: target.seconds, 0),
        seconds_saved(flat, reached),
        to_target(reached, lambda target: target.wan / 1e6, 1),
        to_target(reached, lambda target: (target.bytes - target.wan) / 1e6, 1),
        to_target(reached, lambda target: target.macs / 1e9, 0),
        to_target(reached, lambda target: target.rounds, 1),
        f"{100 * share_dropped:.1f}",
        f"{fmean(clock.wasted_bytes for clock in clocks) / 1e6:.1f}",
        f"{fmean(clock.wasted_macs for clock in clocks) / 1e9:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def clusters_table(images: Path, out: Path) -> Iterator[str]:
    yield (
        "| clusters | distance of their labels | accuracy % | − by labels | balanced % | "
        "seconds to target | rounds |"
    )
    yield "|---" * 7 + "|"
    for trial in CLUSTERS:
        runs = finished(out, trial, HFL_EXACT)
        if not runs:
            yield f"| {trial.title} | not run |" + " |" * 5
            continue
        against_labels = difference(finished(out, BY_LABELS, HFL_EXACT), runs, accuracy)
        if trial is BY_LABELS:
            against_labels = ""
        reached = [target_of(out, trial, HFL_EXACT, run.seed, TARGET) for run in runs]
        cells = [
            trial.title,
            f"{fmean(distance_in(run, images) for run in runs):.3f}",
            mean_of(runs, accuracy),
            against_labels,
            mean_of(runs, balanced),
            to_target(reached, lambda target: target.seconds, 0),
            to_target(reached, lambda target: target.rounds, 1),
        ]
        yield "| " + " | ".join(cells) + " |"


def distance_in(run: RunResult, images: Path) -> float:
    """The mean over the clusters of a run's last clustering, with the counts of all samples."""
    counts = label_counts(images, run.seed)
    population = sum_of(counts)
    distances = []
    for cluster in run.clusters or ():
        together = sum_of(counts[client] for client in cluster.members)
        distances.append(distance(together, population))
    return fmean(distances)


def label_counts(images: Path, seed: int) -> list[tuple[int, ...]]:
    arguments = ["data", "show", str(images), *split_of(images)[2:], "--seed", str(seed), "--json"]
    shown = subprocess.run(
        [sys.executable, "-m", "fedloom", *arguments], check=True, capture_output=True
    )
    return [tuple(client["counts"]) for client in json.loads(shown.stdout)["clients"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
