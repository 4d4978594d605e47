"""Methods as a person writes them: `NAME` or `file.py:Name`.

Either may have `:key=value,…` or a bare word behind it, and then `@LABEL`: what tables call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedloom.errors import FedloomError
from fedloom.registry import absolute

LABEL = re.compile(r"[\w.+-]+")
LABELLED = re.compile(f"(.+)@({LABEL.pattern})")
PATTERN = re.compile(r"([^:]*\.py:[^:]+|[^:]+)(?::(.*))?")


@dataclass(frozen=True)
class Variant:
    """A method's name and what is asked of it. What a bare word means, the method itself says."""

    name: str
    parts: tuple[str, ...] = ()  # `key=value` or a bare word, as they stand there

    @classmethod
    def parse(cls, text: str) -> Variant:
        match = PATTERN.fullmatch(text)
        if match is None:
            raise FedloomError(
                "a method must look like NAME or NAME:key=value",
                f"got {text!r}",
                "see `fedloom list methods`",
            )
        name, rest = match.groups()
        parts = [part for part in (rest or "").split(",") if part]
        return cls(name, tuple(parts))

    def found_anywhere(self) -> str:
        """The same variant with full paths to its files, whatever folder one resumes from."""
        name = absolute(self.name)
        if not self.parts:
            return name
        parts = [absolute_part(part) for part in self.parts]
        return f"{name}:{','.join(parts)}"


@dataclass(frozen=True)
class Labelled:
    """Variants, and what to call those of them that have a label."""

    methods: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)

    def changed(self, change: Callable[[str], str]) -> Labelled:
        """Other variants in their places, which tables call what they called these."""
        methods = tuple(map(change, self.methods))
        names = dict(self.names)
        for before, after in zip(self.methods, methods, strict=True):
            if after != before:
                name = self.names.get(Variant.parse(before).found_anywhere(), before)
                names[Variant.parse(after).found_anywhere()] = name
        return Labelled(methods, names)


def labelled(texts: Iterable[str]) -> Labelled:
    """`spider:lr=.1,cells=3@small` is the variant before the sign, called `small`."""
    methods = []
    names: dict[str, str] = {}
    called: dict[str, str] = {}  # variants by what they are called
    for text in texts:
        method = text
        name = text
        match = LABELLED.fullmatch(text)
        if match is not None:
            method, name = match.groups()
            names[Variant.parse(method).found_anywhere()] = name
        if called.setdefault(name, method) != method:
            raise FedloomError(
                "two variants must not have one name in tables",
                f"got {name!r} twice",
                "give each its own, as in spider:lr=.1@small spider:lr=.3@large",
            )
        methods.append(method)
    return Labelled(tuple(methods), names)


def without_folders(text: str) -> str:
    """A variant for a table: files by their names alone. `widths=.25/1` is no file."""
    variant = Variant.parse(text)
    name = file_alone(variant.name)
    if not variant.parts:
        return name
    parts = []
    for part in variant.parts:
        key, equals, value = part.partition("=")
        parts.append(f"{key}{equals}{file_alone(value)}")
    return f"{name}:{','.join(parts)}"


def file_alone(text: str) -> str:
    if not text.startswith("/"):
        return text
    return text.rpartition("/")[2]


def absolute_part(part: str) -> str:
    key, equals, value = part.partition("=")
    if not equals:
        return part
    return f"{key}={absolute(value)}"
