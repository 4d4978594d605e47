"""Evidence for clusters and the simulated clock: comparisons that can be interrupted, and the tables made of them.

    python bench/evidence_clock.py run --images images.npz --out evidence
    python bench/evidence_clock.py tables --images images.npz --out evidence > tables.md

The images are the first 4,000 of CIFAR-10's `data_batch_1` at half their side (docs/results/clock.md). Forty clients
have a hundred each, dealt by dominant:0.4; devices and links are those of phones, by the seed. A comparison that is
finished is not run again, and one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fair_trials import Runs
from fedloom.evaluate.paired import paired
from fedloom.evaluate.target import first_reached
from fedloom.federation.protocol.clustering import distance, sum_of
from fedloom.metrics.metric import METRICS
from fedloom.records.comparison import Target, folder_name
from fedloom.records.result import RunResult, Simulated
from fedloom.records.rows import METRICS_FILE, read_rows

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


@dataclass(frozen=True)
class Trial:
    """One comparison: methods under the same conditions."""

    name: str
    title: str
    methods: tuple[str, ...]
    flags: tuple[str, ...] = ()


ALWAYS = Trial("always", "all are there", METHODS)
CONDITIONS = (
    ALWAYS,
    Trial("dropout", "30 % leave during their work", METHODS, ("--dropout", "0.3")),
    Trial("duty", "60 s there, 30 s away", METHODS, ("--availability", "duty:60,30")),
)
BY_LABELS = Trial("labels", "by labels (Algorithm 2)", (HFL_EXACT,), ("--clusters", "labels"))
CLUSTERS = (
    BY_LABELS,
    Trial("random", "at random", (HFL_EXACT,), ("--clusters", "random")),
    Trial("alike", "like with like", (HFL_EXACT,), ("--clusters", "alike")),
)
TRIALS = (*CONDITIONS, *CLUSTERS)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for clusters and clock")
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument("--images", type=Path, required=True, help="the .npz file of images")
    parser.add_argument("--out", type=Path, required=True, help="folder of all comparisons")
    parser.add_argument("--only", action="append", choices=[trial.name for trial in TRIALS], help="repeatable")
    arguments = parser.parse_args(words)
    if arguments.command == "tables":
        print("\n".join(tables(arguments.images, arguments.out)))
        return 0
    worst = 0
    for trial in TRIALS:
        if arguments.only is None or trial.name in arguments.only:
            worst = max(worst, carry_out(trial, arguments.images, arguments.out / trial.name))
    return worst


def carry_out(trial: Trial, images: Path, folder: Path) -> int:
    if (folder / "result.json").exists():
        return 0
    command = ["resume", str(folder), "--quiet"]
    if not (folder / "compare.json").exists():
        command = command_of(trial, images, folder)
    print("fedloom", *command, flush=True)
    return subprocess.run([sys.executable, "-m", "fedloom", *command], check=False).returncode


def command_of(trial: Trial, images: Path, folder: Path) -> list[str]:
    return [
        "compare", *trial.methods, *split_of(images), "--devices", "phones", *trial.flags, "--rounds", str(ROUNDS),
        "--target", str(TARGET), "--seeds", ",".join(map(str, SEEDS)), "--workers", "1", "--quiet",
        "--out", str(folder),
    ]  # fmt: skip


def split_of(images: Path) -> list[str]:
    return ["--data", str(images), "--clients", str(CLIENTS), "--partition", PARTITION]


# Tables


def tables(images: Path, out: Path) -> Iterator[str]:
    yield from conditions_table(out)
    yield ""
    yield from clusters_table(images, out)


Reading = Callable[[RunResult], float]


def conditions_table(out: Path) -> Iterator[str]:
    """What each method needs to the target, and what is lost where clients leave or are away."""
    yield (
        "| clients | method | accuracy % | − all are there | balanced % | seconds in all | seconds to target | "
        "− FedAvg's | WAN to target, MB | LAN to target, MB | GMACs to target | rounds to target | left, % of orders | "
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
    reached = [target_of(out, trial, method, run.seed) for run in runs]
    flat = [target_of(out, trial, FEDAVG, run.seed) for run in runs]
    clocks = [clock_of(run) for run in runs]
    left = fmean(clock.dropped / clock.asked for clock in clocks)
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
        f"{100 * left:.1f}",
        f"{fmean(clock.wasted_bytes for clock in clocks) / 1e6:.1f}",
        f"{fmean(clock.wasted_macs for clock in clocks) / 1e9:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def clusters_table(images: Path, out: Path) -> Iterator[str]:
    yield "| clusters | distance of their labels | accuracy % | − by labels | balanced % | seconds to target | rounds |"
    yield "|---" * 7 + "|"
    for trial in CLUSTERS:
        runs = finished(out, trial, HFL_EXACT)
        if not runs:
            yield f"| {trial.title} | not run |" + " |" * 5
            continue
        against_labels = difference(finished(out, BY_LABELS, HFL_EXACT), runs, accuracy)
        if trial is BY_LABELS:
            against_labels = ""
        reached = [target_of(out, trial, HFL_EXACT, run.seed) for run in runs]
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
    """The mean over the clusters of a run's last clustering; the counts are those of all samples."""
    counts = label_counts(images, run.seed)
    population = sum_of(counts)
    distances = []
    for cluster in run.clusters or ():
        together = sum_of(counts[client] for client in cluster.members)
        distances.append(distance(together, population))
    return fmean(distances)


