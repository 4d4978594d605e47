"""The comparisons that evidence consists of: how they are run, resumed and read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fair_trials import Runs
from fedloom.evaluate.paired import paired
from fedloom.evaluate.target import first_reached
from fedloom.metrics.metric import METRICS
from fedloom.records.comparison import Target, folder_name
from fedloom.records.result import RunResult
from fedloom.records.result_parts import Simulated
from fedloom.records.rows import METRICS_FILE, read_rows

Reading = Callable[[RunResult], float]


@dataclass(frozen=True)
class Trial:
    """One comparison: methods under the same conditions."""

    name: str
    title: str
    methods: tuple[str, ...]
    flags: tuple[str, ...] = ()


def carry_out(command: Sequence[str], folder: Path) -> int:
    """Run a comparison; a finished one is not run again, and an interrupted one is resumed."""
    if (folder / "result.json").exists():
        return 0
    arguments = [*command, "--out", str(folder)]
    if (folder / "compare.json").exists():
        arguments = ["resume", str(folder), "--quiet"]
    print("fedloom", *arguments, flush=True)
    return subprocess.run([sys.executable, "-m", "fedloom", *arguments], check=False).returncode


# Reading them


def finished(out: Path, trial: Trial, method: str) -> list[RunResult]:
    return Runs(out / trial.name).of(method)


def clock_of(run: RunResult) -> Simulated:
    assert run.simulated is not None
    return run.simulated


def name_of(method: str) -> str:
    return method.partition(":")[0]


def accuracy(run: RunResult) -> float:
    return points(run, "accuracy")


def balanced(run: RunResult) -> float:
    return points(run, "balanced_accuracy")


def points(run: RunResult, figure: str) -> float:
    """The mean of a figure over clients, in percent."""
    mean = run.spread_of(figure).mean
    assert mean is not None, f"{figure} of seed {run.seed}"
    return 100 * mean


def target_of(out: Path, trial: Trial, method: str, seed: int, target: float) -> Target | None:
    rows = read_rows(out / trial.name / f"{folder_name(method)}-seed{seed}" / METRICS_FILE)
    return first_reached(rows, target, METRICS["accuracy"])


def mean_of(runs: Sequence[RunResult], reading: Reading) -> str:
    return f"{fmean(map(reading, runs)):.1f}"


def to_target(
    reached: Sequence[Target | None], reading: Callable[[Target], float], digits: int
) -> str:
    """The mean over runs; if some runs did not reach the target, how many did."""
    values = [reading(target) for target in reached if target is not None]
    if len(values) < len(reached):
        return f"reached by {len(values)} of {len(reached)}"
    return f"{fmean(values):.{digits}f}"


def difference(before: Sequence[RunResult], after: Sequence[RunResult], reading: Reading) -> str:
    if [run.seed for run in before] != [run.seed for run in after]:
        return "not all seeds are there"
    figures_before = [reading(run) for run in before]
    figures_after = [reading(run) for run in after]
    return paired_difference(figures_before, figures_after, 1)


def seconds_saved(flat: Sequence[Target | None], reached: Sequence[Target | None]) -> str:
    before = [target.seconds for target in flat if target is not None]
    after = [target.seconds for target in reached if target is not None]
    if len(before) < len(flat) or len(after) < len(reached) or before == after:
        return ""
    return paired_difference(before, after, 0)


def paired_difference(before: Sequence[float], after: Sequence[float], digits: int) -> str:
    """The second minus the first with its interval, such as `+1.2 [+0.3, +2.1]`."""
    pair = paired(before, after)
    if pair.low is None or pair.high is None:
        return f"{pair.difference:+.{digits}f}"
    return f"{pair.difference:+.{digits}f} [{pair.low:+.{digits}f}, {pair.high:+.{digits}f}]"
