"""Evidence for FINCH: comparisons that can be interrupted, and the tables made of them.

    python bench/evidence_finch.py run --images images.npz --out evidence
    python bench/evidence_finch.py plan --images images.npz --out evidence
    python bench/evidence_finch.py tables --images images.npz --out evidence > tables.md

The images are the first 4,000 of CIFAR-10's `data_batch_1` at half their side
(docs/results/clock.md). Comparisons run in order of importance; a finished one is not run again,
and an interrupted one is resumed. `--only NAME` (repeatable) runs some of them.

corners     Table 3: clusters or none, one sub-space or one each; other clusters; a random group.
            Equal rounds
seconds     the same four corners, with as many simulated seconds as the first
allocation  Algorithm 3, by chance, the other way round, where clusters differ in their labels
rivals-wan, rivals-bytes
            FINCH, FedNAS, DecNAS, OneNAS, HFL with a CNN and with a ResNet-18, for as many bytes
            (WAN, or all)
skew        Figures 8 and 9: how the gain over FedNAS, for as many bytes, grows with the skew
noise       clusters by noisy label counts and by updates, one seed
dropout, duty
            30 % leave during their work; 60 s available and 30 s not; one seed

`distances` needs no runs: it shows how far clusters' labels are from the population's, depending on
the label counts that clients report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from comparisons import (
    Trial,
    accuracy,
    balanced,
    carry_out,
    clock_of,
    difference,
    finished,
    mean_of,
    target_of,
    to_target,
)
from fedloom.config.histograms import HistogramRule
from fedloom.data.sources import Source, open_source
from fedloom.data.split import Split, make_split
from fedloom.federation.protocol.clustering import (
    Cluster,
    alike_clusters,
    label_clusters,
    random_clusters,
    with_levels,
)
from fedloom.federation.protocol.histograms import histogram_of, simulated_secret
from fedloom.records.comparison import folder_name
from fedloom.records.result import RunResult
from fedloom.records.rows import METRICS_FILE, read_rows
from fedloom.rng import rng

ROUNDS = 16
TARGET = 0.25  # accuracy on validation data
SEEDS = (0, 1, 2)
DISTANCE_SEEDS = range(20)
# The paper's 4 cells a group; fewer nodes, channels, copies and iterations, so that a run takes
# minutes. At the usual rate of α (3e-4) some fifty steps leave the architecture to the first draw.
SIZE = "nodes=1,channels=8,batch=20,alpha_lr=0.01"
WORK = "batch=20,lambda1=3"
GROUP = f"nodes=1,channels=8,stack=2,pretrain=6,{WORK}"
# FedNAS's cells in a network as deep as the stacked group, with as many steps a round.
FEDNAS = f"fednas:cells=8,epochs=3,bn=received,{SIZE}"
# Three of four clients in each round, so that there are three clusters of ten.
FORTY = ("--clients", "40", "--participation", "0.75", "--partition", "dominant:0.4")
SKEWED = ("--clients", "30", "--partition", "dirichlet:0.2", "--min-samples", "40")


def finch(options: str = "", size: int = 10, histograms: str = "exact") -> str:
    variant = f"finch:cluster_size={size},histograms={histograms},alpha_lr=0.01,{GROUP}"
    if options:
        return f"{variant},{options}"
    return variant


CORNERS = (
    finch(),
    finch("spaces=same"),
    finch("clustering=none"),
    finch("clustering=none,spaces=same"),
)
HFL = f"hfl:cluster_size=10,histograms=exact,bn=received,{WORK}"
RIVALS = (
    finch(),
    FEDNAS,
    f"decnas:{GROUP}",
    f"onenas:{GROUP}",
    f"{HFL},width=1.25",  # about the MACs of the networks that FINCH finds
    f"{HFL},network=resnet18,width=0.125",
)


@dataclass(frozen=True)
class Setting:
    """A trial with its split, and its number of seeds."""

    trial: Trial
    split: tuple[str, ...] = FORTY
    seeds: tuple[int, ...] = SEEDS


def skewed_by(partition: str, name: str) -> Setting:
    trial = Trial(name, partition, (finch(), FEDNAS), ("--equal", "bytes"))
    return Setting(trial, ("--clients", "40", "--participation", "0.75", "--partition", partition))


SETTINGS = (
    Setting(
        Trial(
            "corners",
            "equal rounds",
            (*CORNERS, finch("clustering=random"), finch("clustering=alike")),
        )
    ),
    Setting(
        Trial(
            "allocation",
            "dirichlet:0.2, clusters of 5",
            (
                finch("", 5),
                finch("allocation=random", 5),
                finch("allocation=reverse", 5),
                finch("search=random", 5),
            ),
        ),
        SKEWED,
    ),
    Setting(Trial("seconds", "equal simulated seconds", CORNERS, ("--equal", "seconds"))),
    Setting(Trial("rivals-wan", "equal bytes over the WAN", RIVALS, ("--equal", "wan"))),
    Setting(Trial("rivals-bytes", "equal bytes in all", RIVALS, ("--equal", "bytes"))),
    skewed_by("dominant:0.2", "skew-0.2"),
    skewed_by("dominant:0.8", "skew-0.8"),
    Setting(
        Trial(
            "noise",
            "noisy label counts, and none at all (clusters by updates)",
            (finch(histograms="laplace:0.1"), finch(histograms="none")),
        ),
        seeds=(0,),
    ),
    Setting(
        Trial("dropout", "30 % leave during their work", (finch(),), ("--dropout", "0.3")),
        seeds=(0,),
    ),
    Setting(
        Trial("duty", "60 s available, 30 s not", (finch(),), ("--availability", "duty:60,30")),
        seeds=(0,),
    ),
)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for FINCH")
    parser.add_argument("command", choices=["run", "plan", "tables", "distances"])
    parser.add_argument("--images", type=Path, required=True, help="the .npz file of images")
    parser.add_argument("--out", type=Path, required=True, help="folder of all comparisons")
    names = [setting.trial.name for setting in SETTINGS]
    parser.add_argument("--only", action="append", choices=names, help="repeatable")
    arguments = parser.parse_args(argv)
    only = arguments.only or names
    chosen = [setting for setting in SETTINGS if setting.trial.name in only]
    if arguments.command == "tables":
        print("\n".join(tables(chosen, arguments.out, open_source(str(arguments.images)))))
        return 0
    if arguments.command == "distances":
        print("\n".join(distances(arguments.images)))
        return 0
    worst = 0
    for setting in chosen:
        folder = arguments.out / setting.trial.name
        command = command_of(setting, arguments.images)
        if arguments.command == "plan":
            print("fedloom", *command, "--out", folder)
        else:
            worst = max(worst, carry_out(command, folder))
    return worst


def command_of(setting: Setting, images: Path) -> list[str]:
    trial = setting.trial
    return [
        "compare",
        *trial.methods,
        "--data",
        str(images),
        *setting.split,
        "--devices",
        "phones",
        *trial.flags,
        "--rounds",
        str(ROUNDS),
        "--evaluate-every",
        "2",
        "--target",
        str(TARGET),
        "--seeds",
        ",".join(map(str, setting.seeds)),
        "--workers",
        "1",
        "--quiet",
    ]


# Distances of clusters (Eq. 6)


def distances(images: Path) -> Iterator[str]:
    """The distances of clusters' true labels, whatever label counts clients reported."""
    yield "| clusters of 10 of 30 active clients | mean distance | largest |"
    yield "|---|---|---|"
    source = open_source(str(images))
    levels_by_name: dict[str, list[float]] = {}
    for seed in DISTANCE_SEEDS:
        split = make_split(source, 40, "dominant:0.4", seed)
        active = rng(seed, "active").choice(40, size=30, replace=False).tolist()
        counts = label_counts(source, split, active)
        for name, clusters in clusterings(source, split, seed, active).items():
            levels_by_name.setdefault(name, []).extend(levels_of(clusters, counts))
    for name, levels in levels_by_name.items():
        yield f"| {name} | {fmean(levels):.3f} | {max(levels):.3f} |"


