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
from collections.abc import Iterator
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


def settings_of(method: str) -> dict[str, Any]:
    accepted = fedloom.methods.recipe(method).options.fields_beside({})
    return {name: value for name, value in SEARCHED.items() if name in accepted}


def honest_runs(folder: Path, data_dir: str | None, seed: int) -> Iterator[tuple[str, Path]]:
    """A run of every method on each kind of split, also with only one or two replies per round."""
    number = 0
    for method in sorted(METHODS.names()):
        if method in NOT_ALONE:
            continue
        for replies, split in SPLITS.items():
            number += 1
            label = f"{method}, digits, {split['partition']}, {replies}"
            yield from tried(
                label, folder / str(number), method, {"seed": seed, **split, **settings_of(method)}
            )
    if data_dir is not None:
        for method in ("fedavg", "fedadam", "ditto", "spider", "fednas"):
            number += 1
            medical = {
                "seed": seed,
                "data": "medmnist/pneumoniamnist.npz",
                "data_dir": data_dir,
                **SKEWED,
                "rounds": 8,
            }
            label = f"{method}, pneumoniamnist, {SKEWED['partition']}"
            yield from tried(
                label, folder / str(number), method, {**medical, **settings_of(method)}
            )


def tried(label: str, out: Path, method: str, flags: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    try:
        yield label, fedloom.search(method, out=out, **flags).path
    except FedloomError as error:
        print(f"{label}: left out ({error})")


def sizes_in(run: Path) -> tuple[dict[str, float], int]:
    """By group, the largest update relative to the usual one, and the number of refused replies."""
    largest: dict[str, float] = {}
    refused = 0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for group, size in row.get("updates", {}).items():
            largest[group] = max(size["largest"], largest.get(group, 0.0))
        refused += sum("--norm-bound" in refusal["reason"] for refusal in row["refused"])
    return largest, refused


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        honest = honest_runs(Path(scratch), options.data_dir, options.seed)
        runs = [(str(path), path) for path in options.runs] or honest
        overall: dict[str, float] = {}
        all_refused = 0
        for label, path in runs:
            largest, refused = sizes_in(path)
            all_refused += refused
            ratios = ", ".join(f"{group} {ratio:.1f}" for group, ratio in sorted(largest.items()))
            print(f"{label}: {ratios or 'no updates'}; refused: {refused}", flush=True)
            for group, ratio in largest.items():
                kind = group.rpartition(" ")[2]
                overall[kind] = max(ratio, overall.get(kind, 0.0))
    print("\nlargest of all, in multiples of what is usual:")
    for kind, ratio in sorted(overall.items()):
        print(f"  {kind}: {ratio:.1f}")
    print(f"refused: {all_refused}")


if __name__ == "__main__":
    main()
