"""The simple job on FedLoom, pfl-research and Flower's simulation with its own FedAvg, in one run.

The work is equal (job.py): the same network and normalisation, 40 steps of 20 samples per round,
SGD with momentum, decay and clipping, weights and BN statistics averaged by samples, one thread,
clients in one process. CPU seconds are those of all processes in a steady state, without start-up
and without evaluation. Remaining differences favour the peers: FedLoom also writes a journal,
metrics and a checkpoint every round, and shuffles a client's samples, as Flower's client here does
too.

pfl-research is installed into its own virtual environment, with the version of torch in
constraints.txt. A peer that is not available is named and left out.

    bench_peers.py [--venv FOLDER] [--data-dir DATA]    FOLDER keeps pfl's environment; without it
                                                        the environment is temporary
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import fedloom
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

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parent / "constraints.txt"
PFL_VERSION = "pfl[pytorch]==0.6.*"
PATIENCE = 1800  # seconds for installing
ROUNDS = 5  # per turn
REPEATS = 14

BARE = "bare, channels last"
ONE = "FedLoom, one worker"
PFL = "pfl-research"
PFL_CHANNELS_LAST = "pfl-research, channels last"
FLOWER = "Flower's simulation, FedAvg"
LEAST = 1.3  # the least accepted speed relative to each peer


class NotAvailable(Exception):
    """The reason why a peer cannot be compared here."""


def main(venv: Path | None, data_dir: Path | None) -> None:
    heading(f"Peers: the simple job, {job.COHORT} clients, {job.STEPS} steps a round")
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        images = job_images(folder, data_dir)
        lanes = {
            BARE: bare_lane(images, folder, "channels_last"),
            ONE: fedloom_lane(images, folder, workers=1),
        }
        try:
            add_peers(lanes, images, folder, venv or folder / "pfl")
            results = lanes_in_turns(lanes, ROUNDS, REPEATS)
        finally:
            for lane in lanes.values():
                lane.close()
    print_turns(results, ONE)
    judge(results)


def add_peers(lanes: dict[str, Lane], images: Path, folder: Path, venv: Path) -> None:
    try:
        python = pfl_python(venv)
        lanes[PFL] = pfl_lane(python, images, folder, "default")
        lanes[PFL_CHANNELS_LAST] = pfl_lane(python, images, folder, "channels_last")
    except NotAvailable as reason:
        print(f"pfl-research is left out: {reason}.")
    try:
        lanes[FLOWER] = flower_lane(images, folder)
    except NotAvailable as reason:
        print(f"Flower is left out: {reason}.")


def pfl_python(venv: Path) -> Path:
    """The interpreter of an environment that has pfl, made if need be."""
    python = venv / "bin" / "python"
    if not python.exists():
        attempt([sys.executable, "-m", "venv", str(venv)], "its environment was not made")
    probe = [str(python), "-c", "import pfl.model.pytorch"]
    if subprocess.run(probe, capture_output=True).returncode == 0:
        return python
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), PFL_VERSION]
    attempt(install, "it could not be installed")
    attempt(probe, "it could not be imported")
    return python


def attempt(command: list[str], failure: str) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"{failure} ({error})") from None
    if result.returncode != 0:
        messages = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise NotAvailable(f"{failure} ({messages[-1]})")


def pfl_lane(python: Path, images: Path, folder: Path, layout: str) -> Lane:
    """Its environment has no FedLoom; the network is imported from here."""
    command = [str(python), str(HERE / "job_pfl.py"), str(images), layout]
    source = Path(fedloom.__file__).parents[1]
    return Lane([command], folder / f"pfl-{layout}.log", {"PYTHONPATH": str(source)})


def flower_lane(images: Path, folder: Path) -> Lane:
    for module in ("flwr", "ray"):
        if importlib.util.find_spec(module) is None:
            raise NotAvailable("it is not installed (make .venv/flower)")
    command = [sys.executable, str(HERE / "job_flower.py"), str(images)]
    return Lane([command], folder / "flower.log", {"FLWR_TELEMETRY_ENABLED": "0"})


def judge(results: dict[str, Turns]) -> None:
    ours = results[ONE].cpu.best
    for name in (PFL, PFL_CHANNELS_LAST, FLOWER):
        if name not in results:
            continue
        ratio = results[name].cpu.best / ours
        verdict(
            f"CPU of {name} against ours", f"{ratio:.2f}×", f"at least {LEAST}×", ratio >= LEAST
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The simple job on FedLoom and its peers")
    parser.add_argument(
        "--venv", type=Path, help="folder of pfl's virtual environment, kept for the next time"
    )
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-10's binary files")
    arguments = parser.parse_args()
    main(arguments.venv, arguments.data_dir)