def clusterings(
    source: Source, split: Split, seed: int, active: Sequence[int]
) -> dict[str, list[Cluster]]:
    """The active clients in clusters, by the name of what the clusters were made by."""
    clusterings = {"single clients": [Cluster((client,)) for client in active]}
    clusterings["at random"] = random_clusters(active, 10, rng(seed, "clusters"))
    for histograms in ("laplace:0.03", "laplace:0.1", "laplace:1", "exact"):
        rule = HistogramRule.parse(histograms)
        reported = {}
        for client in active:
            labels = labels_of(source, split, client)
            secret = simulated_secret(seed, client)
            reported[client] = histogram_of(labels, source.labels, rule, secret)
        clusters = label_clusters(reported, 10, rng(seed, "clusters"))
        clusterings[f"by labels, {histograms}"] = clusters
    counts = label_counts(source, split, active)
    clusterings["alike, exact"] = alike_clusters(counts, 10, rng(seed, "clusters"))
    return clusterings


def levels_of(clusters: Sequence[Cluster], counts: Mapping[int, Sequence[int]]) -> list[float]:
    """The distances of the clusters' true labels to those of the population."""
    levels = []
    for cluster in with_levels(clusters, counts):
        if cluster.level is not None:
            levels.append(cluster.level)
    return levels


