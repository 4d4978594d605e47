"""The simple job as a run of FedLoom, with wire, journal, merge, checkpoint and metrics.

job_fedloom.py IMAGES WORKERS FOLDER    WORKERS: 0 for the inline engine; FOLDER: of the run
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

import job
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.runs.experiment import create, execute
from measuring import experiment


def main(images: str, workers: int, folder: Path) -> None:
    config = experiment(
        method="fedavg",
        options={
            "network": "cnn",
            "epochs": 1,
            "batch": job.BATCH,
            "lr": job.LR,
            "momentum": job.MOMENTUM,
            "weight_decay": job.WEIGHT_DECAY,
            "clip": job.CLIP,
        },
        data={
            "name": images,
            "clients": job.CLIENTS,
            "partition": "iid",
            "test": 1 - job.TRAIN / job.SAMPLES,
        },
        budget={"rounds": 10**6, "participation": job.COHORT / job.CLIENTS},
        engine={"workers": workers},
    )
    run, prepared = create(config, folder)
    sizes = np.diff(prepared.split.offsets) - prepared.split.tests
    assert (sizes == job.TRAIN).all(), f"clients train on {set(sizes.tolist())} samples"
    conductor = job.Conductor()

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            assert event.row.replies == job.COHORT
            conductor.after_round()

    conductor.before_first_round()
    execute(run, prepared, listen=listen)


if __name__ == "__main__":
    with suppress(job.Finished):
        main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
