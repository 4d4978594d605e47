"""What the benchmarks share: taking turns, medians and minima, memory of a process, a verdict a line.

Alternatives are measured in one run, in turns and in changing order, so that a busy neighbour, or the memory that
the one before left, disturbs all of them alike. The minimum is the least disturbed time; the median shows how noisy
the machine was.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedloom.config.models import Experiment, validated


@dataclass(frozen=True)
class Timing:
    """Seconds of one alternative, a number a measurement."""

    times: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.times)

    @property
    def middle(self) -> float:
        return median(self.times)

    def __str__(self) -> str:
        return f"{1e3 * self.best:9.2f} ms  (median {1e3 * self.middle:.2f})"


def in_turns(alternatives: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Each alternative once to warm up, then `repeats` times in turns."""
    return self_timed({name: partial(clocked, run) for name, run in alternatives.items()}, repeats)


def self_timed(alternatives: Mapping[str, Callable[[], list[float]]], repeats: int) -> dict[str, Timing]:
    """The same for alternatives that measure themselves, maybe several times a turn."""
    for run in alternatives.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in alternatives}
    shuffled = random.Random(0)
    for _ in range(repeats):
        for name in shuffled.sample(list(alternatives), len(alternatives)):
            found[name] += alternatives[name]()
    return {name: Timing(tuple(times)) for name, times in found.items()}


def clocked(run: Callable[[], Any]) -> list[float]:
    """Without collecting garbage, as timeit does it: its time depends on what else the process holds."""
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    gc.enable()
    del result  # what it costs to free is not part of it
    return [seconds]


class Stopwatch:
    """Stands in for a function and adds up how long its calls take."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return self.function(*arguments)
        finally:
            self.seconds += time.perf_counter() - started


def heading(title: str) -> None:
    cpu = next((line.split(":")[1].strip() for line in lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{title}\n{'=' * len(title)}")
    print(f"{cores} cores, {cpu}, Python {platform.python_version()}, torch {torch.__version__}, load {load:.1f}\n")


def verdict(what: str, found: str, target: str, holds: bool) -> None:
    print(f"{what}: {found}, target {target}: {'holds' if holds else 'does not hold'}")


def lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def memory(pid: int | str = "self") -> dict[str, int]:
    """Resident bytes of a process: "anon" is its own, "file" is mapped and shared with the page cache."""
    wanted = {"RssAnon:": "anon", "RssFile:": "file"}
    rows = [line.split() for line in lines(f"/proc/{pid}/status")]
    return {wanted[row[0]]: int(row[1]) * 1024 for row in rows if row[0] in wanted}


def cpu_seconds(pid: int | str = "self") -> float:
    """What a process has computed so far."""
    return int(lines(f"/proc/{pid}/schedstat")[0].split()[0]) / 1e9


def in_new_process(script: str, *arguments: object) -> Any:
    """What `script` prints as JSON, run in a process of its own."""
    command = [sys.executable, script, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def images(path: Path, count: int, shape: tuple[int, ...]) -> str:
    """An npz of `count` random images of ten classes; its name as --data takes it."""
    draw = np.random.default_rng(0)
    np.savez(path, x=draw.integers(256, size=(count, *shape), dtype=np.uint8), y=np.arange(count) % 10)
    return str(path)


def experiment(**raw: Any) -> Experiment:
    """A configuration that never evaluates before the end."""
    config: Experiment = validated(Experiment, {"evaluate": {"every": 10**9}, **raw})
    return config
