"""How long does `fedloom search` take if existing scores answer it?

    python bench/bench_search.py [--repeats N]

It measures the CPU seconds (user and system) of the whole command, and of `import torch` in the
same run. The folder is that of a small run of digits, in which the supernet of cnn-l and 4,000
made-up scores (four tiers of 1,000 models) replace its own: a real run would take days, and
reading, sorting and writing cost the same. The command warns that these files were changed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedloom.federation.server.archive import Archive
from fedloom.learning.training import weights_of
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_scores import SUPERNET_FILE, row_of
from fedloom.records.scores import SCORES_FILE, write_scores
from fedloom.searchers.tier_search import Score
from fedloom.types import State
from measuring import heading, self_timed, verdict

TIERS = 4
MODELS = 1000  # per tier
MOST_SECONDS = 5.0
RUN = (
    "fedoras --data digits --clients 2 --rounds 3 --epochs 1 --models 2 --pool 2 --workers 0 "
    "--quiet"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    heading("A new limit answered from scores: CPU seconds of a process")
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        make_run(folder)
        search = ("-m", "fedloom", "search", "run", "--limit", "macs=250M", "--json")
        timings = self_timed(
            {
                "import torch": partial(
                    cpu_of_children, partial(call, folder, "-c", "import torch")
                ),
                "search": partial(cpu_of_children, partial(call, folder, *search)),
            },
            options.repeats,
        )
    for name, timing in timings.items():
        print(f"{name:20}{timing.middle:6.2f} s")
    seconds = timings["search"].middle
    verdict(
        "search from scores",
        f"{seconds:.2f} s",
        f"at most {MOST_SECONDS:g} s",
        seconds <= MOST_SECONDS,
    )


def call(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def make_run(folder: Path) -> None:
    call(folder, "-m", "fedloom", "run", *RUN.split(), "--out", "run")
    archive = Archive(folder / "run")
    meta = archive.stage_state(SUPERNET_FILE).meta
    description = {
        **meta["frame"],
        "space": "cnn-l",
        "shape": [3, 32, 32],
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }
    frame = Frame.from_plain(description)
    archive.keep_stage_state(
        SUPERNET_FILE, State(weights_of(frame.model()), {**meta, "frame": description})
    )
    draws = np.random.default_rng(0)
    sizes = [len(slot.options) for slot in frame.space.slots]
    paths: set[tuple[int, ...]] = set()
    while len(paths) < TIERS * MODELS:
        paths.add(tuple(draws.integers(0, sizes).tolist()))
    rows = []
    for number, path in enumerate(sorted(paths)):
        rows.append(row_of(frame, 1 + number % TIERS, path, Score(1 + draws.random(), 0.5, 1000)))
    write_scores(folder / "run" / SCORES_FILE, rows)


def cpu_of_children(run: Callable[[], None]) -> list[float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


if __name__ == "__main__":
    main()
