"""Reads definitions from the TOML files that users name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, bounded, parsed, read_text
from fedloom.spaces.chains.definition import Definition, checked
from fedloom.spaces.chains.faults import Fault, Place, line_of

# The files that this process has read, by their definition. An error that is found later, when the
# shape of the data is known, can still name the line.
_FILES: dict[Definition, Path] = {}


def read_definition(file: Path) -> Definition:
    """Returns a file's definition. Errors name the file and the line."""
    try:
        text = read_text(file)
        raw = bounded(parsed(tomllib.loads, text))
    except Unreadable as error:
        advice = "see the examples in docs/spaces.md"
        raise FedloomError(f"{file} must define a space in TOML", str(error), advice) from None
    try:
        definition = checked(raw)
    except Fault as fault:
        raise fault.at(f"{file}, line {line_of(text, fault.place)}") from None
    _FILES[definition] = file
    return definition


def where(definition: Definition, place: Place) -> str:
    """Returns the file and line of a place, or the space's name if no file was read here."""
    file = _FILES.get(definition)
    if file is None:
        return f"the space {definition.name}"
    try:
        return f"{file}, line {line_of(read_text(file), place)}"
    except Unreadable:
        return str(file)
