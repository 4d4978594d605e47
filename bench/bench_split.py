"""How long does a large split take?

    python bench/bench_split.py

A million samples of a hundred classes are split: into 2,000 natural clients, into other numbers of
clients by cutting and joining these, and by every other partition into 2,000 clients. Then the
split's file is written, hashed and read again. Samples have one pixel, because their content does
not matter here; the digest of the data is computed before.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedloom.data.source import Source
from fedloom.data.split import Split, make_split
from measuring import clocked, heading, verdict

SAMPLES = 1_000_000
CLASSES = 100
GROUPS = 2000
RULES = (
    "natural",
    "iid",
    "dirichlet:0.5",
    "dirichlet-equal:0.1",
    "label-skew:5",
    "missing:0.3",
    "dominant:0.5",
)
SECONDS = 5.0  # "in seconds"


def main() -> None:
    heading(f"Splits of {SAMPLES:,} samples in {CLASSES} classes and {GROUPS:,} groups")
    source = million()
    assert source.digest
    times = [seconds_of_split(source, rule, GROUPS) for rule in RULES]
    times.append(seconds_of_split(source, "natural", 500))
    times.append(seconds_of_split(source, "natural", 4000))
    slowest = max(times)
    split = make_split(source, GROUPS, "natural", 0)
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        file = Path(folder) / "split.json"
        (writing,) = clocked(partial(split.save, file))
        print(f"{'write its file':35}{writing:6.2f} s")
        (reading,) = clocked(partial(Split.load, file))
        print(f"{'read it':35}{reading:6.2f} s")
    print()
    verdict(
        "the slowest split",
        f"{slowest:.2f} s",
        f"seconds (at most {SECONDS:g})",
        slowest <= SECONDS,
    )


def million() -> Source:
    """A million samples in groups of very different sizes, each with its own favourite classes."""
    draw = np.random.default_rng(0)
    twenty_of_each = np.repeat(np.arange(GROUPS), 20)
    rest = draw.zipf(1.4, SAMPLES - len(twenty_of_each)) % GROUPS
    groups = np.sort(np.concatenate([twenty_of_each, rest]))
    y = (groups * 7 + draw.geometric(0.05, SAMPLES)) % CLASSES
    names = tuple(f"writer {number}" for number in range(GROUPS))
    labels = tuple(map(str, range(CLASSES)))
    x = np.zeros((SAMPLES, 1, 1, 1), np.uint8)
    return Source("million", x, y, labels, groups=groups, group_names=names, grouping="writer")


def seconds_of_split(source: Source, rule: str, clients: int) -> float:
    (seconds,) = clocked(partial(make_split, source, clients, rule, 0))
    print(f"{rule:20}{clients:6,} clients  {seconds:6.2f} s")
    return seconds


if __name__ == "__main__":
    main()
