"""What the benchmarks share: taking turns, medians and minima, memory and CPU, verdicts.

Alternatives are measured in one run, in turns and in changing order, so that a busy neighbour
process, or memory that the previous one left, disturbs all of them equally. The minimum is the
least disturbed time; the median shows how noisy the machine was.
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

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.configured import configured_source
from fedloom.data.split import ARRAYS
from fedloom.federation.engines.worker_pool import Pool
from fedloom.runs.preparing import Prepared
from job import CLIENTS, COHORT, DONE, SAMPLES, SHAPE


@dataclass(frozen=True)
class Timing:
    """The seconds of one alternative, one number per measurement."""

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
    """Run each alternative once to warm up, then `repeats` times in turns."""
    self_timing = {name: partial(clocked, run) for name, run in alternatives.items()}
    return self_timed(self_timing, repeats)


def self_timed(
    alternatives: Mapping[str, Callable[[], list[float]]], repeats: int
) -> dict[str, Timing]:
    """Like `in_turns`, for functions that measure themselves, perhaps several times per turn."""
    for run in alternatives.values():
        run()
    times_by_name: dict[str, list[float]] = {name: [] for name in alternatives}
    shuffled = random.Random(0)
    for _ in range(repeats):
        for name in shuffled.sample(list(alternatives), len(alternatives)):
            times_by_name[name] += alternatives[name]()
    return {name: Timing(tuple(times)) for name, times in times_by_name.items()}


def clocked(run: Callable[[], Any]) -> list[float]:
    """Time a call without garbage collection, as timeit does.

    The time of a collection depends on what else the process holds.
    """
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    gc.enable()
    del result  # the time to free it does not count
    return [seconds]


class Stopwatch:
    """Replaces a function and sums up the time of its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return self.function(*arguments)
        finally:
            self.seconds += time.perf_counter() - started


def heading(title: str) -> None:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    print(f"\n{title}\n{'=' * len(title)}")
    print(
        f"{cores} cores, {cpu_name()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, load {load:.1f}\n"
    )


def cpu_name() -> str:
    for line in lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "?"


def verdict(subject: str, result: str, target: str, holds: bool) -> None:
    outcome = "holds"
    if not holds:
        outcome = "does not hold"
    print(f"{subject}: {result}, target {target}: {outcome}")


def lines(path: str) -> list[str]:
    file = Path(path)
    if not file.exists():
        return []
    return file.read_text().splitlines()


def own_memory(pid: int | str = "self") -> int:
    """Resident bytes of a process without mapped files, which belong to the page cache."""
    return status_bytes(pid, "RssAnon:")


def high_water() -> int:
    """The most resident bytes that this process has had, mapped files included.

    ru_maxrss would start at the parent's.
    """
    return status_bytes("self", "VmHWM:")


def status_bytes(pid: int | str, name: str) -> int:
    for line in lines(f"/proc/{pid}/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no {name} in its status")


def memory_of_workers(pool: Pool) -> int:
    """The bytes that all workers of a run hold themselves."""
    return sum(own_memory(worker.process.pid) for worker in pool.workers)


def bytes_of_data(prepared: Prepared) -> int:
    """What a run's server holds of the data: samples, labels and the arrays of the split."""
    total = prepared.source.x.nbytes + prepared.source.y.nbytes
    for name in ARRAYS:
        total += getattr(prepared.split, name).nbytes
    return total


def cpu_seconds(pid: int | str = "self") -> float:
    """The CPU seconds of a process so far."""
    nanoseconds = lines(f"/proc/{pid}/schedstat")[0].split()[0]
    return int(nanoseconds) / 1e9


def cpu_of_pool(pool: Pool) -> float:
    """The CPU seconds so far of this process, which is the server of a run, and its workers."""
    seconds = cpu_seconds()
    for worker in pool.workers:
        seconds += cpu_seconds(worker.process.pid)
    return seconds


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of processes: in their own code, and in the kernel on their behalf."""

    user: float
    system: float


def cpu_of_tree(root: int) -> Cpu:
    """The CPU time so far of a process and all its descendants, those that have ended included.

    It is exact to a tick of the system's clock, a hundredth of a second, for each process.
    """
    rows = process_rows()
    parents = {pid: row.parent for pid, row in rows.items()}
    user = 0
    system = 0
    for pid in descendants(root, parents):
        user += rows[pid].user
        system += rows[pid].system
    ticks = os.sysconf("SC_CLK_TCK")
    return Cpu(user / ticks, system / ticks)


@dataclass(frozen=True)
class ProcessRow:
    parent: int
    user: int  # ticks, including those of children that have ended
    system: int


def process_rows() -> dict[int, ProcessRow]:
    """The rows of all processes of this machine, by their ids."""
    rows = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        fields = text.rpartition(")")[2].split()  # the name, in brackets, may contain anything
        user, system, user_of_ended, system_of_ended = map(int, fields[11:15])
        rows[int(folder.name)] = ProcessRow(
            int(fields[1]), user + user_of_ended, system + system_of_ended
        )
    return rows


def descendants(root: int, parents: Mapping[int, int]) -> set[int]:
    """The process itself and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    members = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        members.add(pid)
        waiting += children.get(pid, [])
    return members & parents.keys()


