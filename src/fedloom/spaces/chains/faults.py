"""What is wrong with a definition, and where: a sentence that names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import ValidationError

from fedloom.errors import FedloomError, unknown

Place = tuple[str | int, ...]  # ("stage", 1, "ops"): a name in a table of the definition


class Fault(Exception):
    """A definition that cannot be used; `place` says which part of it is to blame."""

    def __init__(self, place: Place, rule: str, found: str, advice: str) -> None:
        super().__init__(rule)
        self.place = place
        self.rule = rule
        self.found = found
        self.advice = advice

    @classmethod
    def unknown(cls, place: Place, what: str, name: str, names: Iterable[str]) -> Fault:
        """With the nearest match."""
        sentence = str(unknown(what, name, names))
        rule, _, rest = sentence.partition(", but ")
        found, _, advice = rest.partition("; ")
        return cls(place, rule, found, advice.removesuffix("."))

    def at(self, where: str) -> FedloomError:
        return FedloomError(f"{where}: {self.rule}", self.found, self.advice)


def of_validation(error: ValidationError) -> Fault:
    """The first thing that a schema refuses."""
    first = error.errors(include_url=False)[0]
    names = ".".join(str(part) for part in first["loc"])
    rule = f"`{names}` of a space must fit its schema"
    return Fault(first["loc"], rule, first["msg"], "see the examples in docs/spaces.md")


def line_of(text: str, place: Place) -> int:
    """The line of a TOML file on which a place stands, counted from 1.

    What is not there stands on its table's first line, or, if that is missing too, on the last.
    """
    lines = text.splitlines()
    keys = [part for part in place if isinstance(part, str)][:2]
    table = ""  # the table that a line belongs to
    numbers: dict[str, int] = {}  # how many tables of a name have begun
    nearest = max(1, len(lines))
    for number, line in enumerate(lines, 1):
        header = re.match(r"\s*\[+\s*([\w-]+)\s*\]+", line)
        if header is not None:
            table = header[1]
            numbers[table] = numbers.get(table, -1) + 1
        if not is_within(place, table, numbers):
            continue
        if header is not None:
            nearest = number
        if any(sets(line, key) for key in keys):
            return number
    return nearest


def is_within(place: Place, table: str, numbers: dict[str, int]) -> bool:
    """Whether a table is the one in which a place is, or would be."""
    if table == "":
        return True
    is_listed = len(place) > 1 and isinstance(place[1], int)
    if is_listed and numbers[table] != place[1]:
        return False
    return bool(place) and table == place[0]


def sets(line: str, key: str) -> bool:
    """Whether a line gives a key its value."""
    return re.match(rf'\s*"?{re.escape(key)}"?\s*=', line) is not None