def label_counts(images: Path, seed: int) -> list[tuple[int, ...]]:
    words = ["data", "show", str(images), *split_of(images)[2:], "--seed", str(seed), "--json"]
    shown = subprocess.run([sys.executable, "-m", "fedloom", *words], check=True, capture_output=True)
    return [tuple(client["counts"]) for client in json.loads(shown.stdout)["clients"]]


# Readings


def finished(out: Path, trial: Trial, method: str) -> list[RunResult]:
    return Runs(out / trial.name).of(method)


def clock_of(run: RunResult) -> Simulated:
    assert run.simulated is not None
    return run.simulated


def name_of(method: str) -> str:
    return method.partition(":")[0]


def accuracy(run: RunResult) -> float:
    return points(run, "accuracy")


def balanced(run: RunResult) -> float:
    return points(run, "balanced_accuracy")


def points(run: RunResult, figure: str) -> float:
    """The mean over clients."""
    mean = run.spread_of(figure).mean
    assert mean is not None, f"{figure} of seed {run.seed}"
    return 100 * mean


def target_of(out: Path, trial: Trial, method: str, seed: int) -> Target | None:
    rows = read_rows(out / trial.name / f"{folder_name(method)}-seed{seed}" / METRICS_FILE)
    return first_reached(rows, TARGET, METRICS["accuracy"])


def mean_of(runs: Sequence[RunResult], reading: Reading) -> str:
    return f"{fmean(map(reading, runs)):.1f}"


def to_target(reached: Sequence[Target | None], reading: Callable[[Target], float], digits: int) -> str:
    """The mean; if some run did not reach it, how many did."""
    known = [reading(target) for target in reached if target is not None]
    if len(known) < len(reached):
        return f"reached by {len(known)} of {len(reached)}"
    return f"{fmean(known):.{digits}f}"


def difference(before: Sequence[RunResult], after: Sequence[RunResult], reading: Reading) -> str:
    if [run.seed for run in before] != [run.seed for run in after]:
        return "not all seeds are there"
    return told(list(map(reading, before)), list(map(reading, after)), 1)


def seconds_saved(flat: Sequence[Target | None], reached: Sequence[Target | None]) -> str:
    before = [target.seconds for target in flat if target is not None]
    after = [target.seconds for target in reached if target is not None]
    if len(before) < len(flat) or len(after) < len(reached) or before == after:
        return ""
    return told(before, after, 0)


def told(before: Sequence[float], after: Sequence[float], digits: int) -> str:
    pair = paired(before, after)
    if pair.low is None or pair.high is None:
        return f"{pair.difference:+.{digits}f}"
    return f"{pair.difference:+.{digits}f} [{pair.low:+.{digits}f}, {pair.high:+.{digits}f}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
