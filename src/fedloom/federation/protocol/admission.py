"""Admission: every reply is checked here before anything reads it as a model.

Its size is checked before memory is allocated, then the closed schema, then declared fields and
their types, keys, shapes, dtypes, finiteness, the growth of counters, and the bounds of its weight.
The result is the reason for a refusal, or None.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticUserError

from fedloom.config.histograms import HistogramRule
from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import EvaluationReply
from fedloom.federation.protocol.histograms import refuse_histogram
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import Layout, Packed
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric
from fedloom.types import Fields, Json, Order, Reply, Task, Tensors

HEADER_ALLOWANCE = 1 << 20  # bytes of header that a reply may have in addition to its tensors
EXTRA_ALLOWANCE = 256 << 20  # bytes that extra tensors may add, where a reply may have them
MOST_TEXT = 1000  # characters of a string whose field is declared by its name alone
MOST_SAMPLES = 1 << 40  # of one client; a larger count cannot be true


class Expected:
    """What a reply to an order must and may contain.

    One object serves all orders of a kind with the same tensors.
    """

    def __init__(self, order: Order, fields: Fields) -> None:
        self.fields = fields
        self.required = wanted(order, fields)
        self.tensors = {**self.required, **allowed(order, fields)}  # all that may come back
        self.most_bytes = self._most_bytes(len(order.tensors))
        # The layout of replies that have the right tensors, and the counters among these.
        self.layout: Layout | None = None
        self.counters: Counters | None = None

    def _most_bytes(self, sent: int) -> int:
        """The size of the largest honest reply."""
        most = sum(tensor.nbytes for tensor in self.tensors.values())
        most += 256 * sent + HEADER_ALLOWANCE
        if self.fields.extra:
            most += EXTRA_ALLOWANCE
        return most


def refuse(
    reply: Reply,
    order: Order,
    expected: Expected,
    most_weight: float,
    most_steps: int | None = None,
) -> str | None:
    """Why this reply may not be used, or None. Without `most_steps`, integers are not checked."""
    if reply.client != order.client:
        return f"it says it comes from client {reply.client}"
    reason = _refuse_meta(reply, expected.fields)
    if reason is None:
        reason = _refuse_state(reply, order, expected.fields)
    if reason is None:
        reason = _refuse_weight(reply, order, expected, most_weight)
    if reason is None:
        reason = _refuse_tensors(reply, expected, most_steps)
    return reason


def refuse_by_method(method: Method, order: Order, reply: Reply, samples: int) -> str | None:
    """Why the method itself refuses a reply that `refuse` has accepted, or None.

    The method's code reads what somebody else sent. If it raises an error, the reply is refused and
    the run goes on.
    """
    try:
        return method.check_reply(order, reply, samples)
    except Exception as error:
        return f"it could not be checked ({type(error).__name__}: {error})"


def wanted(order: Order, fields: Fields) -> Tensors:
    """The tensors of the order that a reply must return."""
    return {name: tensor for name, tensor in order.tensors.items() if matches(name, fields.tensors)}


def allowed(order: Order, fields: Fields) -> Tensors:
    """The tensors of the order that a reply may return or leave out."""
    tensors = {}
    for name, tensor in order.tensors.items():
        if matches(name, fields.optional) and not matches(name, fields.tensors):
            tensors[name] = tensor
    return tensors


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether the name matches one of the patterns, such as `alpha/*`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_meta(reply: Reply, fields: Fields) -> str | None:
    undeclared = sorted(set(reply.meta) - set(fields.meta))
    if undeclared:
        return f"it holds the undeclared field {undeclared[0]!r}"
    if reply.count is not None:
        return "it claims to be an aggregator's"
    if isinstance(fields.meta, Mapping):
        return _refuse_types(reply, fields.meta)
    for name, value in reply.meta.items():
        if not is_plain(value):
            text = f"a string of at most {MOST_TEXT:,} characters"
            return f"its {name}: neither a finite number, nor {text}, nor null"
    return None


def is_plain(value: Json) -> bool:
    """Whether a field that is declared by its name alone may hold this value."""
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    if isinstance(value, int | float):
        return abs(value) <= sys.float_info.max
    return value is None


def _refuse_types(reply: Reply, types: Mapping[str, Any]) -> str | None:
    """Check values strictly against their declared types.

    Values are checked as JSON, where a list is accepted as a tuple, but "1" not as a number.
    """
    for name, annotation in types.items():
        if annotation is Any:
            continue
        text = json.dumps(reply.meta.get(name))
        if len(text) > HEADER_ALLOWANCE:
            most = f"at most {HEADER_ALLOWANCE:,} are expected"
            return f"its {name}: it has {len(text):,} characters, {most}"
        try:
            adapter_of(annotation).validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join([name, *map(str, first["loc"])])
            return f"its {place}: {first['msg'].lower()}"
    return None


@cache
def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def check_fields(method: Method) -> None:
    """Raise an error if the fields that a method declares for its replies cannot be checked.

    Call this before anything is sent.
    """
    name_of_method = type(method).__name__
    advice = "see docs/add-a-method.md"
    declared = getattr(method, "fields", None)
    if not isinstance(declared, Mapping):
        rule = f"{name_of_method} must declare `fields`, a dict of Fields by kind of order"
        problem = "it declares none"
        if declared is not None:
            problem = f"it is a {type(declared).__name__}"
        raise FedloomError(rule, problem, advice)
    for kind, fields in declared.items():
        declaration = f"{name_of_method} must declare the fields of {kind!r}"
        if not isinstance(fields, Fields):
            rule = f"{declaration} as Fields(…)"
            raise FedloomError(rule, f"it is a {type(fields).__name__}", advice)
        for name in ("tensors", "optional", "extra", "largest"):
            patterns = getattr(fields, name)
            if isinstance(patterns, str):  # its letters would be patterns, "*" among them
                rule = f"{declaration} with a tuple of patterns for `{name}`"
                correct = f'write {name}=("{patterns}",)'
                raise FedloomError(rule, f"it is the string {patterns!r}", correct)
        rule = f"{declaration} as names, or as names with types"
        if isinstance(fields.meta, str):
            correct = f'write meta=("{fields.meta}",)'
            raise FedloomError(rule, f"meta is the string {fields.meta!r}", correct)
        if not isinstance(fields.meta, Mapping):
            continue
        for name, annotation in fields.meta.items():
            try:
                adapter_of(annotation)
            except (PydanticUserError, TypeError) as error:
                problem = f"{name} has {annotation!r} ({str(error).splitlines()[0]})"
                raise FedloomError(rule, problem, advice) from None


def _refuse_state(reply: Reply, order: Order, fields: Fields) -> str | None:
    if reply.wrote and fields.writes is False:
        return f"it claims a new state, which an order of kind {order.kind!r} never makes"
    return None


def _refuse_weight(
    reply: Reply,
    order: Order,
    expected: Expected,
    most: float,
) -> str | None:
    if not isinstance(reply.weight, Mapping):
        return _refuse_number(reply.weight, most)
    for name, weight in reply.weight.items():
        reason = _refuse_number(weight, most)
        if reason is not None:
            return reason
        if name and name not in order.tensors:
            return f"it weighs the unknown tensor {name!r}"
        if weight and name in expected.tensors and name not in reply.tensors:
            return f"it weighs tensor {name!r}, which it does not bring"
    return None


def _refuse_number(weight: float, most: float) -> str | None:
    if not math.isfinite(weight) or weight < 0 or weight > most:
        return f"its weight {weight:g} is not between 0 and {most:g}"
    return None


def _refuse_tensors(reply: Reply, expected: Expected, most_steps: int | None) -> str | None:
    assert isinstance(reply.tensors, Packed)  # it was just read from the wire
    layout = reply.tensors.layout
    if layout is not expected.layout:  # replies with the same table of tensors share their layout
        reason = _refuse_layout(layout, expected)
        if reason is not None:
            return reason
        expected.layout = layout
        expected.counters = Counters(layout, expected.tensors)
    reason = _refuse_values(reply.tensors)
    if reason is not None or most_steps is None:
        return reason
    assert expected.counters is not None  # they go with the layout
    return _refuse_counters(reply.tensors, expected.counters, most_steps)


def _refuse_layout(layout: Layout, expected: Expected) -> str | None:
    """Check the names, shapes and dtypes of the tensors that came back."""
    entries = layout.by_name
    for name, tensor in expected.tensors.items():
        if name not in entries:
            if name in expected.required:
                return f"tensor {name!r} is missing"
            continue
        entry = entries[name]
        if entry.shape != tuple(tensor.shape):
            return f"tensor {name!r} has shape {list(entry.shape)}, not {list(tensor.shape)}"
        if entry.dtype != tensor.dtype:
            return f"tensor {name!r} is {entry.dtype}, not {tensor.dtype}"
    for name in entries:
        if name not in expected.tensors and not matches(name, expected.fields.extra):
            return f"it holds the undeclared tensor {name!r}"
    return None


class Counters:
    """The counters that were sent, side by side in the order of a reply's layout."""

    def __init__(self, layout: Layout, sent: Tensors) -> None:
        integers = [entry.name for entry in layout.entries if entry.dtype == torch.int64]
        self.names = [name for name in integers if name in sent]
        self.are_all = len(self.names) == len(integers)  # whether a reply has no other integers
        self.lengths = [sent[name].numel() for name in self.names]
        self.sent = np.zeros(0, np.int64)
        if self.names:
            arrays = [sent[name].numpy(force=True).reshape(-1) for name in self.names]
            self.sent = np.concatenate(arrays)

    def of(self, tensors: Packed) -> np.ndarray:
        """The counters of a reply, in the same order."""
        if self.are_all:
            return tensors.flat(torch.int64).numpy()
        return np.concatenate([tensors[name].numpy().reshape(-1) for name in self.names])


