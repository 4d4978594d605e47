"""Measuring how long functions take: the mean over many turns, and the interquartile range.

The machine is warmed up first, and one thread computes.

In every turn each function is called once, one after the other, in a new order. So each one finds
the caches as cold as inside a network, where other operations ran before it. If operations are
called over and over alone, their times add up to two thirds of their network's; next to others of
their kind, to four fifths in some cases. A busy neighbour process disturbs all functions equally.
On a CPU the thread's own time is measured: time that other programs take does not count. On an idle
machine it equals the wall-clock time.

Means add up: the mean of a network is the sum of its operations' means. Medians do not: if every
operation has a slow turn now and then, most turns of the network contain one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean, quantiles
from typing import NamedTuple

import torch

from fedloom.rng import rng
from fedloom.threads import one_thread

WARM_UP = 3  # turns before the first that counts: torch prepares its kernels in them
# Is told the progress: what is being done, how many steps are done, and how many there are.
Progress = Callable[[str, int, int], None]


class Timing(NamedTuple):
    ms: float  # the mean of one call
    spread_ms: float  # from the first to the third quartile


@torch.no_grad()
def in_turns(
    works: Sequence[Callable[[], object]],
    repeats: int,
    device: str,
    report: Progress,
) -> list[Timing]:
    """How long each of these functions takes."""
    times: list[list[float]] = [[] for _ in works]
    turns = WARM_UP + repeats
    with one_thread():
        for turn in range(turns):
            for place in rng(turn, "timing").permutation(len(works)):
                duration = seconds(works[place], device)
                if turn >= WARM_UP:
                    times[place].append(duration)
            report("measuring", turn + 1, turns)
    return [summary(times_of_work) for times_of_work in times]


def summary(times: Sequence[float]) -> Timing:
    first, _, third = quantiles(times, n=4, method="inclusive")
    return Timing(1000 * fmean(times), 1000 * (third - first))


def seconds(work: Callable[[], object], device: str) -> float:
    """The seconds of one call. A CPU has finished when the call returns; others are waited for."""
    if device == "cpu":
        started = time.thread_time()
        work()
        return time.thread_time() - started
    wait = torch.get_device_module(device).synchronize
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started
