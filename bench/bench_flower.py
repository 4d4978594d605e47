"""The cost of carrying a round: our own engine, Flower's simulation and a real federation.

    python bench/bench_flower.py

The federation's processes run on this machine and talk over loopback.

A client's work is negligible (16 small images, one step), so a round consists of messages,
processes and waiting. Each cell is one run of the command. A round's seconds are counted from the
end of one round to the end of the next, without the first. Memory is the peak of all processes
together (server, sites and all that they start); shared pages count once (PSS).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

sys.path.insert(
    0, str(Path(__file__).parents[1] / "tests" / "flower")
)  # how to start and end a federation
from deployment import FEDLOOM, Deployment, children, wait_for

from measuring import heading, lines

ROUNDS = 4
MODELS = {"small (0.1 MB)": "1", "10 MB": "10.3"}  # factors of the CNN's width
CLIENTS = (2, 10)


def main() -> None:
    heading("Flower: seconds a round and memory of all processes")
    for clients in CLIENTS:
        with TemporaryDirectory() as folder:
            deployment = start(Path(folder), clients)
            try:
                for model, width in MODELS.items():
                    compare(deployment, f"{clients:2} clients, {model:15}", width)
            finally:
                deployment.stop()


class Cost(NamedTuple):
    seconds: float  # per round
    megabytes: float  # the peak of all processes together


def write_data(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for number, name in enumerate(names):
        x = np.random.default_rng(number).integers(256, size=(20, 8, 8), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(20) % 10)


def memory_of_trees(roots: list[int]) -> float:
    """Megabytes of these processes and their children; shared pages count once."""
    kilobytes = 0
    for root in roots:
        for pid in (root, *children(root)):
            kilobytes += proportional_kilobytes(pid)
    return kilobytes / 1024


def proportional_kilobytes(pid: int) -> int:
    try:
        rows = lines(f"/proc/{pid}/smaps_rollup")
    except (ProcessLookupError, PermissionError):  # it ended meanwhile
        return 0
    for row in rows:
        if row.startswith("Pss:"):
            return int(row.split()[1])
    return 0


def watch(command: list[str], folder: Path, out: Path, more: list[int]) -> Cost:
    """Run a command to its end, while watching its rounds and its memory."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    ends: list[float] = []
    most = 0.0
    metrics = out / "metrics.jsonl"
    looked = 0.0
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > len(ends):
            ends.append(time.perf_counter())
        if time.perf_counter() - looked > 0.3:  # looking costs time too
            most = max(most, memory_of_trees([process.pid, *more]))
            looked = time.perf_counter()
        time.sleep(0.01)
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read()
    return Cost(median(later - sooner for sooner, later in pairwise(ends)), most)


def command_line(width: str, out: str) -> list[str]:
    return [
        *FEDLOOM,
        "run",
        "fedavg",
        "--rounds",
        str(ROUNDS),
        "--width",
        width,
        "--evaluate-every",
        "100",
        "--out",
        out,
    ]


def embedded(folder: Path, engine: str, width: str) -> Cost:
    out = f"{engine}-{width}"
    command = [
        *command_line(width, out),
        "--data",
        "sites",
        "--partition",
        "sites",
        "--engine",
        engine,
    ]
    return watch(command, folder, folder / out, [])


def deployed(deployment: Deployment, width: str) -> Cost:
    command = [*command_line(width, f"deployed-{width}"), "--federation", str(deployment.path)]
    standing = [process.pid for process in deployment.running.values()]
    return watch(command, deployment.folder, deployment.folder / f"deployed-{width}", standing)


def start(folder: Path, clients: int) -> Deployment:
    deployment = Deployment(folder, tuple(f"site-{number}" for number in range(clients))).init()
    for name in deployment.names:
        (folder / "sites" / f"{name}.npz").unlink()
    (folder / "sites").rmdir()
    write_data(folder / "sites", deployment.names)
    deployment.serve()
    for name in deployment.names:
        deployment.attend(name)
    assert wait_for(
        lambda: deployment.log("server").read_text().count("Activated node_id") >= clients, 120
    )
    return deployment


def compare(deployment: Deployment, title: str, width: str) -> None:
    costs = {
        "local": embedded(deployment.folder, "local", width),
        "flower-sim": embedded(deployment.folder, "flower-sim", width),
        "deployment": deployed(deployment, width),
    }
    for engine, cost in costs.items():
        ratio = cost.seconds / costs["local"].seconds
        print(
            f"{title} {engine:11} {cost.seconds:8.3f} s a round ({ratio:7.1f}× local)  "
            f"{cost.megabytes:7.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
