"""MLflow: a file store in RUN/mlflow, or wherever $MLFLOW_TRACKING_URI says; each of our runs is one of MLflow's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

# MLflow keeps files only if asked to (a database would need a server's packages), and would tell home of its use
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

EXPERIMENT = "fedloom"
TAG = "fedloom.run"  # by which a resumed run finds its own again
LONGEST = 500  # characters of a parameter's value, which MLflow bounds


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").resolve().as_uri()
        self.client, mine = MlflowClient(tracking_uri=place), str(folder.resolve())
        known = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = self.client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
        before = [run for run in self.client.search_runs([experiment]) if run.data.tags.get(TAG) == mine]
        if before:
            self.run: str = before[0].info.run_id
            self.client.update_run(self.run, "RUNNING")
            return
        self.run = self.client.create_run(experiment, run_name=folder.name, tags={TAG: mine}).info.run_id
        params = [Param(name, value[:LONGEST]) for name, value in settings.items()]
        for begin in range(0, len(params), 100):  # at most so many at a time
            self.client.log_batch(self.run, params=params[begin : begin + 100])

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(self.run, [Metric(name, value, now, number) for name, value in figures.items()])

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")
