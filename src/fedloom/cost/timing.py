"""How long things take: the mean of many turns, and the middle half of them.

The machine is warmed up, and one thread computes.

Everything is called once a turn, one thing after the other, in another order every turn. So each
finds the caches as cold as it does inside a network, where others ran before it: called over and
over alone, operations add up to two thirds of their network, and side by side with others of their
kind to four fifths of some. A busy neighbour disturbs all of them alike. On a CPU the time is the
thread's own: what other programs take from it does not count. On an idle machine that is the time
on the wall.

Means add up: the mean of a network is the sum of its operations' means. Medians do not: where every
operation has a slow turn now and then, most turns of the network have one.
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
Told = Callable[[str, int, int], None]  # what is being done, how far it is, and of how much


class Timing(NamedTuple):
    ms: float  # of one call, the mean
    spread_ms: float  # between the first and the third quartile


@torch.no_grad()
def in_turns(
    works: Sequence[Callable[[], object]],
    repeats: int,
    device: str,
    tell: Told,
) -> list[Timing]:
    """How long each of these things takes."""
    times: list[list[float]] = [[] for _ in works]
    turns = WARM_UP + repeats
    with one_thread():
        for turn in range(turns):
            for place in rng(turn, "timing").permutation(len(works)):
                duration = seconds(works[place], device)
                if turn >= WARM_UP:
                    times[place].append(duration)
            tell("measuring", turn + 1, turns)
    return [summary(times_of_work) for times_of_work in times]


def summary(times: Sequence[float]) -> Timing:
    first, _, third = quantiles(times, n=4, method="inclusive")
    return Timing(1000 * fmean(times), 1000 * (third - first))


def seconds(work: Callable[[], object], device: str) -> float:
    """A CPU works while it is called; other devices have to be waited for."""
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
