"""Describing what pydantic finds wrong in a run's file, in a phrase that fits after "but"."""

from __future__ import annotations

import reprlib

from pydantic import ValidationError

MOST_SHOWN = 60  # characters of a wrong value, or of its place in the file


def first_mistake(error: ValidationError, within: str | None = None) -> str:
    """The first error, as in "`totals.down` should be a valid integer, and is 'x'"."""
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
    """A text from a file as one short line."""
    line = ""
    for character in text[:MOST_SHOWN]:
        if not character.isprintable():
            character = " "
        line += character
    if len(text) > MOST_SHOWN:
        line += "…"
    return line
