"""Admission: every reply is checked here before anything reads it as a model.

Its size is checked before memory is allocated, then the closed schema, then declared fields and
their types, the bounds of its weight, the names, shapes and dtypes of its tensors, their finiteness
and the growth of counters. The result is the reason for a refusal, or None.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.packing import Layout, Packed
from fedloom.types import Fields, Json, Order, Reply, Tensors

HEADER_ALLOWANCE = 1 << 20  # bytes of header that a reply may have in addition to its tensors
EXTRA_ALLOWANCE = 256 << 20  # bytes that extra tensors may add, where a reply may have them
MOST_TEXT = 1000  # characters of a string whose field is declared by its name alone


class Expected:
    """What a reply to an order must and may contain.

    One object serves all orders of a kind with the same tensors.
    """

    def __init__(self, order: Order, fields: Fields) -> None:
        self.fields = fields
        self.required = required_tensors(order, fields)
        # All that may come back.
        self.tensors = {**self.required, **optional_tensors(order, fields)}
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
    """Why this reply may not be used, or None if it may.

    It may come with any weight up to `most_weight`, and its integers, which count steps, may rise
    by `most_steps`. Without `most_steps` they are not checked.
    """
    if reply.client != order.client:
        return f"it says it comes from client {reply.client}"
    return (
        _refuse_meta(reply, expected.fields)
        or _refuse_state(reply, order, expected.fields)
        or _refuse_weight(reply, order, expected, most_weight)
        or _refuse_tensors(reply, expected, most_steps)
    )


def refuse_by_method(method: Method, order: Order, reply: Reply, samples: int) -> str | None:
    """Why the method itself refuses a reply that `refuse` has accepted, or None.

    The method's code reads what somebody else sent. If it raises an error, the reply is refused and
    the run goes on.
    """
    try:
        return method.check_reply(order, reply, samples)
    except Exception as error:
        return f"it could not be checked ({type(error).__name__}: {error})"


def required_tensors(order: Order, fields: Fields) -> Tensors:
    """The tensors of the order that a reply must return."""
    return {name: tensor for name, tensor in order.tensors.items() if matches(name, fields.tensors)}


def optional_tensors(order: Order, fields: Fields) -> Tensors:
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
        return f"it contains the undeclared field {undeclared[0]!r}"
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
            return f"it weights the unknown tensor {name!r}"
        if weight and name in expected.tensors and name not in reply.tensors:
            return f"it gives a weight for tensor {name!r}, which it lacks"
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
            return f"it contains the undeclared tensor {name!r}"
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
            return f"counter {name!r} decreases"
        if rise > most:
            return f"counter {name!r} rises by {rise}, at most {most} is possible"
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


# Before anything is sent


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
