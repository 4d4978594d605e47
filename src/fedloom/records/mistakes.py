"""What pydantic finds wrong in a file of a run, in words that fit after "but"."""

from __future__ import annotations

import reprlib

from pydantic import ValidationError

MOST_SHOWN = 60  # characters of a wrong value, or of the place where it stands


def first_mistake(error: ValidationError, within: str | None = None) -> str:
    """`totals.down` must be a valid integer, and is 'x'."""
    mistake = error.errors(include_url=False)[0]
    place = [str(part) for part in mistake["loc"]]
    if within is not None:
        place.insert(0, within)
    name = readable(".".join(place))
    if mistake["type"] == "missing":
        return f"it lacks `{name}`"
    rule = mistake["msg"].removeprefix("Input should be ").partition(", unable to parse")[0]
    return f"`{name}` should be {rule}, and is {readable(reprlib.repr(mistake['input']))}"


def readable(text: str) -> str:
    """One short line, whatever stands in the file."""
    line = ""
    for sign in text[:MOST_SHOWN]:
        if not sign.isprintable():
            sign = " "
        line += sign
    if len(text) > MOST_SHOWN:
        line += "…"
    return line
