"""How long does a command take that computes almost nothing?

    python bench/bench_startup.py [--repeats N]

It measures the CPU seconds (user and system) of a process from its start to its end, and those of
`import torch` in the same run, which are the minimum for any command that needs a network. A worker
is measured until it answers. The runs are small ones of digits, so that start-up remains: imports,
reading a finished run, and drawing. Set PYTHONPATH to measure another folder of sources.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedloom.federation.engines.worker_pool import Worker
from measuring import Timing, heading, self_timed, verdict

FLOOR = "python -c 'import torch'"
WORKER = "a worker until it answers"
SMALL_SEARCH = "cells=2,nodes=1,channels=4,ops=s2,epochs=1"
DATA = ("--data", "digits", "--clients", "4", "--workers", "0", "--quiet")
WITHOUT_TORCH = ("--help", "list spaces", "list data", "runs", "report", "data show digits")
WITH_TORCH = ("export", "predict")
WANTED = 1.0  # seconds
# Bounds against falling back, set from the first measurement of this version:
MOST_ABOVE_TORCH = 1.15  # of `import torch`, for a command that needs it
MOST_WITHOUT = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    heading("Start-up: CPU seconds of a process")
    os.environ.setdefault("COLUMNS", "100")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        make_runs(Path(folder))
        show(measure(Path(folder), options.repeats))


def make_runs(folder: Path) -> None:
    ask(folder, "run", "fedavg", *DATA, "--rounds", "2", "--out", "fixed")
    ask(folder, "run", f"fednas:{SMALL_SEARCH}", *DATA, "--rounds", "3", "--out", "searched")
    np.savez(
        folder / "new.npz", x=np.random.default_rng(0).integers(17, size=(20, 8, 8), dtype=np.uint8)
    )


def ask(folder: Path, *arguments: str) -> None:
    call(folder, "-m", "fedloom", *arguments)


def call(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def commands() -> dict[str, list[str]]:
    """The arguments of `fedloom`, by the command's name in the table."""
    return {
        "--help": ["--help"],
        "list spaces": ["list", "spaces"],
        "list data": ["list", "data"],
        "list methods": ["list", "methods"],
        "runs": ["runs", "list", "fixed", "searched"],
        "report": ["report", "searched"],
        "report --plots": ["report", "searched", "--plots"],
        "plot": ["plot", "searched"],
        "data show digits": ["data", "show", "digits"],
        "export": ["export", "searched", "--shared"],
        "predict": ["predict", "fixed", "--client", "0", "--data", "new.npz"],
        "resume (finished)": ["resume", "fixed"],
        "run --dry-run": ["run", "fedavg", "--data", "digits", "--dry-run"],
    }


def start_worker() -> None:
    worker = Worker(subprocess.DEVNULL)
    worker.inbox.take()  # it answers when it is ready
    worker.stop()


def cpu_of_children(run: Callable[[], None]) -> list[float]:
    """The CPU seconds of the processes that `run` starts and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


def measure(folder: Path, repeats: int) -> dict[str, Timing]:
    alternatives: dict[str, Callable[[], list[float]]] = {
        FLOOR: partial(cpu_of_children, partial(call, folder, "-c", "import torch")),
        WORKER: partial(cpu_of_children, start_worker),
    }
    for name, arguments in commands().items():
        alternatives[name] = partial(cpu_of_children, partial(ask, folder, *arguments))
    return self_timed(alternatives, repeats)


def show(timings: Mapping[str, Timing]) -> None:
    floor = timings[FLOOR].middle
    print(f"{'':30}{'median':>8}{'least':>8}{'of import torch':>18}")
    for name, timing in timings.items():
        ratio = timing.middle / floor
        print(f"{name:30}{timing.middle:6.2f} s{timing.best:6.2f} s{ratio:16.2f} ×")
    print()
    slowest = max(timings[name].middle for name in WITH_TORCH)
    verdict("export and predict", f"{slowest:.2f} s", f"{WANTED:g} s", slowest <= WANTED)
    heaviest = slowest / floor
    target = f"at most {MOST_ABOVE_TORCH} × import torch"
    verdict("export and predict", f"{heaviest:.2f} ×", target, heaviest <= MOST_ABOVE_TORCH)
    heaviest = max(timings[name].middle for name in WITHOUT_TORCH) / floor
    target = f"at most {MOST_WITHOUT} × import torch"
    verdict("what needs no torch", f"{heaviest:.2f} ×", target, heaviest <= MOST_WITHOUT)


if __name__ == "__main__":
    main()
