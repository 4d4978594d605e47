"""`fedloom doctor`: checks whether this machine is ready, and says what would make it better."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fedloom.errors import FedloomError
from fedloom.version import __version__


class Finding(NamedTuple):
    name: str
    good: bool
    text: str


def examine() -> Iterator[Finding]:
    """Run every check by itself, so that one that fails does not hide the others."""
    for check in (versions, cores, memory, disk, durable_writes, data, worker, convolutions):
        yield guarded(check)


def guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (FedloomError, OSError, ImportError, RuntimeError, ValueError) as error:
        name = check.__name__.replace("_", " ")
        return Finding(name, good=False, text=f"{type(error).__name__}: {error}")


def versions() -> Finding:
    import torch

    python = platform.python_version()
    device = "CPU only"
    if torch.cuda.is_available():
        device = "CUDA usable"
    text = f"fedloom {__version__}, Python {python}, torch {torch.__version__}, {device}"
    return Finding("versions", good=True, text=text)


def cores() -> Finding:
    count = len(os.sched_getaffinity(0))
    return Finding("cores", good=True, text=f"{count}, so {count} worker processes by default")


def memory() -> Finding:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = f"{free / 2**30:.1f} GiB free; a worker needs about 0.3 GiB and its network"
    return Finding("memory", good=free > 1 << 30, text=text)


def disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / 2**30:.1f} GiB free where runs/ would go ({Path.cwd()})"
    return Finding("disk", good=free > 1 << 30, text=text)


def durable_writes() -> Finding:
    """Every round ends with a durable write, so a slow disk makes short rounds slow."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        started = time.perf_counter()
        for _ in range(5):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    milliseconds = (time.perf_counter() - started) / 5 * 1000
    text = f"{milliseconds:.1f} ms each, one or two per round"
    return Finding("durable writes", good=milliseconds < 100, text=text)


def data() -> Finding:
    from fedloom.data.sources import SOURCES, open_source

    source = open_source("digits")
    names = ", ".join(SOURCES.names())
    return Finding("data", good=True, text=f"digits has {len(source.y)} samples; by name: {names}")


def worker() -> Finding:
    """Start a real worker process and wait for its answer."""
    from fedloom.federation.engines.worker_pool import Pool

    pool = Pool(1)
    started = time.perf_counter()
    pool.start()
    try:
        answers = pool.workers[0].answers(30.0)
    finally:
        pool.close()
    seconds = time.perf_counter() - started
    if not answers:
        return Finding("workers", good=False, text=f"no answer after {seconds:.1f} s")
    return Finding("workers", good=True, text=f"up after {seconds:.1f} s")


def convolutions() -> Finding:
    """Torch's strided 1×1 convolution may corrupt memory.

    The networks of this project do not use it, so the finding is good either way.
    """
    from fedloom.commands.probing import ask, checked_environment

    answer = ask(checked_environment())
    text = f"torch's own strided 1×1 convolution {answer.text}"
    if not answer.sound:
        advice = "slice first, `x[:, :, ::2, ::2]`, then convolve with stride 1"
        text = f"{text}; FedLoom's own networks avoid it, and a network of yours should: {advice}"
    return Finding("convolutions", good=True, text=text)
