"""`fedloom auto --limit latency_ms=…`: which sizes answer one sample fast enough on this machine.

Networks are timed before anything is trained. The plan stores the sizes within the limit, so that
resuming does not depend on how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from fedloom.cost.timing import in_turns
from fedloom.errors import FedloomError
from fedloom.networks.building import build_model
from fedloom.types import Task

REPEATS = 30


def sizes_within(
    task: Task,
    network: str | None,
    sizes: Sequence[float],
    most_ms: float,
) -> list[float]:
    """The sizes that take at most `most_ms` for one sample, as the mean over many passes."""
    sample = torch.zeros(1, *task.shape)
    passes = []
    for size in sizes:
        passes.append(partial(build_model(task, network, size).eval(), sample))
    timings = in_turns(passes, REPEATS, "cpu", lambda what, done, total: None)
    within = [size for size, timing in zip(sizes, timings, strict=True) if timing.ms <= most_ms]
    if not within:
        fastest = min(timing.ms for timing in timings)
        raise FedloomError(
            "--limit latency_ms must leave a size to try",
            f"got {most_ms:g}",
            f"the fastest takes {fastest:.2g} ms here; raise it, or name smaller --sizes",
        )
    return within
