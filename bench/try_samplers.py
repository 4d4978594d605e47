"""Which settings keep FedPNAS's samplers from sending all samples one way, or choosing nothing?

    python bench/try_samplers.py --digits mnist14.npz

One client has 1,600 digits, every second one rotated by a quarter turn. It trains `stacks:2:1:1`
with 8 channels for 12 rounds of 25 steps of `ca-feddsnas`, and is judged on 500 validation samples:
settings are not chosen on test data. A setting is good if samplers are certain (low entropy), if
samples take several paths, and if a sample does worse on another one's path (shuffled).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method
from fedloom.methods import stages
from fedloom.runs.configure import resolve_options
from fedloom.searchers.gumbel import annealed
from fedloom.types import Order, Setup, State, Task

ROUNDS = 12
TRAINING = 1600
HELD_OUT = 500  # validation samples
SEEDS = (0, 1)
SIZE = {"base_cells": 2, "nodes": 1, "channels": 8, "batch": 64, "lr": 0.1}
TAU = 1.0
TAU_END = 0.1


@dataclass(frozen=True)
class Setting:
    alpha_lr: float
    balance: float
    logit_bound: float = 4.0


SETTINGS = (
    Setting(0.05, 0.0),
    Setting(0.01, 0.0),
    Setting(0.003, 0.0),
    Setting(0.0005, 0.0),
    Setting(0.003, 0.2),
    Setting(0.01, 0.03),
    Setting(0.01, 0.1),
    Setting(0.01, 0.2),
    Setting(0.01, 0.5),
    Setting(0.03, 0.2),
    Setting(0.01, 0.2, 2.0),
    Setting(0.01, 0.2, 8.0),
)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="settings of FedPNAS's samplers")
    parser.add_argument("--digits", type=Path, required=True, help="the .npz file of digits")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    digits = np.load(arguments.digits)
    training = half_turned(digits["train_images"][:TRAINING], digits["train_labels"][:TRAINING])
    held_out = half_turned(digits["val_images"][:HELD_OUT], digits["val_labels"][:HELD_OUT])
    print(
        "| alpha_lr | balance | bound | seed | entropy | accuracy % | shuffled % | paths | most "
        "common % |"
    )
    print("|---" * 9 + "|")
    for setting in SETTINGS:
        for seed in SEEDS:
            print(line_of(setting, seed, training, held_out), flush=True)
    return 0


def half_turned(images: np.ndarray, labels: np.ndarray) -> Samples:
    x = torch.from_numpy(images).float().unsqueeze(1)
    x[1::2] = torch.rot90(x[1::2], 1, (2, 3))
    return Samples(x, torch.from_numpy(labels.astype(np.int64)))


def line_of(setting: Setting, seed: int, training: Samples, held_out: Samples) -> str:
    options = {
        **SIZE,
        "alpha_lr": setting.alpha_lr,
        "balance": setting.balance,
        "logit_bound": setting.logit_bound,
    }
    task = Task(
        method="ca-feddsnas",
        options=resolve_options("ca-feddsnas", options),
        kind="image",
        shape=tuple(training.x.shape[1:]),
        labels=tuple("0123456789"),
        seed=seed,
        mean=(float(training.x.mean()),),
        std=(float(training.x.std()),),
    )
    method = stages(task)[0].method
    state = method.init(Setup(task, 1), None)
    entropy = 0.0
    for number in range(ROUNDS):
        state, entropy = after_round(method, task, state, number, training)
    order = Order(0, "evaluate", state.tensors)
    network = method.network(order, training, None, client_of(task, ROUNDS)).eval()
    with torch.no_grad():
        right = network(held_out.x).argmax(dim=1) == held_out.y
    routes = method.routes(network, held_out, task)
    assert routes is not None
    cells = [
        f"{setting.alpha_lr:g}",
        f"{setting.balance:g}",
        f"{setting.logit_bound:g}",
        str(seed),
        f"{entropy:.2f}",
        f"{100 * right.double().mean():.1f}",
        f"{100 * routes['shuffled_accuracy']:.1f}",
        str(routes["routes"]["distinct"]),
        f"{100 * routes['routes']['top'][0]['share']:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def after_round(
    method: Method, task: Task, state: State, number: int, data: Samples
) -> tuple[State, float]:
    """The client's own tensors for the next round, and the entropy of its samplers."""
    progress = number / ROUNDS
    rate = SIZE["lr"] * (1 + np.cos(np.pi * progress)) / 2
    meta = {"lr": float(rate), "tau": annealed(TAU, TAU_END, progress)}
    reply, _ = method.client(
        Order(0, "search", state.tensors, meta), data, None, client_of(task, number)
    )
    return State(reply.tensors, state.meta), reply.meta["entropy"]


def client_of(task: Task, number: int) -> ClientRun:
    return ClientRun(task, "search", number, 0, 0, "cpu", lambda: b"")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
