"""`fedloom predict`: what a finished run's model says of new samples, by the method's own way of answering."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.export.newdata import new_samples
from fedloom.federation.client.site import scoring_batch
from fedloom.files import write_whole
from fedloom.metrics.metric import Metric, metric_of
from fedloom.records.folder import making
from fedloom.threads import one_thread
from fedloom.types import Json

SHOWN = 20  # samples of a table


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Predictions:
    path: Path  # of the run
    client: int | None
    kind: str
    labels: tuple[str, ...]
    chances: np.ndarray  # [n, classes]
    truth: np.ndarray | None
    figures: Json | None  # as of a test part, if there are labels
    written: Path | None = None

    def rows(self) -> Iterator[list[Any]]:
        for number, chances in enumerate(self.chances):
            best = int(chances.argmax())
            true = [] if self.truth is None else [self.labels[self.truth[number]]]
            yield [number, self.labels[best], *true, float(chances[best]), *map(float, chances)]

    @property
    def head(self) -> list[str]:
        true = [] if self.truth is None else ["truth"]
        return ["sample", "label", *true, "probability", *(f"p({label})" for label in self.labels)]

    def to_json(self) -> Json:
        each = [
            {"label": self.labels[int(row.argmax())], "probability": float(row.max()), "probabilities": row.tolist()}
            for row in self.chances
        ]
        return {
            "run": str(self.path), "client": self.client, "samples": len(self.chances), "labels": list(self.labels),
            "figures": self.figures, "predictions": each,
        }  # fmt: skip

    def csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows(self.rows())
        return text.getvalue().encode()

    def table(self) -> None:
        """Print the first of them, and how many were right."""
        from rich.console import Console

        from fedloom.report.tables import plain_table

        whose = "the shared model" if self.client is None else f"client {self.client}'s model"
        columns = len(self.head) - len(self.labels)
        table = plain_table(f"{self.path}: {whose}", "", self.head[:columns])
        for row in list(self.rows())[:SHOWN]:
            table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row[:columns]))
        Console(markup=False).print(table)
        if len(self.chances) > SHOWN:
            print(f"The first {SHOWN} of {len(self.chances)}; --out FILE.csv has all.")
        print(self.told())

    def told(self) -> str:
        where = "" if self.written is None else f" Written to {self.written}."
        if self.figures is None:
            return f"No labels, so nothing to compare with.{where}"
        metric = metric_of(self.kind)
        return f"{figure_text(metric, self.figures[metric.name], self.figures['interval'])}.{where}"


def figure_text(metric: Metric, figure: float | None, interval: Sequence[float] | None) -> str:
    """A figure with its interval, as a person reads it."""
    text = f"{metric.name} {metric.text(figure)}{metric.unit}"
    if interval is None:
        return text
    low, high = interval
    return f"{text} (95 % interval {metric.text(low)} to {metric.text(high)})"


def predict(
    finished: Finished, data: str, *, client: int | None = None, directory: Path | None = None,
    out: Path | str | None = None,
) -> Predictions:  # fmt: skip
    """Labels and probabilities for new samples; `client` None: by the shared model."""
    if out is not None and Path(out).suffix.lower() != ".csv":
        raise FedloomError("--out must be a .csv file", f"got {out}", "try --out answers.csv")
    model = finished.served(client)
    new = new_samples(finished, data, directory)
    with one_thread():
        scores = answered(model.predictor(), new.x, model.run.device)
    task, truth = finished.task, None if new.y is None else new.y.numpy()
    figures = None if truth is None else metric_of(task.kind).measure(scores.numpy(), truth, len(task.labels))
    place = None if out is None else Path(out)
    chances = scores.softmax(1).numpy()
    found = Predictions(finished.run.path, client, task.kind, task.labels, chances, truth, figures, place)
    if place is not None:
        with making(place):
            write_whole(place, [found.csv()], durable=True)
    return found


@torch.no_grad()
def answered(predict: Any, x: torch.Tensor, device: str) -> torch.Tensor:
    """In the batches of an evaluation, so that equal samples get equal bits."""
    return torch.cat([predict(part.to(device)).cpu().double() for part in x.split(scoring_batch(tuple(x.shape[1:])))])
