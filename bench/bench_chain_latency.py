"""Is the latency of a path through a chain the sum of its layers' latencies?

    python bench/bench_chain_latency.py

Limits of tiers in milliseconds assume that it is.

For twelve paths of each of FedorAS's spaces, every operation at every layer's size is timed as
`fedloom profile` does it, and so are the whole cut networks, in the same turns: a busy machine
disturbs both equally. Times are the thread's own, for one sample and one thread. A ratio of 1 means
that the sum is right; a limit may rely on 0.9 to 1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from scipy.stats import spearmanr

from fedloom.cost.latencies import operation_latencies
from fedloom.cost.profile import Entry, Profile, this_machine
from fedloom.cost.steps import Steps
from fedloom.cost.timing import in_turns
from fedloom.nets.model import Model
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.mixed import model_of_space
from fedloom.types import Task
from measuring import heading, verdict

REPEATS = 50
PATHS = 12
SPACES = ("cnn-l", "cnn-s", "rnn")


def main() -> None:
    heading(f"Latency of {PATHS} paths as the sum over their layers")
    ratios = []
    for name in SPACES:
        latencies = measured(name)
        print_line(name, latencies)
        ratios.append(median(latencies.ratios))
    range_of_ratios = f"{min(ratios):.2f} to {max(ratios):.2f}"
    verdict(
        "median ratio of the sum to the network",
        range_of_ratios,
        "0.90 to 1.10",
        0.9 <= min(ratios) <= max(ratios) <= 1.1,
    )


@dataclass(frozen=True)
class Latencies:
    """Milliseconds of the sampled paths, in the order in which they were sampled."""

    operations: int  # how many different ones the space has
    whole: list[float]
    summed: list[float]

    @property
    def ratios(self) -> list[float]:
        return [total / whole for total, whole in zip(self.summed, self.whole, strict=True)]


def measured(name: str) -> Latencies:
    model = supernet(name).eval()
    steps = Steps(model)
    net = steps.net
    sample = torch.rand(1, *net.shape)
    pieces = sorted(steps.all_pieces())
    archs = [net.space.sample(rng(seed, "bench")) for seed in range(PATHS)]

    calls: list[Callable[[], object]] = []
    for piece in pieces:
        example = steps.examples[piece]
        calls.append(partial(example.work, *steps.tensors(example.inputs)))
    for arch in archs:
        network = Model(net.cut(arch), (), ())
        network.mean = model.mean
        network.std = model.std
        calls.append(partial(network.eval(), sample))
    timings = in_turns(calls, REPEATS, "cpu", no_progress)

    entries = []
    for piece, timing in zip(pieces, timings, strict=False):  # the networks' times come after
        entries.append(Entry(**piece._asdict(), **timing._asdict(), repeats=REPEATS))
    profile = Profile(machine=this_machine("cpu"), made="now", entries=tuple(entries))
    costs = operation_latencies(model, profile)
    summed = []
    for arch in archs:
        operations = [ops[0] for ops in arch.choice]
        summed.append(costs.of(operations))
    whole = [timing.ms for timing in timings[len(pieces) :]]
    return Latencies(len(pieces), whole, summed)


def supernet(name: str) -> Model:
    space = open_space(name)
    example = space.example
    channels = 0
    if len(example.shape) == 3:
        channels = example.shape[0]
    labels = tuple(str(label) for label in range(example.classes))
    mean = (0.0,) * channels
    std = (1.0,) * channels
    task = Task("bench", {}, space.kinds[0], example.shape, labels, 0, mean, std)
    return model_of_space(task, space, space.usual, affine=True)


def no_progress(what: str, done: int, total: int) -> None:
    pass


def print_line(name: str, latencies: Latencies) -> None:
    ratios = latencies.ratios
    correlation = spearmanr(latencies.summed, latencies.whole).statistic
    print(
        f"{name}: {latencies.operations} operations; whole {median(latencies.whole):.2f} ms; "
        f"sum/whole {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}); "
        f"rank correlation {correlation:.2f}"
    )


if __name__ == "__main__":
    main()
