"""Faults in a definition, reported in a sentence that names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import ValidationError

from fedloom.errors import FedloomError, unknown

Place = tuple[str | int, ...]  # ("stage", 1, "ops"): a name in a table of the definition


class Fault(Exception):
    """The exception for a definition that cannot be used; `place` is the faulty part."""

    def __init__(self, place: Place, rule: str, problem: str, advice: str) -> None:
        super().__init__(rule)
        self.place = place
        self.rule = rule
        self.problem = problem
        self.advice = advice

    @classmethod
    def unknown(cls, place: Place, role: str, name: str, names: Iterable[str]) -> Fault:
        """Returns the fault of an unknown name, with its nearest match."""
        error = unknown(role, name, names)
        return cls(place, error.rule, error.found, error.advice)

    def at(self, where: str) -> FedloomError:
        return FedloomError(f"{where}: {self.rule}", self.problem, self.advice)


def of_validation(error: ValidationError) -> Fault:
    """Returns the first error of a schema as a fault."""
    first = error.errors(include_url=False)[0]
    names = ".".join(str(part) for part in first["loc"])
    rule = f"`{names}` of a space must fit its schema"
    return Fault(first["loc"], rule, first["msg"], "see the examples in docs/spaces.md")


def line_of(text: str, place: Place) -> int:
    """Returns the line of a place in a TOML file, counted from 1.

    The line of a missing key is the first line of its table or, if that is missing too, the file's
    last line.
    """
    lines = text.splitlines()
    keys = [part for part in place if isinstance(part, str)][:2]
    table = ""  # the table that the current line belongs to
    numbers: dict[str, int] = {}  # how many tables of a name came before its latest one
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
    """Whether a place is, or would be, in this table."""
    if table == "":
        return True
    is_listed = len(place) > 1 and isinstance(place[1], int)
    if is_listed and numbers[table] != place[1]:
        return False
    return bool(place) and table == place[0]


def sets(line: str, key: str) -> bool:
    """Whether a line sets the value of a key."""
    return re.match(rf'\s*"?{re.escape(key)}"?\s*=', line) is not None
