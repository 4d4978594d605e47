"""Careful reading of JSON and TOML files that a person can edit.

Such a file may be damaged, hold absurd values, or be something else entirely.

Any defect raises `Unreadable` with a reason that fits after "but": the caller adds what the file
must be, and what to do. What is returned is plain and bounded: whole numbers of at most 64 bits,
finite floats, text without zero characters, no name twice, and a nesting depth that any later step
can handle.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

MOST_BYTES = 8 << 20  # of a file that a person writes
MOST_NESTED = 50
LARGEST = (1 << 64) - 1  # the largest whole number: Flower's node ids use all 64 bits
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d{1,2})?)([kMGT]?)")
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Unreadable(Exception):
    """The reason why a file's content cannot be used."""


def read_json(path: Path) -> Any:
    """A small JSON file's content."""
    return bounded(parse_json(read_text(path)))


def read_large_json(path: Path) -> Any:
    """The content of a file that grows with the data.

    Its numbers are not checked here: the caller checks them array by array.
    """
    return parse_json(read_text(path, None))


def read_toml(path: Path) -> dict[str, Any]:
    """A small TOML file's content."""
    tree: dict[str, Any] = bounded(parsed(tomllib.loads, read_text(path)))
    return tree


def read_text(path: Path, most: int | None = MOST_BYTES) -> str:
    try:
        size = path.stat().st_size
        if most is not None and size > most:
            raise Unreadable(f"it has {size} bytes, and at most {most} are expected")
        content = path.read_bytes()
    except FileNotFoundError:
        raise Unreadable("there is none") from None
    except OSError as error:
        raise Unreadable(f"it cannot be read ({error.strerror or type(error).__name__})") from None
    except ValueError:  # a path with a zero character
        raise Unreadable("that is no path") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not text in UTF-8 (byte {error.start + 1})") from None


def parse_json(text: str) -> Any:
    return parsed(load_json, text)


def load_json(text: str) -> Any:
    return json.loads(
        text,
        parse_constant=refuse_constant,
        object_pairs_hook=fields_without_repetition,
    )


def parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:  # a syntax error, or a whole number of thousands of digits
        raise Unreadable(f"it does not parse ({error})") from None


def refuse_constant(name: str) -> Any:
    raise Unreadable(f"it has {name}, which is no number of JSON")


def fields_without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise Unreadable(f"it has the name {twice!r} twice")


def bounded(tree: Any, largest: int = LARGEST) -> Any:
    """The same tree, after checking that later steps can handle every value in it.

    `largest` is the largest whole number that may occur.
    """
    # Values that are still to be checked, with their place and their depth. These are plain tuples,
    # because a file may have a million of them.
    waiting: list[tuple[Any, str, int]] = [(tree, "", 0)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > MOST_NESTED:
            raise Unreadable("it is nested too deeply")
        if isinstance(value, dict):
            for name, below in value.items():
                check_value(name, place, largest)
                place_below = name
                if place:
                    place_below = f"{place}.{name}"
                waiting.append((below, place_below, depth + 1))
        elif isinstance(value, list):
            waiting += [(below, place, depth + 1) for below in value]
        else:
            check_value(value, place, largest)
    return tree


def check_value(value: Any, place: str, largest: int) -> None:
    where = "it"
    if place:
        where = f"`{place}`"
    if isinstance(value, int) and abs(value) > largest:
        raise Unreadable(f"{where} has a whole number beyond {largest.bit_length()} bits")
    if isinstance(value, float) and not isfinite(value):
        hint = "an option that may be infinite is given as text"
        raise Unreadable(f"{where} has {value}, which is not finite ({hint})")
    if isinstance(value, str) and ("\0" in value or has_surrogates(value)):
        raise Unreadable(f"{where} has a character that no text has")


def has_surrogates(text: str) -> bool:
    """Whether a text has surrogates: halves of characters, which cannot be written to any file."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def parse_number(text: str) -> float | None:
    """Parse a number with an optional unit: `100k` is 100,000. None: the text is not a number."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    digits, unit = match.groups()
    return float(digits) * UNITS[unit]
