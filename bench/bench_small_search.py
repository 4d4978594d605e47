"""A search step of the demo: how long it takes, and which calls it consists of.

    python bench/bench_small_search.py [--operators]

The step uses 8×8 grey images, batches of 32, the demo's space and size, one thread and simultaneous
order. Maps of 8×8 to 2×2 are bound by calls, not by arithmetic. A whole step of MiLeNAS (both
passes, clipping, both optimisers) is measured as it is, and with every operation of every edge
called separately, as before spaces/merged.py. Each is measured without a meter of MACs, and under
one that meters every step (as before) or only the first of its kind (as now). All run in turns in
one process; figures are minima in CPU milliseconds. `--operators` counts torch's calls in one step
instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from fedloom.cost.meter import Meter
from fedloom.cost.repeated import KNOWN
from fedloom.data.samples import Samples
from fedloom.learning.optimizers import Adam, Sgd
from fedloom.searchers.milenas import MiLeNAS
from fedloom.spaces import SMALL, merged
from fedloom.spaces.mixed import Mixed, fresh_alpha, supernet_model
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task
from measuring import Timing, heading, self_timed, verdict

BATCH = 32
SHAPE = (1, 8, 8)
STEPS = 12  # per turn
TURNS = 10
TARGET = 0.5


class Search:
    """One client of the demo in the middle of its search."""

    def __init__(self) -> None:
        task = demo_task()
        options = SpaceOptions.model_validate({"space": SMALL, "cells": 3, "channels": 8})
        torch.manual_seed(0)
        net = supernet_model(task, options)
        net.train()
        alpha = {name: row.requires_grad_() for name, row in fresh_alpha(options, 0).items()}
        mixed = Mixed(net, alpha)
        self.searcher = MiLeNAS(
            net,
            alpha,
            mixed.mix_to_train,
            Sgd(dict(net.named_parameters()), 0.1, momentum=0.9, weight_decay=3e-4),
            Adam(alpha, 0.003, betas=(0.5, 0.999), weight_decay=1e-3),
            lam=1.0,
            clip=5.0,
            order="simultaneous",
            forward_both=mixed.mix_both_to_train,
        )
        self.train = batch()
        self.validation = batch()

    def step(self) -> None:
        self.searcher.step(self.train, self.validation)


def demo_task() -> Task:
    labels = tuple(str(digit) for digit in range(10))
    return Task("fednas", {}, "image", SHAPE, labels, seed=0, mean=(0.3,), std=(0.4,))


def batch() -> Samples:
    return Samples(torch.rand(BATCH, *SHAPE), torch.randint(0, 10, (BATCH,)))


@contextmanager
def single_calls() -> Iterator[None]:
    """Inside the block, operations are not merged."""
    most = merged.MOST_ELEMENTS
    merged.MOST_ELEMENTS = 0
    try:
        yield
    finally:
        merged.MOST_ELEMENTS = most


def milliseconds(search: Search, *, merging: bool, metered: bool) -> list[float]:
    """The CPU milliseconds of every step of a turn."""
    times = []
    with ExitStack() as around:
        if not merging:
            around.enter_context(single_calls())
            around.enter_context(KNOWN.none())  # every step was metered
        if metered:
            around.enter_context(Meter())
        search.step()  # warm
        for _ in range(STEPS):
            started = time.process_time()
            search.step()
            times.append(time.process_time() - started)
    return times


def compare() -> None:
    heading("A search step of the demo, CPU ms")
    search = Search()
    measure = partial(milliseconds, search)
    alternatives: dict[str, Callable[[], list[float]]] = {
        "single calls, without a meter": partial(measure, merging=False, metered=False),
        "as it is, without a meter": partial(measure, merging=True, metered=False),
        "single calls, with the meter": partial(measure, merging=False, metered=True),
        "as it is, with the meter": partial(measure, merging=True, metered=True),
    }
    timings = self_timed(alternatives, TURNS)
    for name, timing in timings.items():
        print(f"{name:32} {timing}")
    print()
    for meter in ("without a meter", "with the meter"):
        share = ratio(timings[f"as it is, {meter}"], timings[f"single calls, {meter}"])
        verdict(meter, f"{share:.2f} of single calls", f"{TARGET}", share <= TARGET)


def ratio(ours: Timing, theirs: Timing) -> float:
    return ours.best / theirs.best


def count_operators() -> None:
    search = Search()
    for _ in range(3):
        search.step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        search.step()
    print(
        profiled.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=50
        )
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--operators" in sys.argv[1:]:
        count_operators()
    else:
        compare()
