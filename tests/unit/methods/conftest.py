"""Federations whose rounds can be followed by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedloom.data.samples import ClientData, Samples
from fedloom.testing import Toy, Trace

PLAIN = {
    "network": f"{Path(__file__).parent}/linear.py:Zero",
    "batch": 8,
    "lr": 0.5,
    "schedule": "constant",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "clip": 1e9,
    "bn": "frozen",
}

Client = tuple[list[tuple[float, float]], list[int]]


@pytest.fixture
def by_hand(tmp_path) -> Callable[..., Trace]:
    """Runs a method on clients with a few given samples: full batch, plain SGD, zero weights."""

    def run(method: str, *clients: Client, rounds: int = 1, **options) -> Trace:
        toy = Toy.of(method, {**PLAIN, **options}, rounds)
        task = replace(toy.task, shape=(1, 1, 2), labels=("no", "yes"), mean=(0.0,), std=(1.0,))
        data = tuple(client_of(*client) for client in clients)
        return replace(toy, task=task, data=data, participation=1.0).run(tmp_path)

    return run


def client_of(x: list[tuple[float, float]], y: list[int]) -> ClientData:
    samples = Samples(torch.tensor(x, dtype=torch.float32).view(-1, 1, 1, 2), torch.tensor(y))
    return ClientData(samples, samples, samples)


@pytest.fixture
def one() -> Client:
    """From zero weights both classes have probability ½: ∇F = [(−½, 0), (½, 0)]."""
    return [(1, 0), (1, 0)], [0, 0]


@pytest.fixture
def two() -> Client:
    """∇F = mean of [(0, 1), (0, −1)] and [(0, 2), (0, −2)] = [(0, 1.5), (0, −1.5)]."""
    return [(0, 2), (0, 4), (0, 2), (0, 4)], [1, 1, 1, 1]
