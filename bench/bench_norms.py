"""How far honest updates are from the usual size: the evidence for the default of --norm-bound.

    python bench/bench_norms.py                      all methods on digits, skewed and unequal
    python bench/bench_norms.py --data-dir DATA      and on PneumoniaMNIST
    python bench/bench_norms.py RUN…                 finished runs, from their metrics.jsonl

For each run and group of tensors it prints the largest update, relative to the usual size in its
round or before, and how many replies were refused because of it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedloom
from fedloom.errors import FedloomError
from fedloom.methods import METHODS

SKEWED: dict[str, Any] = {"partition": "dirichlet:0.2", "clients": 8, "rounds": 16}
UNEQUAL: dict[str, Any] = {
    "partition": "dirichlet:0.1",
    "clients": 12,
    "rounds": 16,
    "participation": 0.5,
}
ALONE: dict[str, Any] = {
    "partition": "dirichlet:0.2",
    "clients": 8,
    "rounds": 16,
    "participation": 0.125,
}
PAIRS: dict[str, Any] = {
    "partition": "dirichlet:0.2",
    "clients": 8,
    "rounds": 16,
    "participation": 0.25,
}
SPLITS = {"eight replies a round": SKEWED, "six": UNEQUAL, "one": ALONE, "two": PAIRS}
SEARCHED = {"cells": 3, "channels": 8, "nodes": 2}
NOT_ALONE = {"adapt"}  # it begins with another run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs: Iterable[FinishedRun] = [FinishedRun(str(path), path) for path in options.runs]
        if not options.runs:
            runs = honest_runs(Path(scratch), options.data_dir, options.seed)
        overall: dict[str, float] = {}
        all_refused = 0
        for run in runs:
            updates = updates_of(run.path)
            all_refused += updates.refused
            ratios = [f"{group} {ratio:.1f}" for group, ratio in sorted(updates.largest.items())]
            text = ", ".join(ratios) or "no updates"
            print(f"{run.label}: {text}; refused: {updates.refused}", flush=True)
            for group, ratio in updates.largest.items():
                kind = group.rpartition(" ")[2]
                overall[kind] = max(ratio, overall.get(kind, 0.0))
    print("\nlargest of all, in multiples of what is usual:")
    for kind, ratio in sorted(overall.items()):
        print(f"  {kind}: {ratio:.1f}")
    print(f"refused: {all_refused}")


def settings_of(method: str) -> dict[str, Any]:
    accepted = fedloom.methods.recipe(method).options.fields_beside({})
    return {name: value for name, value in SEARCHED.items() if name in accepted}


@dataclass(frozen=True)
class FinishedRun:
    label: str
    path: Path


def honest_runs(folder: Path, data_dir: str | None, seed: int) -> Iterator[FinishedRun]:
    """A run of every method on each kind of split, also with only one or two replies per round."""
    number = 0
    for method in sorted(METHODS.names()):
        if method in NOT_ALONE:
            continue
        for replies, split in SPLITS.items():
            number += 1
            label = f"{method}, digits, {split['partition']}, {replies}"
            flags = {"seed": seed, **split, **settings_of(method)}
            yield from tried(label, folder / str(number), method, flags)
    if data_dir is not None:
        for method in ("fedavg", "fedadam", "ditto", "spider", "fednas"):
            number += 1
            label = f"{method}, pneumoniamnist, {SKEWED['partition']}"
            flags = {
                "seed": seed,
                "data": "medmnist/pneumoniamnist.npz",
                "data_dir": data_dir,
                **SKEWED,
                "rounds": 8,
                **settings_of(method),
            }
            yield from tried(label, folder / str(number), method, flags)


def tried(label: str, out: Path, method: str, flags: dict[str, Any]) -> Iterator[FinishedRun]:
    try:
        yield FinishedRun(label, fedloom.search(method, out=out, **flags).path)
    except FedloomError as error:
        print(f"{label}: left out ({error})")


@dataclass(frozen=True)
class Updates:
    """What the rounds of a run say about the sizes of its updates."""

    largest: dict[str, float]  # by group of tensors, relative to the usual one
    refused: int  # replies


def updates_of(run: Path) -> Updates:
    largest: dict[str, float] = {}
    refused = 0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for group, size in row.get("updates", {}).items():
            largest[group] = max(size["largest"], largest.get(group, 0.0))
        for refusal in row["refused"]:
            if "--norm-bound" in refusal["reason"]:
                refused += 1
    return Updates(largest, refused)


if __name__ == "__main__":
    main()
