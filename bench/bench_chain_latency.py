"""Is the latency of a path through a chain the sum of its layers' latencies?

Limits of tiers in milliseconds assume that it is.

For twelve paths of each of FedorAS's spaces, every operation at every layer's size is timed as
`fedloom profile` does it, and so are the whole cut networks, in the same turns: a busy machine
disturbs both equally. Times are the thread's own, for one sample and one thread. A ratio of 1 means
that the sum is right; a limit may rely on 0.9 to 1.1.
"""

from __future__ import annotations

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


def quiet(what: str, done: int, total: int) -> None:
    pass


def supernet(name: str) -> Model:
    space = open_space(name)
    example = space.example
    channels = 0
    if len(example.shape) == 3:
        channels = example.shape[0]
    labels = tuple(str(label) for label in range(example.classes))
    constants = (0.0,) * channels, (1.0,) * channels
    task = Task("bench", {}, space.kinds[0], example.shape, labels, 0, *constants)
    return model_of_space(task, space, space.usual, affine=True)


def one(name: str) -> float:
    """Print a line, and return the median ratio of the sum to the whole network."""
    model = supernet(name).eval()
    steps = Steps(model)
    net = steps.net
    sample = torch.rand(1, *net.shape)
    pieces = sorted(steps.all_pieces())
    works = []
    for piece in pieces:
        work, inputs = steps.examples[piece]
        works.append(partial(work, *steps.tensors(inputs)))
    archs = [net.space.sample(rng(seed, "bench")) for seed in range(PATHS)]
    for arch in archs:
        cut = Model(net.cut(arch), (), ())
        cut.mean = model.mean
        cut.std = model.std
        works.append(partial(cut.eval(), sample))
    times = in_turns(works, REPEATS, "cpu", quiet)
    entries = []
    for piece, timing in zip(pieces, times, strict=False):
        entries.append(Entry(**piece._asdict(), **timing._asdict(), repeats=REPEATS))
    profile = Profile(machine=this_machine("cpu"), made="now", entries=tuple(entries))
    costs = operation_latencies(model, profile)
    sums = [costs.of([ops[0] for ops in arch.choice]) for arch in archs]
    wholes = [timing.ms for timing in times[len(pieces) :]]
    ratios = [total / whole for total, whole in zip(sums, wholes, strict=True)]
    order = spearmanr(sums, wholes).statistic
    print(
        f"{name}: {len(pieces)} operations; whole {median(wholes):.2f} ms; sum/whole "
        f"{median(ratios):.2f} "
        f"({min(ratios):.2f}–{max(ratios):.2f}); rank correlation {order:.2f}"
    )
    return median(ratios)


def main() -> None:
    heading(f"Latency of {PATHS} paths as the sum over their layers")
    ratios = [one(name) for name in SPACES]
    range_of_ratios = f"{min(ratios):.2f} to {max(ratios):.2f}"
    verdict(
        "median ratio of the sum to the network",
        range_of_ratios,
        "0.90 to 1.10",
        0.9 <= min(ratios) <= max(ratios) <= 1.1,
    )


if __name__ == "__main__":
    main()
