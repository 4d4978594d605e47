"""The simple job on Flower's simulation with Flower's own FedAvg, with clients in one Ray process.

    job_flower.py IMAGES

The process keeps its images and its network between messages, which most apps do not do.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import job
from job_flower_client import client_app


def server_app(conductor: job.Conductor) -> ServerApp:
    app = ServerApp()

    def after_round(number: int, arrays: ArrayRecord) -> None:
        if number > 0:  # it is also called before the first
            conductor.after_round()

    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=job.COHORT / job.CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=job.COHORT,
            min_available_nodes=job.CLIENTS,
        )
        initial = ArrayRecord(job.network().state_dict())
        conductor.before_first_round()
        with suppress(job.Finished):
            strategy.start(grid, initial, num_rounds=10**6, evaluate_fn=after_round)

    app.main()(main)
    return app


def main(images: Path) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app(job.Conductor()),
        client_app(str(images)),
        job.CLIENTS,
        backend_config={
            "init_args": {"num_cpus": 1, "logging_level": logging.ERROR, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
