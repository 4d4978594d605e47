"""MLflow: a file store in RUN/mlflow, or wherever $MLFLOW_TRACKING_URI points.

Each run of fedloom is one MLflow run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

# By default MLflow wants a database, which would need a server's packages, and sends telemetry.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from fedloom.report.sinks import mark_of

EXPERIMENT = "fedloom"
TAG = "fedloom.run"  # holds the run's mark, by which a resumed run finds its MLflow run again
LONGEST = 500  # characters: MLflow limits the length of a parameter's value
BATCH = 100  # parameters: MLflow accepts no more in one call


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").resolve().as_uri()
        self.client = MlflowClient(tracking_uri=place)
        experiment = self._experiment()
        mark = mark_of(folder)
        marks = (mark, str(folder.resolve()))  # earlier versions used the folder's path
        for run in self.client.search_runs([experiment]):
            if run.data.tags.get(TAG) in marks:
                self.run: str = run.info.run_id
                self.client.update_run(self.run, "RUNNING")
                return
        run = self.client.create_run(experiment, run_name=folder.name, tags={TAG: mark})
        self.run = run.info.run_id
        params = []
        for name, value in settings.items():
            params.append(Param(name, value[:LONGEST]))
        for begin in range(0, len(params), BATCH):
            self.client.log_batch(self.run, params=params[begin : begin + BATCH])

    def _experiment(self) -> str:
        """Return the id of our experiment; the first run creates it."""
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return str(self.client.create_experiment(EXPERIMENT))
        return str(experiment.experiment_id)

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, number) for name, value in figures.items()]
        self.client.log_batch(self.run, metrics)

    def close(self, finished: bool) -> None:
        state = "KILLED"
        if finished:
            state = "FINISHED"
        self.client.set_terminated(self.run, state)
