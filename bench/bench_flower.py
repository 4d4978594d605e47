"""What carrying a round costs: our own engine, Flower's simulation, and a real federation of processes on loopback.

The work of a client is next to nothing (16 small images, one step), so a round is messages, processes and waiting. Each
cell is one run of the command; a round's seconds are from the end of one to the end of the next, the first not counted.
Memory is the most that all processes held at once (server, sites and all they start), shared pages counted once (PSS).
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))  # how to start and end a federation
from deployment import FEDLOOM, Deployment, children, wait_for

from measuring import heading, lines

ROUNDS = 4
MODELS = {"small (0.1 MB)": "1", "10 MB": "10.3"}  # factors of the CNN's width
CLIENTS = (2, 10)


class Cost(NamedTuple):
    seconds: float  # a round
    megabytes: float  # all processes together, at most


def write_data(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for number, name in enumerate(names):
        x = np.random.default_rng(number).integers(256, size=(20, 8, 8), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(20) % 10)


def held(pids: list[int]) -> float:
    """Megabytes of these processes, what they share counted once."""
    kilobytes = 0
    for pid in pids:
        try:
            rows = lines(f"/proc/{pid}/smaps_rollup")
        except (ProcessLookupError, PermissionError):  # it ended meanwhile
            continue
        kilobytes += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return kilobytes / 1024


def watch(command: list[str], folder: Path, out: Path, more: list[int]) -> Cost:
    """Run it to its end, looking at its rounds and its memory."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ends: list[float] = []
    most, metrics, looked = 0.0, out / "metrics.jsonl", 0.0
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > len(ends):
            ends.append(time.perf_counter())
        if time.perf_counter() - looked > 0.3:  # looking costs time too
            roots = [process.pid, *more]
            most = max(most, held([pid for root in roots for pid in (root, *children(root))]))
            looked = time.perf_counter()
        time.sleep(0.01)
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read()
    return Cost(median(later - sooner for sooner, later in pairwise(ends)), most)


def words(width: str, out: str) -> list[str]:
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
    command = [*words(width, out), "--data", "sites", "--partition", "sites", "--engine", engine]
    return watch(command, folder, folder / out, [])


def deployed(made: Deployment, width: str) -> Cost:
    command = [*words(width, f"deployed-{width}"), "--federation", str(made.path)]
    standing = [process.pid for process in made.running.values()]
    return watch(command, made.folder, made.folder / f"deployed-{width}", standing)


def start(folder: Path, clients: int) -> Deployment:
    made = Deployment(folder, tuple(f"site-{number}" for number in range(clients))).init()
    for name in made.names:
        (folder / "sites" / f"{name}.npz").unlink()
    (folder / "sites").rmdir()
    write_data(folder / "sites", made.names)
    made.serve()
    for name in made.names:
        made.attend(name)
    assert wait_for(lambda: made.log("server").read_text().count("Activated node_id") >= clients, 120)
    return made


def main() -> None:
    heading("Flower: seconds a round and memory of all processes")
    for clients in CLIENTS:
        with TemporaryDirectory() as folder:
            made = start(Path(folder), clients)
            try:
                for model, width in MODELS.items():
                    costs = {engine: embedded(Path(folder), engine, width) for engine in ("local", "flower-sim")}
                    costs["deployment"] = deployed(made, width)
                    for engine, cost in costs.items():
                        print(
                            f"{clients:2} clients, {model:15} {engine:11} {cost.seconds:8.3f} s a round "
                            f"({cost.seconds / costs['local'].seconds:7.1f}× local)  {cost.megabytes:7.0f} MB",
                            flush=True,
                        )
            finally:
                made.stop()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