def _refuse_counters(tensors: Packed, counters: Counters, most: int) -> str | None:
    """Check integers, which count steps: none may fall, or rise by more than is possible."""
    if not counters.names:
        return None
    old = counters.sent
    new = counters.of(tensors)
    rise = _rise(old, new)
    if rise is not None and rise <= most:
        return None
    begin = 0
    for name, length in zip(counters.names, counters.lengths, strict=True):
        end = begin + length
        rise = _rise(old[begin:end], new[begin:end])
        if rise is None:
            return f"tensor {name!r} counts backwards"
        if rise > most:
            return f"tensor {name!r} counts {rise} steps, at most {most} are possible"
        begin = end
    raise AssertionError("one of the counters fell or rose too far")


def _rise(old: np.ndarray, new: np.ndarray) -> int | None:
    """The largest rise of any of these counters, or None if one fell."""
    if (new < old).any():
        return None
    # Unsigned differences are exact, whereas those of int64 could overflow.
    rise = new.view(np.uint64) - old.view(np.uint64)
    return int(rise.max(initial=0))


def _refuse_values(tensors: Packed) -> str | None:
    all_float32_finite = all_finite(tensors.float_array())  # in one sweep over all tensors
    for entry in tensors.layout.entries:
        if all_float32_finite and entry.dtype not in (torch.float64, torch.float16):
            continue
        if not all_finite(tensors[entry.name].numpy()):
            return f"tensor {entry.name!r} holds a NaN or Inf"
    return None


def all_finite(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all())  # in one pass, whereas torch needs several


class Closed(BaseModel):
    """A schema that allows no other fields than those it names."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Counted(Closed):
    """What an evaluation contains for one model, whatever its metric."""

    samples: int = Field(ge=0)
    correct: int = Field(ge=0)

    @model_validator(mode="after")
    def consistent(self) -> Counted:
        if self.correct > self.samples:
            raise ValueError("more correct answers than samples")
        return self


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
        wanted_labels = f"{list(task.labels[:5])}…, in this order"
        return f"its labels are {meta['labels'][:5]}…, the run expects {wanted_labels}"
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
