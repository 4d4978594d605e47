"""How long does a large split take?

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
from measuring import Timing, clocked, heading, verdict

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


def million() -> Source:
    """A million samples in groups of very different sizes, each with its own favourite classes."""
    draw = np.random.default_rng(0)
    groups = np.sort(
        np.concatenate(
            [np.repeat(np.arange(GROUPS), 20), draw.zipf(1.4, SAMPLES - 20 * GROUPS) % GROUPS]
        )
    )
    y = (groups * 7 + draw.geometric(0.05, SAMPLES)) % CLASSES
    names = tuple(f"writer {number}" for number in range(GROUPS))
    labels = tuple(map(str, range(CLASSES)))
    x = np.zeros((SAMPLES, 1, 1, 1), np.uint8)
    return Source("million", x, y, labels, groups=groups, group_names=names, grouping="writer")


def main() -> None:
    heading(f"Splits of {SAMPLES:,} samples in {CLASSES} classes and {GROUPS:,} groups")
    source = million()
    assert source.digest
    slowest = 0.0
    for rule, clients in [*((rule, GROUPS) for rule in RULES), ("natural", 500), ("natural", 4000)]:
        timing = Timing(tuple(clocked(partial(make_split, source, clients, rule, 0))))
        slowest = max(slowest, timing.best)
        print(f"{rule:20}{clients:6,} clients  {timing.best:6.2f} s")
    split = make_split(source, GROUPS, "natural", 0)
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        file = Path(folder) / "split.json"
        for name, run in (
            ("write its file", partial(split.save, file)),
            ("read it", partial(Split.load, file)),
        ):
            print(f"{name:35}{clocked(run)[0]:6.2f} s")
    print()
    verdict(
        "the slowest split",
        f"{slowest:.2f} s",
        f"seconds (at most {SECONDS:g})",
        slowest <= SECONDS,
    )


if __name__ == "__main__":
    main()
