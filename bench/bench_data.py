"""Does data take its own size in memory, and does it open fast?

    python bench/bench_data.py

CIFAR-10 at its true size (made up, since only the size counts): how long until it is open and its
digest known, and how much memory two workers need for it. Each worker reads all of it, client by
client, from one file that they map. A worker's own memory should stay far below the size
of the data; the mapped pages belong to the page cache and are shared by all.

An npz of a million images, stored and compressed: the peak of resident memory from before it is
opened until its digest is known and one client's samples are read, against the size of the images.
A folder of image files: how fast it is decoded the first time, and how fast it opens from then on.

Every figure is measured in its own process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.readers.cifar import TEN
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.data.split import make_split
from measuring import heading, in_new_process, own_memory, verdict

MILLION = 1_000_000
SIDE = 16
PICTURES = 5_000
MB = 1e6


def main() -> None:
    heading("Data: CIFAR-10, a million images, a folder of files")
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        os.environ["FEDLOOM_CACHE"] = str(folder / "cache")
        cifar(folder)
        million(folder)
        pictures(folder)


@dataclass(frozen=True)
class Opened:
    """A source that was opened in its own process."""

    seconds: float  # until its digest is known
    rise: int  # of the peak of memory, in bytes
    size: int  # of all samples
    digest: str
    first: int  # the sum of the first samples: they were read


@dataclass(frozen=True)
class Worked:
    """A worker that has read every client."""

    memory: int  # of its own, in bytes
    seconds: float


def cifar(folder: Path) -> None:
    make_cifar(folder)
    first = opened("cifar10", folder)
    second = opened("cifar10", folder)
    seconds = min(first.seconds, second.seconds)
    print(f"CIFAR-10, {first.size / MB:.0f} MB: open with its digest in {seconds:.2f} s")
    workers = [Worked(**worker) for worker in in_new_process(__file__, "share", folder)]
    memory = max(worker.memory for worker in workers)
    print(
        f"  a worker that has read every client holds {memory / MB:.1f} MB of its own, in "
        f"{workers[0].seconds:.2f} s"
    )
    verdict("CIFAR-10 opens", f"{seconds:.2f} s", "below 2 s", seconds < 2)
    verdict(
        "a worker's own memory",
        f"{memory / first.size:.1%} of the data",
        "below 10 %",
        memory < 0.1 * first.size,
    )


def million(folder: Path) -> None:
    make_million(folder)
    for file, when in (
        ("stored.npz", ""),
        ("packed.npz", ", unpacked for the first time"),
        ("packed.npz", ", from then on"),
    ):
        images = opened(file, folder)
        print(
            f"{file}, {images.size / MB:.0f} MB of images{when}: {images.seconds:.2f} s, "
            f"memory rises by {images.rise / MB:.0f} MB"
        )
        verdict(
            "memory",
            f"{images.rise / images.size:.0%} of the images",
            "below 50 %",
            images.rise < images.size / 2,
        )


def pictures(folder: Path) -> None:
    make_pictures(folder / "pictures")
    first = opened("pictures", folder)
    later = opened("pictures", folder)
    print(
        f"{PICTURES:,} PNG files: {PICTURES / first.seconds:,.0f} a second at first, then "
        f"{later.seconds:.2f} s"
    )
    assert first.digest == later.digest
    ratio = first.seconds / later.seconds
    verdict("from the cache", f"{ratio:.0f} times as fast", "above 5", ratio > 5)


# The files


def make_cifar(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for name in TEN.files:
        records = draw.integers(256, size=(10_000, TEN.record), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())


def make_million(folder: Path) -> None:
    y = np.arange(MILLION) % 10
    x = np.broadcast_to((y[:, None, None] * 20).astype(np.uint8), (MILLION, SIDE, SIDE))
    np.savez(folder / "stored.npz", x=x, y=y)
    np.savez_compressed(folder / "packed.npz", x=x, y=y)


def make_pictures(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(PICTURES):
        file = folder / f"class{number % 10}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(file)


# In their own processes


def opened(name: str, directory: Path) -> Opened:
    return Opened(**in_new_process(__file__, "open_one", name, directory))


def open_one(name: str, directory: str) -> dict[str, Any]:
    """Seconds until a source is open and its digest known, and how far the peak of memory rose."""
    open_source("digits").digest  # noqa: B018 - so that no import is measured
    before = peak()
    started = time.perf_counter()
    source = open_source(name, Path(directory))
    digest = source.digest
    seconds = time.perf_counter() - started
    first = int(np.asarray(source.x[:1000]).sum())
    return asdict(Opened(seconds, peak() - before, source.x.nbytes, digest, first))


def share(directory: str) -> list[dict[str, Any]]:
    """Two workers on one clients_data of CIFAR-10."""
    source: Source = open_source("cifar10", Path(directory))
    folder = Path(directory) / "clients_data"
    MappedClients.build(folder, source, make_split(source, 100, "iid", 0))
    return [in_new_process(__file__, "work", folder) for _ in range(2)]


def work(folder: str) -> dict[str, Any]:
    """Read one client after the other from a clients_data folder, as a worker does."""
    clients_data = MappedClients.open(Path(folder))
    before = own_memory()
    started = time.perf_counter()
    for client in range(len(clients_data)):
        data = clients_data.client(client)
        assert len(data.train) > 0
    memory = own_memory() - before
    return asdict(Worked(memory, time.perf_counter() - started))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


TASKS: dict[str, Callable[..., Any]] = {"open_one": open_one, "work": work, "share": share}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
