"""Is a network's latency the sum of its operations' latencies?

    python bench/bench_profile.py

For twelve architectures of each of four sizes, every operation of the space is timed as
`fedloom profile` does it (one call per turn, all of them in turns, so that caches are as cold as
inside a network) and alone (called over and over, caches warm), and the whole cut networks in the
same turns. Times are the thread's own, for one sample and one thread. A ratio of 1 means that the
sum is right; a limit only needs the order to be right, so the rank correlation is given too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from scipy.stats import spearmanr

from fedloom.cost.steps import Piece, Steps, model_of
from fedloom.cost.timing import in_turns
from fedloom.nets.model import Model
from fedloom.options import as_before
from fedloom.rng import rng
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task
from measuring import heading, verdict

REPEATS = 50
ARCHITECTURES = 12


@dataclass(frozen=True)
class Size:
    """A search space at one size, and the images that its networks take."""

    space: str
    ops: str
    cells: int
    nodes: int
    channels: int
    shape: tuple[int, int, int]

    def __str__(self) -> str:
        _, height, width = self.shape
        cells = f"{self.cells} cells, {self.channels} channels"
        return f"{self.space} {self.ops}, {cells}, {height}×{width}"


SIZES = (
    Size("darts", "full", cells=3, nodes=2, channels=4, shape=(1, 8, 8)),
    Size("darts", "full", cells=8, nodes=4, channels=16, shape=(3, 32, 32)),
    Size("darts", "s2", cells=8, nodes=4, channels=16, shape=(3, 32, 32)),
    Size("nasbench201", "full", cells=5, nodes=4, channels=16, shape=(3, 32, 32)),
)


def main() -> None:
    heading(f"Latency of {ARCHITECTURES} networks as the sum of their operations")
    ratios = []
    for size in SIZES:
        latencies = measured(size)
        print_line(size, latencies)
        ratios.append(median(latencies.ratios_in_turns))
    range_of_ratios = f"{min(ratios):.2f} to {max(ratios):.2f}"
    verdict(
        "median ratio of the sum to the network",
        range_of_ratios,
        "0.85 to 1.15",
        0.85 <= min(ratios) <= max(ratios) <= 1.15,
    )


@dataclass(frozen=True)
class Latencies:
    """Milliseconds of the sampled networks, in the order in which they were sampled."""

    operations: int  # how many different ones the space has at this size
    whole: list[float]
    summed_in_turns: list[float]  # of operations that were timed in turns with the networks
    summed_alone: list[float]  # of operations that were timed alone

    @property
    def ratios_in_turns(self) -> list[float]:
        return ratios_of(self.summed_in_turns, self.whole)

    @property
    def ratios_alone(self) -> list[float]:
        return ratios_of(self.summed_alone, self.whole)


def measured(size: Size) -> Latencies:
    zeros = (0.0,) * size.shape[0]
    ones = (1.0,) * size.shape[0]
    steps = Steps(supernet_of(size))
    archs = [steps.net.space.sample(rng(seed, "bench")) for seed in range(ARCHITECTURES)]
    networks = [Model(steps.net.cut(arch), zeros, ones).eval() for arch in archs]
    image = torch.rand(1, *size.shape)

    pieces = sorted(steps.all_pieces())
    calls: list[Callable[[], object]] = []
    for piece in pieces:
        example = steps.examples[piece]
        calls.append(partial(example.work, *steps.tensors(example.inputs)))
    for network in networks:
        calls.append(partial(network, image))
    milliseconds = milliseconds_of(calls)

    in_turns_ms: dict[Piece, float] = {}
    alone_ms: dict[Piece, float] = {}
    for place, piece in enumerate(pieces):
        in_turns_ms[piece] = milliseconds[place]
        alone_ms[piece] = milliseconds_of([calls[place]])[0]

    summed_in_turns = []
    summed_alone = []
    for arch in archs:
        counts = steps.of(arch)
        summed_in_turns.append(total_of(counts, in_turns_ms))
        summed_alone.append(total_of(counts, alone_ms))
    whole = milliseconds[len(pieces) :]
    return Latencies(len(pieces), whole, summed_in_turns, summed_alone)


def supernet_of(size: Size) -> Model:
    options = {
        "space": size.space,
        "ops": size.ops,
        "cells": size.cells,
        "nodes": size.nodes,
        "channels": size.channels,
    }
    zeros = (0.0,) * size.shape[0]
    ones = (1.0,) * size.shape[0]
    task = Task("bench", options, "image", size.shape, tuple("0123456789"), 0, zeros, ones)
    space_options = SpaceOptions.model_validate(as_before(SpaceOptions, options))
    model = model_of(task, space_options.searched(task))
    assert model is not None
    return model


def milliseconds_of(calls: Sequence[Callable[[], object]]) -> list[float]:
    timings = in_turns(calls, REPEATS, "cpu", no_progress)
    return [timing.ms for timing in timings]


def no_progress(what: str, done: int, total: int) -> None:
    pass


def total_of(counts: Mapping[Piece, int], milliseconds: Mapping[Piece, float]) -> float:
    """The latency of a network as the sum over its operations."""
    return sum(count * milliseconds[piece] for piece, count in counts.items())


def ratios_of(sums: Sequence[float], whole: Sequence[float]) -> list[float]:
    return [total / network for total, network in zip(sums, whole, strict=True)]


def print_line(size: Size, latencies: Latencies) -> None:
    ratios = latencies.ratios_in_turns
    alone = latencies.ratios_alone
    correlation = spearmanr(latencies.summed_in_turns, latencies.whole).statistic
    print(
        f"{size}: {latencies.operations} operations; whole {median(latencies.whole):.2f} ms; "
        f"sum/whole in turns {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}), "
        f"alone {median(alone):.2f}; rank correlation {correlation:.2f}"
    )


if __name__ == "__main__":
    main()
