"""The simple job, FedAvg of the small CNN on CIFAR-10-like images, and what all its versions share.

100 clients have 80 training images of 3×32×32 each. Ten of them take part per round, with batches
of 20 and one epoch: 40 steps per round. Every version is a separate process (`job_*.py`) that
computes as many rounds as it is asked to and reports when they are done. `Lane` in measuring.py
asks and measures.

This module is also imported where FedLoom's own dependencies are not installed: it needs only torch
and numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.cnn import SmallCNN
from fedloom.nets.model import Model

SHAPE = (3, 32, 32)
CLASSES = 10
CLIENTS = 100
COHORT = 10  # clients a round
TRAIN = 80  # samples of a client to train on
SAMPLES = 100  # of a client; FedLoom keeps a fifth for testing, so that exactly 80 remain
BATCH = 20
STEPS = COHORT * TRAIN // BATCH  # a round
LR = 0.05
MOMENTUM = 0.9
WEIGHT_DECAY = 3e-4
CLIP = 5.0

DONE = "rounds done"  # what a process says when it has computed what it was told to


class Finished(Exception):
    """Raised when no more rounds are wanted."""


class Conductor:
    """Tells a process of the job how many rounds to compute before it waits again."""

    def __init__(self) -> None:
        self.rounds_left = 0

    def before_first_round(self) -> None:
        self._wait()

    def after_round(self) -> None:
        self.rounds_left -= 1
        if self.rounds_left > 0:
            return
        print(DONE, flush=True)
        self._wait()

    def _wait(self) -> None:
        line = sys.stdin.readline()
        if not line:
            raise Finished
        self.rounds_left = int(line)


class Images:
    """The training images of every client, in memory."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.x = torch.from_numpy(arrays["x"])
            self.y = torch.from_numpy(arrays["y"].astype(np.int64))

    def of_client(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        begin = client * SAMPLES
        return self.x[begin : begin + TRAIN], self.y[begin : begin + TRAIN]


def network() -> Model:
    """The network with its normalisation, in torch's default layout."""
    return Model(SmallCNN(SHAPE, CLASSES), [127.5] * 3, [127.5] * 3)


def channels_last(net: nn.Module) -> None:
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs do not know it


def train_client(
    net: nn.Module, weights: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> float:
    """A client's work, written with plain torch; returns the mean loss."""
    net.load_state_dict(weights)
    net.train()
    optimizer = torch.optim.SGD(
        net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    total = 0.0
    for chosen in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x[chosen]), y[chosen])
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        total += loss.item() * len(chosen)
    return total / len(y)
