"""The peak memory of a client's process that trains a large model, next to the model's size.

    python bench/bench_memory.py [MEGABYTES]

One client trains a network of equal linear layers for a few steps, with FedAvg and one worker. The
figure is the peak in the ledger: everything resident, Python and torch included.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fedloom.records.folder import RunFolder
from fedloom.runs.experiment import create, execute
from measuring import experiment, heading, images, verdict

MEGABYTES = 500
NETWORK = """
from torch import nn

LAYERS = {layers}
SIDE = 1024


class Large(nn.Sequential):
    refillable = True

    def __init__(self, shape, classes, width=1.0):
        inputs = shape[0] * shape[1] * shape[2]
        middle = [nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS)]
        super().__init__(nn.Flatten(), nn.Linear(inputs, SIDE), *middle, nn.Linear(SIDE, classes))
"""


def main() -> None:
    megabytes = MEGABYTES
    if len(sys.argv) > 1:
        megabytes = int(sys.argv[1])
    heading(f"Memory of a client that trains a model of {megabytes} MB")
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        peak = peak_of(Path(name), megabytes)
    ratio = peak / (megabytes * 1e6)
    print(f"peak {peak / 1e6:.0f} MB")
    verdict("peak against the model", f"{ratio:.2f}×", "at most 4×", ratio <= 4)


def peak_of(folder: Path, megabytes: int) -> int:
    """The worker's peak in bytes."""
    network = folder / "large.py"
    network.write_text(NETWORK.format(layers=megabytes // 4))
    data = images(folder / "images.npz", 40, (1, 8, 8))
    config = experiment(
        method="fedavg",
        options={"network": f"{network}:Large", "batch": 16},
        data={"name": data, "clients": 1, "partition": "iid"},
        budget={"rounds": 2},
        engine={"workers": 1},
    )
    run, prepared = create(config, folder / "run")
    execute(run, prepared)
    peaks = []
    for row in RunFolder(run.path).rows():
        for line in row.ledger:
            if line.hop >= 0 and line.memory is not None:
                peaks.append(line.memory)
    return max(peaks)


if __name__ == "__main__":
    main()
