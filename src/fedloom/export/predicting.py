"""`fedloom predict`: the predictions of a finished run's model for new samples."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedloom.data.source import SkippedFile
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.export.newdata import NewSamples, expected_by, new_samples
from fedloom.export.trained_on import TrainedOn, trained_on
from fedloom.federation.client.site import scoring_batch
from fedloom.files import write_whole
from fedloom.metrics.figures import Figures
from fedloom.metrics.measuring import in_own_units, measured
from fedloom.metrics.metric import PERPLEXITY, Metric, metric_of
from fedloom.nets.folding import weights_stay
from fedloom.records.cautions import has_one_answer
from fedloom.records.folder import making
from fedloom.threads import one_thread
from fedloom.types import Json, Task

SHOWN = 20  # samples that a printed table shows
IN_WORDS = {"balanced_accuracy": "balanced accuracy", "auc": "AUC", "mae": "MAE"}


@dataclass(frozen=True, eq=False, kw_only=True)  # arrays have no truth value
class Predictions:
    """The predictions for some samples, printed and written alike whatever they are.

    A subclass holds the predicted classes or numbers.
    """

    path: Path  # of the run
    client: int | None
    kind: str
    labels: tuple[str, ...]
    truth: np.ndarray | None
    measured: Figures | None  # None: there are no labels
    trained: TrainedOn  # whether the run was trained on these samples
    skipped: tuple[SkippedFile, ...] = ()  # unreadable files, with --skip-bad
    files: tuple[str, ...] = ()  # the file of each sample, if the data are files without labels
    written: Path | None = None
    whose: str = "the shared model"  # or another model, as it is called in a sentence

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def head(self) -> list[str]:
        """The names of the columns of `rows`."""
        raise NotImplementedError

    def rows(self) -> Iterator[list[Any]]:
        """The cells of a table with one row per sample."""
        raise NotImplementedError

    @property
    def first_column(self) -> str:
        """The title of the column that says which sample it is."""
        return "file" if self.files else "sample"

    def name_of(self, number: int) -> str | int:
        """A sample's file; without files, its number."""
        if self.files:
            return self.files[number]
        return number

    def with_file(self, number: int, answer: dict[str, Json]) -> dict[str, Json]:
        """The answer for a sample, with the sample's file if it has one."""
        if self.files:
            return {"file": self.files[number], **answer}
        return answer

    @property
    def shown_columns(self) -> int:
        """How many of the columns are printed in a terminal."""
        return len(self.head)

    def answers(self) -> list[dict[str, Json]]:
        """One answer per sample, as a JSON object."""
        raise NotImplementedError

    @property
    def figures(self) -> dict[str, Json] | None:
        """The results by their names; None: there are no labels."""
        if self.measured is None:
            return None
        return self.measured.to_json()

    def to_json(self) -> Json:
        answer = {
            "run": str(self.path),
            "client": self.client,
            "model": self.whose,
            "samples": len(self),
            **self.trained.to_json(),
            "labels": list(self.labels),
            "figures": self.figures,
            "predictions": self.answers(),
        }
        if self.skipped:
            answer["skipped"] = [
                {"file": file.file, "reason": file.reason} for file in self.skipped
            ]
        return answer

    def csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows(self.rows())
        return text.getvalue().encode()

    def table(self) -> None:
        """Print the first predictions and a summary."""
        from rich.console import Console

        from fedloom.report.tables import plain_table

        columns = self.shown_columns
        table = plain_table(f"{self.path}: {self.whose}", "", self.head[:columns])
        for row in islice(self.rows(), SHOWN):
            table.add_row(*map(cell_text, row[:columns]))
        Console(markup=False).print(table)
        if len(self) > SHOWN:
            print(f"The first {SHOWN} of {len(self)}; --out FILE.csv has all.")
        for file in self.skipped:
            print(f"Skipped {file.file}: {file.reason}.")
        print(self.summary())

    def summary(self) -> str:
        if self.measured is None:
            text = "There are no labels to compare with."
        else:
            metric = metric_of(self.kind)
            figure = figure_text(metric, self.measured.value, self.measured.interval)
            text = f"{figure}{beside_text(metric, self.measured.beside, len(self.labels))}."
            answers = self.measured.answers
            if has_one_answer(answers, len(self), self.measured.value):
                text += " The model gives the same answer for every sample."
            if metric.counts_answers and self.measured.of("balanced_accuracy") is None:
                text += " All labels are of one class, so that there is no balanced accuracy."
        text += f" {self.trained.sentence(len(self))}"
        if self.written is not None:
            text += f" Written to {self.written}."
        return text


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPredictions(Predictions):
    chances: np.ndarray  # [n, classes]

    def __len__(self) -> int:
        return len(self.chances)

    def rows(self) -> Iterator[list[Any]]:
        for number, chances in enumerate(self.chances):
            best = int(chances.argmax())
            row: list[Any] = [self.name_of(number), self.labels[best]]
            if self.truth is not None:
                row.append(self.labels[self.truth[number]])
            row.append(float(chances[best]))
            row.extend(map(float, chances))
            yield row

    @property
    def head(self) -> list[str]:
        names = [self.first_column, "label"]
        if self.truth is not None:
            names.append("truth")
        names.append("probability")
        names.extend(f"p({label})" for label in self.labels)
        return names

    @property
    def shown_columns(self) -> int:
        return len(self.head) - len(self.labels)

    def answers(self) -> list[dict[str, Json]]:
        predictions = []
        for number, chances in enumerate(self.chances):
            prediction = {
                "label": self.labels[int(chances.argmax())],
                "probability": float(chances.max()),
                "probabilities": chances.tolist(),
            }
            predictions.append(self.with_file(number, prediction))
        return predictions


