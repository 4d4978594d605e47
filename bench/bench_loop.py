"""What the simplest job costs compared with a bare torch loop, and what a second worker gains.

The job (job.py) is FedAvg of the small CNN, with 100 clients of 80 images of 3×32×32, ten clients
per round, batches of 20 and 40 steps per round. Each client of FedLoom has 100 images and keeps a
fifth for testing, so that 80 remain. CPU seconds are those of all processes, user and system.
The bare loop does equal work: normalisation, clipping, SGD with momentum and decay, loading the
round's weights for every client, the weighted mean of weights and BN statistics. It is measured in
torch's default layout, with channels last, and, as another bound, with a C library that keeps freed
memory.

Two processes on two cores never gain 2×: they share caches, memory and clock. So two workers are
compared with the gain of two bare processes of five clients each in the same run, by wall-clock
time. If the two had to wait for cores that other programs used, the wall-clock time says nothing,
and that target is not judged.

    bench_loop.py [--data-dir DATA]    with real images: DATA holds CIFAR-10's binary files;
                                       random ones cost the same
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import job
from measuring import (
    Lane,
    Turns,
    bare_lane,
    fedloom_lane,
    heading,
    job_images,
    lanes_in_turns,
    print_turns,
    verdict,
)

ROUNDS = 5  # per turn
REPEATS = 6
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

BARE = "bare, channels last"
BARE_DEFAULT = "bare, default layout"
BARE_KEEPING = "bare, channels last, memory kept"
BARE_TWO = "two bare processes"
BARE_TWO_KEEPING = "two bare processes, memory kept"
INLINE = "FedLoom inline"
ONE = "FedLoom, one worker"
TWO = "FedLoom, two workers"

MOST_CPU = 1.25  # of the bare loop's
LEAST_GAIN = 0.95  # of what two bare processes gain
# Wall against CPU seconds of two bare processes; above it they did not have two cores.
MOST_WAITING = 1.25


def main(data_dir: Path | None) -> None:
    heading(f"The simple job: {job.COHORT} clients, {job.STEPS} steps a round")
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        images = job_images(folder, data_dir)
        lanes = {
            BARE: bare_lane(images, folder, "channels_last"),
            BARE_DEFAULT: bare_lane(images, folder, "default"),
            BARE_KEEPING: bare_lane(images, folder, "channels_last", environment=KEEP_MEMORY),
            BARE_TWO: bare_lane(images, folder, "channels_last", processes=2),
            BARE_TWO_KEEPING: bare_lane(images, folder, "channels_last", 2, KEEP_MEMORY),
            INLINE: fedloom_lane(images, folder, workers=0),
            ONE: fedloom_lane(images, folder, workers=1),
            TWO: fedloom_lane(images, folder, workers=2),
        }
        results = measured(lanes)
    print_turns(results, BARE)
    judge(results)


def measured(lanes: dict[str, Lane]) -> dict[str, Turns]:
    try:
        return lanes_in_turns(lanes, ROUNDS, REPEATS)
    finally:
        for lane in lanes.values():
            lane.close()


def judge(results: dict[str, Turns]) -> None:
    ratio = results[ONE].cpu.best / results[BARE].cpu.best
    target = f"at most {MOST_CPU}×"
    verdict("CPU of one worker against the bare loop", f"{ratio:.2f}×", target, ratio <= MOST_CPU)
    judge_gain(results)


def judge_gain(results: dict[str, Turns]) -> None:
    two_bare = results[BARE_TWO]
    bare_gain = results[BARE].wall.best / two_bare.wall.best
    keeping_gain = results[BARE_KEEPING].wall.best / results[BARE_TWO_KEEPING].wall.best
    our_gain = results[ONE].wall.best / results[TWO].wall.best
    print(
        f"gain of two over one, by the clock: bare {bare_gain:.2f}×, "
        f"with memory kept {keeping_gain:.2f}×, FedLoom {our_gain:.2f}×"
    )
    waiting = two_bare.wall.best / (two_bare.cpu.best / 2)
    if waiting > MOST_WAITING:
        print(
            f"share of the bare gain: not judged, as the two took {waiting:.2f}× what they computed"
        )
        return
    share = our_gain / bare_gain
    verdict(
        "share of the bare gain", f"{share:.1%}", f"at least {LEAST_GAIN:.0%}", share >= LEAST_GAIN
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The simple job beside a bare torch loop")
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-10's binary files")
    main(parser.parse_args().data_dir)
