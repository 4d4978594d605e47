"""`fedloom adapt`: a newcomer, which was not in the federation, makes its model its own.

It is an ordinary run of the method `adapt` with one client, so it can be resumed, exported and
asked for predictions. The newcomer's samples are split as any client's: a test part by the seed,
and the rest to train on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedloom.config.models import Experiment, validated
from fedloom.evaluate.gain import sgd_of
from fedloom.export.predicting import beside_text, figure_text
from fedloom.records.folder import RunFolder
from fedloom.records.opening import finished_result, one_run
from fedloom.records.result import ClientResult
from fedloom.report.cautions import cautions_of_run
from fedloom.report.progress import Screen
from fedloom.report.tables import seen
from fedloom.runs.configure import config_of
from fedloom.runs.results import Run, begin
from fedloom.types import Json

SLOWER = 10  # fine-tuning has a tenth of the run's learning rate, as local adaptation has


@dataclass(frozen=True)
class Adapted:
    """The newcomer's run, and what it gained."""

    run: Run
    source: str

    @property
    def newcomer(self) -> ClientResult:
        return self.run.record.clients[0]

    @property
    def before(self) -> Json:
        """The model as it came, on the same test samples."""
        figures: dict[str, Json] = {
            self.run.metric.name: self.newcomer.shared_figure,
            "interval": self.newcomer.shared_interval,
        }
        for name in self.run.record.columns_of_classes:
            figures[name] = self.shared_figures[name]
        return figures

    @property
    def shared_figures(self) -> dict[str, float | None]:
        """Of the model as it came, beside the metric's."""
        newcomer = self.newcomer
        return {
            "balanced_accuracy": newcomer.shared_balanced_accuracy,
            "auc": newcomer.shared_auc,
        }

    @property
    def after(self) -> Json:
        figures: dict[str, Json] = {
            self.run.metric.name: self.newcomer.figure,
            "interval": self.newcomer.interval,
        }
        for name in self.run.record.columns_of_classes:
            figures[name] = self.newcomer.beside.get(name)
        return figures

    def to_json(self) -> Json:
        return {
            "run": str(self.run.path),
            "from": self.source,
            "metric": self.run.metric.name,
            "samples": self.newcomer.samples,
            "test_samples": self.newcomer.test_samples,
            "seen": self.run.record.seen,
            "before": self.before,
            "after": self.after,
            "cautions": self.run.record.known_cautions.to_json(),
        }

    def table(self) -> None:
        """Say it in words."""
        newcomer = self.newcomer
        metric = self.run.metric
        tests = f"{newcomer.test_samples} of them only to test on"
        print(f"{newcomer.samples} samples of a newcomer, {tests}")
        before = figure_text(metric, newcomer.shared_figure, newcomer.shared_interval)
        after = figure_text(metric, newcomer.figure, newcomer.interval)
        classes = 2 if self.run.record.has_two_classes else 0
        print(f"before: {before}{beside_text(metric, self.shared_figures, classes)}")
        print(f"after:  {after}{beside_text(metric, newcomer.beside, classes)}")
        for caution in cautions_of_run(self.run.record):
            print(caution)
        doubt = seen(self.run.record)
        if doubt:
            print(doubt.strip())
        export = f"`fedloom export {self.run.path} --client 0`"
        print(f"The model is client 0 of {self.run.path}: {export}")


def adapt(
    path: str | Path,
    data: str,
    *,
    source: int | None,
    tier: int | None = None,
    search: str | None = None,
    shown: Screen,
    tell: Callable[[RunFolder], None],
    directory: str | None = None,
    epochs: int = 10,
    lr: float | None = None,
    test: float = 0.2,
    seed: int = 0,
    out: str | Path | None = None,
) -> Adapted:
    """Fine-tune the shared model of a finished run on a newcomer's samples.

    `source` names a client whose model is taken instead of the shared one; so may be the network
    of a tier of devices, or the one that a search found.
    """
    folder = one_run(path)
    finished_result(folder)  # or there is nothing to begin with
    options = sgd_of(config_of(folder).options)
    if lr is None:
        lr = options.lr / SLOWER
    tree = {
        "method": "adapt",
        "seed": seed,
        "options": options.model_copy(update={"lr": lr}).model_dump(mode="json"),
        "data": {
            "name": data,
            "dir": directory,
            "clients": 1,
            "partition": "iid",
            "test": test,
            "min_samples": 4,
        },
        "budget": {"rounds": epochs},
        "engine": {"workers": 0},
        "init": {"run": str(path), "client": source, "tier": tier, "search": search},
    }
    config: Experiment = validated(Experiment, tree)
    run_path = None
    if out is not None:
        run_path = Path(out)
    run = begin(config, run_path, shown, tell)
    if source is not None:
        return Adapted(run, f"client {source}")
    if tier is not None:
        return Adapted(run, f"tier {tier}")
    if search is not None:
        return Adapted(run, f"search {search}")
    return Adapted(run, "shared")