@dataclass(frozen=True, eq=False, kw_only=True)
class NumberPredictions(Predictions):
    """Predicted numbers, in the label's own units, as the true ones are."""

    numbers: np.ndarray  # [n]

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self) -> Iterator[list[Any]]:
        for number, answer in enumerate(self.numbers.tolist()):
            row: list[Any] = [self.name_of(number), answer]
            if self.truth is not None:
                row += [float(self.truth[number]), answer - float(self.truth[number])]
            yield row

    @property
    def head(self) -> list[str]:
        names = [self.first_column, self.labels[0]]
        if self.truth is not None:
            names += ["truth", "error"]
        return names

    def answers(self) -> list[dict[str, Json]]:
        predictions = []
        for number, answer in enumerate(self.numbers.tolist()):
            predictions.append(self.with_file(number, {"value": answer}))
        return predictions


def cell_text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return str(cell)


def figure_text(metric: Metric, figure: float | None, interval: Sequence[float] | None) -> str:
    """A figure with its confidence interval, for people to read."""
    text = f"{metric.title} {metric.text(figure)}{metric.unit}"
    if interval is None:
        return text
    low, high = interval
    return f"{text} (95 % interval {metric.text(low)} to {metric.text(high)})"


def beside_text(metric: Metric, beside: Mapping[str, float | None], classes: int) -> str:
    """Further figures, as in `, balanced accuracy 50.0 %, AUC 61.2 %`.

    AUC is given for two classes only, and for text there is nothing further.
    """
    if metric is PERPLEXITY:
        return ""
    text = ""
    for name in metric.columns:
        value = beside.get(name)
        if value is None or (name == "auc" and classes != 2):
            continue
        text += f", {IN_WORDS[name]} {metric.text_beside(value)}{metric.unit_beside}"
    return text


def predict(
    finished: Finished,
    data: str,
    *,
    client: int | None = None,
    directory: Path | None = None,
    skip_bad: bool = False,
    out: Path | str | None = None,
) -> Predictions:
    """Predict labels and probabilities, or numbers, for new samples.

    `client` None: the shared model predicts.
    """
    if out is not None and Path(out).suffix.lower() != ".csv":
        raise FedloomError("--out must be a .csv file", f"got {out}", "try --out answers.csv")
    model = finished.served(client)
    new = new_samples(expected_by(finished), data, directory, skip_bad=skip_bad)
    with one_thread():
        scores = scores_in_batches(model.predictor(), new.x, model.run.device)
    task = finished.task
    predictions = predictions_of(finished, client, task, scores, new)
    if out is None:
        return predictions
    place = Path(out)
    with making(place):
        write_whole(place, [predictions.csv()], durable=True)
    return replace(predictions, written=place)


def predictions_of(
    finished: Finished,
    client: int | None,
    task: Task,
    scores: torch.Tensor,
    new: NewSamples,
) -> Predictions:
    """The predictions that follow from the scores of some samples."""
    truth = None
    figures = None
    if new.y is not None:
        truth = in_own_units(new.y.numpy(), task)
        figures = measured(scores.numpy(), new.y.numpy(), task)
    common: dict[str, Any] = {
        "path": finished.run.path,
        "client": client,
        "kind": task.kind,
        "labels": task.labels,
        "truth": truth,
        "measured": figures,
        "trained": trained_on(finished, new.x),
        "skipped": new.skipped,
        "files": new.files,
        "whose": finished.whose(client),
    }
    if task.is_regression:
        return NumberPredictions(numbers=in_own_units(scores.numpy()[:, 0], task), **common)
    return ClassPredictions(chances=scores.softmax(1).numpy(), **common)


@torch.no_grad()
def scores_in_batches(predict: Any, x: torch.Tensor, device: str) -> torch.Tensor:
    """The scores of samples, computed in the batches of an evaluation.

    So a sample gets the same bits as in the run's own evaluation.
    """
    batch = scoring_batch(tuple(x.shape[1:]))
    with weights_stay():
        return torch.cat([predict(part.to(device)).cpu().double() for part in x.split(batch)])
