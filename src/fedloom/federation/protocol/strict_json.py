"""Reading JSON from outside: an object with the same key twice is an error."""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(text: str, *, finite: bool = False) -> Any:
    """Read JSON from outside.

    Raises ValueError if an object has the same key twice, because two readers could take different
    values. With `finite`, it also raises one for a number that is not finite.
    """
    decoder = _decoder
    if finite:
        decoder = _finite_decoder
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has the same key twice")
    return fields


def _finite(text: str) -> float:
    """A finite number. JSON has no Infinity or NaN, but Python's parser accepts them and 1e999."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("they hold a number that is not finite")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_unique)
_finite_decoder = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_finite,
    parse_constant=_finite,
)
decode = _decoder.raw_decode  # returns a JSON value inside a text, and where it ends
