"""Admission of the replies that every client gives: its description, and its evaluations."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from fedloom.config.histograms import HistogramRule
from fedloom.federation.protocol.evaluation import EvaluationReply
from fedloom.federation.protocol.histograms import refuse_histogram
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.types import Json, Task

MOST_SAMPLES = 1 << 40  # of one client; a larger count cannot be true


def refuse_description(
    meta: Json,
    task: Task,
    histograms: HistogramRule | None = None,
) -> str | None:
    """Why a client cannot take part in this task, or None if it can.

    `histograms` is how the client was asked to report its label counts.
    """
    reason = _misfit(Description, meta)
    if reason is not None:
        return reason
    if tuple(meta["shape"]) != task.shape:
        return f"its samples have shape {meta['shape']}, the run expects {list(task.shape)}"
    if tuple(meta["labels"]) != task.labels:
        expected_labels = f"{list(task.labels[:5])}…, in this order"
        return f"its labels are {meta['labels'][:5]}…, the run expects {expected_labels}"
    return refuse_histogram(meta.get("histogram"), histograms, len(task.labels))


def refuse_evaluation(meta: Json, samples: float, metric: Metric, classes: int = 0) -> str | None:
    """Why an evaluation cannot be true, or None.

    `samples` is the number of samples that the client described.
    """
    reason = _misfit(evaluation_by(metric), meta)
    if reason is not None:
        return reason
    evaluation = EvaluationReply.from_meta(meta, metric.name)
    for name, figures in (("personal", evaluation.personal), ("shared", evaluation.shared)):
        if figures is None:
            continue
        if figures.samples > samples:
            return f"it evaluated {figures.samples} samples of {samples}"
        if not _can_have_answered(figures, classes):
            answers = f"{figures.answers} different ones"
            return f"its {name}.answers: it cannot have given {answers}"
    if evaluation.confusion is None:
        return None
    return _refuse_confusion(evaluation.confusion, evaluation.personal, classes)


def _can_have_answered(figures: Figures, classes: int) -> bool:
    """Whether the reported number of different answers, if any, is possible.

    `classes` is 0 if the number of classes is unknown.
    """
    answers = figures.answers
    if answers is None:
        return True
    if classes and answers > classes:
        return False
    if figures.correct and not answers:
        return False
    return answers <= figures.samples


def _refuse_confusion(counts: list[list[int]], figures: Figures, classes: int) -> str | None:
    """Check that a confusion matrix has the task's classes and agrees with the metrics."""
    if len(counts) != classes or any(len(row) != classes for row in counts):
        return f"its confusion: it is not {classes} × {classes}"
    counted = sum(map(sum, counts))
    correct = sum(row[number] for number, row in enumerate(counts))
    if counted > figures.samples or correct != figures.correct:
        return "its confusion: it does not agree with its samples and correct answers"
    predicted = [column for column in zip(*counts, strict=True) if any(column)]
    if figures.answers is not None and figures.answers != len(predicted):
        return "its confusion: it does not agree with its number of different answers"
    return None


def _misfit(schema: type[Closed], meta: Json) -> str | None:
    """Why a reply's meta does not follow a schema, or None if it does."""
    try:
        # It is checked as JSON, where a list is accepted as a tuple, but "1" not as a number.
        schema.model_validate_json(json.dumps(meta))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"its {place}: {first['msg'].lower()}"
    return None


class Closed(BaseModel):
    """A schema that allows no other fields than those it names."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Counts(Closed):
    train: int = Field(ge=0, le=MOST_SAMPLES)
    validation: int = Field(ge=0, le=MOST_SAMPLES)
    test: int = Field(ge=0, le=MOST_SAMPLES)


class Description(Closed):
    """What the reply to a describe order contains."""

    shape: tuple[int, ...]
    labels: tuple[str, ...]
    samples: Counts
    extra: dict[str, Json]
    histogram: Any = None  # checked separately, because it depends on what was asked for


class Counted(Closed):
    """What an evaluation contains for one model, whatever its metric."""

    samples: int = Field(ge=0)
    correct: int = Field(ge=0)

    @model_validator(mode="after")
    def consistent(self) -> Counted:
        if self.correct > self.samples:
            raise ValueError("more correct answers than samples")
        return self


@cache
def evaluation_by(metric: Metric) -> type[Closed]:
    """The schema of the reply to an evaluate order, for a metric.

    The reply has the metric within its bounds, its interval, and the additional metrics. Sites of
    earlier versions do not report how many different answers their models gave.
    """
    low, high = metric.bounds
    figure: Any = Annotated[float, Field(ge=low, le=high)]
    least, most = metric.bounds_beside
    beside: Any = Annotated[float, Field(ge=least, le=most)]
    pair: Any = tuple[figure, figure]
    fields: Any = {metric.name: (figure | None, ...), "interval": (pair | None, ...)}
    fields |= dict.fromkeys(metric.beside, (beside | None, ...))
    count: Any = Annotated[int, Field(ge=0)]
    if metric.counts_answers:
        fields["answers"] = (count | None, None)
    figures: Any = create_model("Figures", __base__=Counted, **fields)
    confusion: Any = (list[list[count]] | None, None)
    parts: Any = {
        "personal": (figures, ...),
        "shared": (figures | None, ...),
        "confusion": confusion,
    }
    return create_model("Evaluation", __base__=Closed, **parts)