def label_counts(source: Source, split: Split, clients: Iterable[int]) -> dict[int, list[int]]:
    """How many training samples of each label these clients truly have."""
    counts = {}
    for client in clients:
        labels = labels_of(source, split, client)
        counts[client] = np.bincount(labels, minlength=10).tolist()
    return counts


def labels_of(source: Source, split: Split, client: int) -> np.ndarray:
    """The labels of a client's training samples."""
    samples, _ = split.client(client)
    labels: np.ndarray = source.y[samples]
    return labels


# Tables


def tables(settings: Sequence[Setting], out: Path, source: Source) -> Iterator[str]:
    for setting in settings:
        yield f"### {setting.trial.name}: {setting.trial.title}"
        yield ""
        yield from table_of(setting.trial, out, source)
        yield ""


def table_of(trial: Trial, out: Path, source: Source) -> Iterator[str]:
    yield (
        "| method | seeds | accuracy % | − the first | balanced % | supernet % | distance | "
        "params k | "
        "MACs k | rounds | seconds | WAN MB | all MB | GMACs | seconds to target | WAN to target, "
        "MB |"
    )
    yield "|---" * 16 + "|"
    first = finished(out, trial, trial.methods[0])
    for method in trial.methods:
        runs = finished(out, trial, method)
        if not runs:
            yield f"| {method} | not run |" + " |" * 14
            continue
        against_first = ""
        if method != trial.methods[0]:
            against_first = difference(first, runs, accuracy)
        reached = [target_of(out, trial, method, run.seed, TARGET) for run in runs]
        cells = [
            method,
            str(len(runs)),
            mean_of(runs, accuracy),
            against_first,
            mean_of(runs, balanced),
            supernet(runs),
            distance_in(out, trial, method, runs, source),
            f"{fmean(size_of(run) for run in runs) / 1e3:.1f}",
            f"{fmean(macs_of(run) for run in runs) / 1e3:.0f}",
            f"{fmean(run.rounds for run in runs):.0f}",
            f"{fmean(clock_of(run).seconds for run in runs):.0f}",
            f"{fmean(wan_of(run) for run in runs) / 1e6:.1f}",
            f"{fmean(wan_of(run) + lan_of(run) for run in runs) / 1e6:.1f}",
            f"{fmean((run.macs or 0) + run.server_macs for run in runs) / 1e9:.0f}",
            to_target(reached, lambda target: target.seconds, 0),
            to_target(reached, lambda target: target.wan / 1e6, 1),
        ]
        yield "| " + " | ".join(cells) + " |"


def supernet(runs: Sequence[RunResult]) -> str:
    """The figure of the search's last round, before a network was cut out or stacked."""
    figures = []
    for run in runs:
        for stage in run.stages:
            if stage.stage == "search" and stage.figure is not None:
                figures.append(100 * stage.figure)
    if len(figures) < len(runs):
        return ""
    return f"{fmean(figures):.1f}"


def distance_in(
    out: Path, trial: Trial, method: str, runs: Sequence[RunResult], source: Source
) -> str:
    """The distance of clusters' true labels to the population's (Eq. 6).

    It is the mean over clusters and rounds of the search.
    """
    levels = []
    for run in runs:
        folder = out / trial.name / f"{folder_name(method)}-seed{run.seed}"
        split = Split.load(folder / "split.json")
        counts = label_counts(source, split, range(len(split)))
        for row in read_rows(folder / METRICS_FILE):
            if row.stage == "search":
                clusters = [Cluster(tuple(cluster.members)) for cluster in row.clusters or ()]
                levels += levels_of(clusters, counts)
    if not levels:
        return ""
    return f"{fmean(levels):.3f}"


def size_of(run: RunResult) -> float:
    return fmean(client.params for client in run.clients if client.params is not None)


def macs_of(run: RunResult) -> float:
    return fmean(client.macs for client in run.clients if client.macs is not None)


def wan_of(run: RunResult) -> float:
    return run.traffic.down + run.traffic.up


def lan_of(run: RunResult) -> float:
    return run.traffic.lan_down + run.traffic.lan_up


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