@dataclass(frozen=True)
class Usage:
    """The seconds of a round, as the mean over a turn."""

    wall: float
    user: float
    system: float

    @property
    def cpu(self) -> float:
        return self.user + self.system


class Lane:
    """One version of the simple job (job.py): processes that compute rounds when they are asked to.

    `commands` has one command per process; several processes share a round and wait for each other
    at its end.
    """

    def __init__(
        self, commands: list[list[str]], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.processes = []
        for command in commands:
            with log.open("ab") as errors:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, **one_thread, **(environment or {})},
                )
            self.processes.append(process)

    def turn(self, rounds: int) -> Usage:
        before = self._cpu()
        started = time.perf_counter()
        if len(self.processes) == 1:
            self._compute(rounds)
        else:
            for _ in range(rounds):
                self._compute(1)
        wall = time.perf_counter() - started
        after = self._cpu()
        user = after.user - before.user
        system = after.system - before.system
        return Usage(wall / rounds, user / rounds, system / rounds)

    def _compute(self, rounds: int) -> None:
        for process in self.processes:
            assert process.stdin is not None
            print(rounds, file=process.stdin, flush=True)
        for process in self.processes:
            self._wait(process)

    def _wait(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == DONE:
                return
        raise RuntimeError(f"{process.args!r} ended: {self.log.read_text()[-2000:]}")

    def _cpu(self) -> Cpu:
        user = 0.0
        system = 0.0
        for process in self.processes:
            cpu = cpu_of_tree(process.pid)
            user += cpu.user
            system += cpu.system
        return Cpu(user, system)

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def bare_lane(
    images: Path,
    folder: Path,
    layout: str,
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Lane:
    """The bare loop of the simple job, with its clients divided evenly among the processes."""
    script = str(Path(__file__).parent / "job_bare.py")
    command = [sys.executable, script, str(images), layout, str(COHORT // processes)]
    return Lane([command] * processes, folder / "bare.log", environment)


def fedloom_lane(images: Path, folder: Path, workers: int) -> Lane:
    script = str(Path(__file__).parent / "job_fedloom.py")
    run = folder / f"run-{workers}"
    command = [sys.executable, script, str(images), str(workers), str(run)]
    return Lane([command], folder / f"fedloom-{workers}.log")


def job_images(folder: Path, data_dir: Path | None) -> Path:
    """The images of the simple job: the first ones of CIFAR-10 if it is given, or random ones."""
    path = folder / "images.npz"
    count = CLIENTS * SAMPLES
    if data_dir is None:
        images(path, count, SHAPE)
        return path
    config = DataConfig(name="cifar10", dir=str(data_dir))
    source = configured_source(config)
    np.savez(path, x=np.asarray(source.x[:count]), y=np.asarray(source.y[:count]))
    return path


@dataclass(frozen=True)
class Turns:
    """The usage of a lane's rounds, one per turn."""

    usages: tuple[Usage, ...]

    @property
    def cpu(self) -> Timing:
        return Timing(tuple(usage.cpu for usage in self.usages))

    @property
    def wall(self) -> Timing:
        return Timing(tuple(usage.wall for usage in self.usages))

    @property
    def system(self) -> float:
        return median(usage.system for usage in self.usages)


def lanes_in_turns(lanes: Mapping[str, Lane], rounds: int, repeats: int) -> dict[str, Turns]:
    """Run each lane once to warm up, then `repeats` times in turns and in changing order."""
    for lane in lanes.values():
        lane.turn(rounds)
    usages: dict[str, list[Usage]] = {name: [] for name in lanes}
    shuffled = random.Random(0)
    for _ in range(repeats):
        for name in shuffled.sample(list(lanes), len(lanes)):
            usages[name].append(lanes[name].turn(rounds))
    return {name: Turns(tuple(several)) for name, several in usages.items()}


def print_turns(results: Mapping[str, Turns], yardstick: str) -> None:
    """One row per lane, with its CPU seconds relative to the yardstick, by minima and medians."""
    print(
        f"{'a round':34}{'CPU s':>8}{'median':>8}{'system':>8}"
        f"{'wall s':>8}{'median':>8}{'CPU, against':>14}"
    )
    for name, turns in results.items():
        base = results[yardstick].cpu
        print(
            f"{name:34}{turns.cpu.best:8.3f}{turns.cpu.middle:8.3f}{turns.system:8.3f}"
            f"{turns.wall.best:8.3f}{turns.wall.middle:8.3f}"
            f"{turns.cpu.best / base.best:7.2f}×{turns.cpu.middle / base.middle:5.2f}×"
        )
    print()


def in_new_process(script: str, *arguments: object) -> Any:
    """Run `script` in its own process, and return the JSON that it prints."""
    command = [sys.executable, script, *map(str, arguments)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout)


def images(path: Path, count: int, shape: tuple[int, ...]) -> str:
    """Write an npz of `count` random images of ten classes; returns its path for --data."""
    draw = np.random.default_rng(0)
    x = draw.integers(256, size=(count, *shape), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(count) % 10)
    return str(path)


def experiment(**raw: Any) -> Experiment:
    """A configuration that never evaluates before the end."""
    config: Experiment = validated(Experiment, {"evaluate": {"every": 10**9}, **raw})
    return config
