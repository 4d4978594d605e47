"""How well does a supernet rank cells after a short federated training?

Two supernets of the NAS-Bench-201 space are trained on CIFAR-10 images spread over clients:
FedNAS's, where every edge is a mixture weighted by α, and one where every batch trains a random
path. Cells drawn from the table are scored by running each alone with the supernet's weights (and
the batch's statistics) on images that no client had. Kendall's τ compares the scores with the
accuracies in the table, which the cells reach when each is trained alone. Counting a cell's
parameters needs no training at all, and is the baseline that a supernet has to beat.

    python bench/rank_supernet.py CIFAR_FOLDER TABLE.csv.gz
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.learning.training import train, weights_of
from fedloom.methods.fednas import Search
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.rng import rng
from fedloom.runs.experiment import create, execute
from fedloom.spaces.mixed import supernet_model
from fedloom.spaces.nasbench201 import NasBench201Cells
from fedloom.spaces.nasbench201.space import from_string
from fedloom.types import Arch, Order, Reply, State, Task

CLIENTS = 8
ROUNDS = 12
EPOCHS = 2
WORKERS = 2
# cells of each of the three stages
CELLS = 1
CHANNELS = 8
BATCH = 64
LR = 0.05
# cells that are scored, and on how many images
SAMPLED = 200
IMAGES = 1000
SEEDS = (0, 1)
TRAINED = "data_batch_1.bin.xz"
UNSEEN = "test_batch.bin.xz"


@dataclass(frozen=True)
class SinglePath(Search):
    """Every batch trains one random cell; α does not change."""

    def client(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, State | None]:
        net = supernet_model(run.task, self.options, weights=order.tensors)
        draws = rng(run.key("paths"))
        space = NasBench201Cells()
        net.register_forward_pre_hook(lambda _, inputs: (*inputs, space.sample(draws)))
        trained = train(net, data, self.options, order.meta["lr"], run)
        tensors = {**order.tensors, **weights_of(net)}
        reply = Reply(order.client, tensors, len(data), {"loss": trained.loss})
        return reply, None


def recipe(kind: type[Search]) -> Recipe:
    """Only the search: no network is derived."""

    def stages(task: Task) -> tuple[Stage, ...]:
        return (Stage("search", kind(FedNASOptions(**task.options))),)

    return Recipe(kind.__name__, FedNASOptions, stages)


mixture = recipe(Search)
single_path = recipe(SinglePath)


def main(data: Path, table: Path) -> None:
    from fedloom.data.readers.cifar import read_files
    from measuring import heading

    heading(f"Ranks of {SAMPLED} cells of NAS-Bench-201")
    rows = sampled(table)
    truth = [float(row["cifar10_test_acc"]) for row in rows]
    source = read_files([data / UNSEEN])
    unseen = Samples(torch.tensor(source.x[:IMAGES]), torch.tensor(source.y[:IMAGES]))
    scores_by_name = {"parameters": [float(row["cifar10_params_M"]) for row in rows]}
    pool = Pool(WORKERS)
    with TemporaryDirectory(dir=".") as folder:
        for method in ("mixture", "single_path"):
            for seed in SEEDS:
                print(f"{method}, seed {seed}")
                task, state = trained(method, Path(folder), data, pool, seed)
                options = FedNASOptions(**task.options)
                net = supernet_model(task, options, weights=state.tensors).train()
                accuracies = []
                minus_losses = []
                for row in rows:
                    score = score_of(net, from_string(row["arch_str"]), unseen)
                    accuracies.append(score.accuracy)
                    minus_losses.append(score.minus_loss)
                scores_by_name[f"{method}, seed {seed}, accuracy"] = accuracies
                scores_by_name[f"{method}, seed {seed}, loss"] = minus_losses
    pool.close()
    print(f"\nAgainst the table's CIFAR-10 test accuracy ({min(truth):.2f} to {max(truth):.2f} %):")
    compare(scores_by_name, truth)


def trained(method: str, folder: Path, data: Path, pool: Pool, seed: int) -> tuple[Task, State]:
    """A supernet after federated training."""
    # imported here, because workers load this file too, to find the recipes
    from measuring import experiment

    options = {
        "space": "nasbench201",
        "cells": CELLS,
        "channels": CHANNELS,
        "epochs": EPOCHS,
        "batch": BATCH,
        "lr": LR,
    }
    config = experiment(
        method=f"{__file__}:{method}",
        seed=seed,
        options=options,
        budget={"rounds": ROUNDS},
        data={"name": TRAINED, "dir": str(data), "clients": CLIENTS, "partition": "dirichlet:0.5"},
    )
    run, prepared = create(config, folder / f"{method}-{seed}")
    started = time.perf_counter()

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.row.round % 5 == 0:
            print(f"  round {event.row.round}: loss {event.row.meta['loss']:.3f}", flush=True)

    execute(run, prepared, pool, listen)
    print(f"  {(time.perf_counter() - started) / 60:.1f} min")
    checkpoint = Archive(run.path).final()
    assert checkpoint is not None
    return prepared.task, checkpoint.state


@dataclass(frozen=True)
class Score:
    """Of one cell with the supernet's weights; more is better."""

    accuracy: float
    minus_loss: float


@torch.no_grad()
def score_of(net: nn.Module, arch: Arch, unseen: Samples) -> Score:
    answers = torch.cat([net(part, arch) for part in unseen.x.split(250)])
    accuracy = (answers.argmax(1) == unseen.y).float().mean().item()
    loss = functional.cross_entropy(answers, unseen.y).item()
    return Score(accuracy, -loss)


def sampled(table: Path) -> list[dict[str, str]]:
    with gzip.open(table, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = rng(0, "cells of the table").choice(len(rows), size=SAMPLED, replace=False)
    return [rows[int(number)] for number in sorted(numbers)]


def compare(scores_by_name: Mapping[str, list[float]], truth: list[float]) -> None:
    from scipy.stats import kendalltau

    by_truth = sorted(range(len(truth)), key=lambda cell: -truth[cell])
    better_half = by_truth[: len(truth) // 2]
    truth_of_half = [truth[cell] for cell in better_half]
    for name, scores in scores_by_name.items():
        tau = kendalltau(scores, truth).statistic
        scores_of_half = [scores[cell] for cell in better_half]
        tau_of_half = kendalltau(scores_of_half, truth_of_half).statistic
        best_cell = scores.index(max(scores))
        print(
            f"  {name:34} τ {tau:+.3f}   better half {tau_of_half:+.3f}   its best cell reaches "
            f"{truth[best_cell]:.2f} %"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
