"""Records what every method computes, to show that a refactoring changes no result.

    python bench/record_bits.py before.json
    python bench/record_bits.py after.json --like before.json    and say what differs

It runs every method and its main variants for two to four rounds. For every run it records the
sha256 of the final checkpoint's tensors, of every client's states, of the figures in result.json
and of the rows of metrics.jsonl (ledger bytes included), without what differs between two runs of
the same program. Bits depend on the CPU and on torch: compare on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedloom.federation.client.store import ClientStore
from fedloom.federation.server.archive import Archive
from fedloom.types import Tensors

CNN = ["--width", "0.125", "--batch", "64"]
CELLS = [
    "--ops",
    "s3",
    "--cells",
    "2",
    "--nodes",
    "1",
    "--channels",
    "4",
    "--batch",
    "64",
    "--epochs",
    "1",
]
BENCH = [
    "--space",
    "nasbench201",
    "--cells",
    "1",
    "--channels",
    "4",
    "--batch",
    "64",
    "--epochs",
    "1",
]
SPIDER = [*CELLS, "--rounds", "4"]
SCHEDULE = ["--t-s", "1", "--tau", "1"]
SERVER_DATA = ["--set", "data.server_share=0.1"]
SHORT_CHAIN = Path(__file__).parents[1] / "tests" / "contract" / "short_chain.toml"
SEARCH = ["--models", "4", "--pool", "2", "--sample", "2", "--rounds", "6", "--tiers", "2"]
FEDORAS = ["--space", str(SHORT_CHAIN), "--batch", "64", "--epochs", "1", *SEARCH]

RUNS: Mapping[str, list[str]] = {
    "fedavg": ["fedavg", *CNN],
    "fedavg clustered": ["fedavg", *CNN, "--topology", "clustered:2x2", "--clients", "4"],
    "fedavg best": ["fedavg", *CNN, "--select", "best"],
    "fedavg resnet18": ["fedavg", "--network", "resnet18", *CNN],
    "fedavg darts-v2": ["fedavg", "--network", "darts-v2", *CNN],
    "fedprox": ["fedprox", *CNN],
    "fedadam": ["fedadam", *CNN],
    "fedyogi": ["fedyogi", *CNN],
    "fedadagrad": ["fedadagrad", *CNN],
    "ditto": ["ditto", *CNN],
    "fedrep": ["fedrep", *CNN, "--head-epochs", "1"],
    "perfedavg": ["perfedavg", *CNN],
    "perfedavg hf": ["perfedavg:hf", *CNN],
    "knn-per": ["knn-per", *CNN],
    "fedmn": ["fedmn", *CNN],
    "local": ["local", *CNN],
    "local-adaptation": ["local-adaptation", *CNN],
    "adapt": ["adapt", "--batch", "64", "--init", "fedavg"],
    "fednas": ["fednas", *CELLS],
    "fednas personal": ["fednas", *CELLS, "--personal", "true", "--rounds", "4"],
    "fednas adapt": ["fednas", *CELLS, "--personal", "true", "--finish", "adapt", "--rounds", "4"],
    "fednas random": ["fednas:random", *CELLS],
    "fednas perturbation": ["fednas:perturbation", *CELLS, *SERVER_DATA, "--rounds", "60"],
    "fednas nasbench201": ["fednas", *BENCH],
    "fednas chain": ["fednas", "--space", "cnn-tiny", "--batch", "64", "--epochs", "1"],
    "fedoras federated": ["fedoras", *FEDORAS, "--score", "federated"],
    "fedoras central": ["fedoras", *FEDORAS, "--score", "central", *SERVER_DATA],
    "spider": ["spider", *SPIDER, *SCHEDULE],
    "spider random": ["spider:random", *SPIDER, *SCHEDULE],
    "spider milenas": ["spider", *SPIDER, "--searcher", "milenas"],
}
COMMON = [
    "--data",
    "digits",
    "--seed",
    "3",
    "--workers",
    "1",
    "--quiet",
    "--clients",
    "2",
    "--rounds",
    "2",
]
# what differs from run to run, or names the place and the version
UNSTEADY = {
    "seconds",
    "clock",
    "measured_clock",
    "wall",
    "versions",
    "path",
    "run",
    "memory",
    "peak",
    "started",
    "config",
    "init",
    "checksums",
    "machine",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--like", type=Path, help="a record of before; say what differs from it")
    parser.add_argument("--only", nargs="+", choices=RUNS, help="these runs alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = {}
        for name in options.only or RUNS:
            record[name] = recorded(Path(folder), name)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    if options.like is None:
        return 0
    return compare(json.loads(options.like.read_text()), record)


def compare(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> int:
    different = 0
    for name, parts in after.items():
        for part, digest in parts.items():
            if before[name].get(part) != digest:
                different += 1
                print(f"{name}: {part} differs")
        missing = before[name].keys() - parts.keys()
        if missing:
            different += 1
            print(f"{name}: {', '.join(sorted(missing))} is gone")
    print(f"{len(after)} runs compared, {different} differences")
    return int(different > 0)


def recorded(folder: Path, name: str) -> dict[str, str]:
    """Run a method, and return the digests of its results."""
    print(name, flush=True)
    run = folder / name.replace(" ", "-")
    method, *flags = RUNS[name]
    command = [sys.executable, "-m", "fedloom", "run", method, *COMMON, *flags, "--out", str(run)]
    subprocess.run(command, cwd=folder, check=True)
    parts = {"weights": digest_of_tensors(Archive(run).final().state.tensors)}
    store = ClientStore(run / "clients")
    for client in range(4):
        for version in store.versions(client):
            state = store.read(client, version)
            digests = digest_of_tensors(state.tensors) + digest(state.meta)
            parts[f"client {client} version {version}"] = digests
    parts["result"] = digest(steady(json.loads((run / "result.json").read_text())))
    rows = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        rows.append(steady_row(json.loads(line)))
    parts["metrics"] = digest(rows)
    return parts


def digest_of_tensors(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def steady(value: Any) -> Any:
    """The same value without what differs between two runs of the same program."""
    if isinstance(value, dict):
        steady_items = {}
        for key, inner in value.items():
            if not is_unsteady(key):
                steady_items[key] = steady(inner)
        return steady_items
    if isinstance(value, list):
        return [steady(inner) for inner in value]
    return value


def is_unsteady(key: str) -> bool:
    return any(part in key for part in UNSTEADY)


def steady_row(row: dict[str, Any]) -> Any:
    """A ledger line is client, hop, bytes down and up, MACs, seconds and memory."""
    lines = [line[:5] for line in row.get("ledger", [])]
    return {**steady(row), "ledger": lines}


if __name__ == "__main__":
    raise SystemExit(main())
