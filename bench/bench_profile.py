"""Is a network's latency the sum of its operations' latencies?

For twelve architectures of each of four sizes, every operation of the space is timed as
`fedloom profile` does it (one call per turn, all of them in turns, so that caches are as cold as
inside a network) and alone (called over and over, caches warm), and the whole cut networks in the
same turns. Times are the thread's own, for one sample and one thread. A ratio of 1 means that the
sum is right; a limit only needs the order to be right, so the rank correlation is given too.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import torch
from scipy.stats import spearmanr

from fedloom.cost.steps import Steps, model_of
from fedloom.cost.timing import in_turns
from fedloom.nets.model import Model
from fedloom.options import as_before
from fedloom.rng import rng
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task
from measuring import heading, verdict

REPEATS = 50
ARCHITECTURES = 12
SIZES = (  # space, op set, cells, nodes, channels, shape
    ("darts", "full", 3, 2, 4, (1, 8, 8)),
    ("darts", "full", 8, 4, 16, (3, 32, 32)),
    ("darts", "s2", 8, 4, 16, (3, 32, 32)),
    ("nasbench201", "full", 5, 4, 16, (3, 32, 32)),
)


def quiet(what: str, done: int, total: int) -> None:
    pass


def one(
    space: str, ops: str, cells: int, nodes: int, channels: int, shape: tuple[int, ...]
) -> float:
    """Print a line, and return the median ratio of the sum in turns to the whole network."""
    options = {"space": space, "ops": ops, "cells": cells, "nodes": nodes, "channels": channels}
    zeros = (0.0,) * shape[0]
    ones = (1.0,) * shape[0]
    task = Task("bench", options, "image", shape, tuple("0123456789"), 0, zeros, ones)
    model = model_of(
        task, SpaceOptions.model_validate(as_before(SpaceOptions, options)).searched(task)
    )
    assert model is not None
    steps = Steps(model)
    archs = [steps.net.space.sample(rng(seed, "bench")) for seed in range(ARCHITECTURES)]
    cuts = [Model(steps.net.cut(arch), zeros, ones).eval() for arch in archs]
    pieces = sorted(steps.all_pieces())
    image = torch.rand(1, *shape)
    works = [
        partial(steps.examples[piece][0], *steps.tensors(steps.examples[piece][1]))
        for piece in pieces
    ]
    milliseconds = [
        took.ms
        for took in in_turns(
            [*works, *(partial(cut, image) for cut in cuts)], REPEATS, "cpu", quiet
        )
    ]
    turns = dict(zip(pieces, milliseconds, strict=False))
    alone = {
        piece: in_turns([work], REPEATS, "cpu", quiet)[0].ms
        for piece, work in zip(pieces, works, strict=True)
    }
    counts = [steps.of(arch) for arch in archs]
    whole = milliseconds[len(pieces) :]
    sums = [
        [sum(n * times[piece] for piece, n in count.items()) for count in counts]
        for times in (turns, alone)
    ]
    ratios = [[total / real for total, real in zip(row, whole, strict=True)] for row in sums]
    order = spearmanr(sums[0], whole).statistic
    low = min(ratios[0])
    high = max(ratios[0])
    print(
        f"{space} {ops}, {cells} cells, {channels} channels, {shape[1]}×{shape[2]}: {len(pieces)} "
        f"operations; whole "
        f"{median(whole):.2f} ms; sum/whole in turns {median(ratios[0]):.2f} "
        f"({low:.2f}–{high:.2f}), "
        f"alone {median(ratios[1]):.2f}; rank correlation {order:.2f}"
    )
    return median(ratios[0])


def main() -> None:
    heading(f"Latency of {ARCHITECTURES} networks as the sum of their operations")
    ratios = [one(*size) for size in SIZES]
    range_of_ratios = f"{min(ratios):.2f} to {max(ratios):.2f}"
    verdict(
        "median ratio of the sum to the network",
        range_of_ratios,
        "0.85 to 1.15",
        0.85 <= min(ratios) <= max(ratios) <= 1.15,
    )


if __name__ == "__main__":
    main()
