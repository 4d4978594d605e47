"""Methods as users write them: `NAME` or `file.py:Name`.

Either may be followed by `:key=value,…` or a bare word, and then by `@LABEL`, its name in tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedloom.errors import FedloomError
from fedloom.registry import CELLS, SPACE, absolute

LABEL = re.compile(r"[\w.+-]+")
LABELLED = re.compile(f"(.+)@({LABEL.pattern})")
PATTERN = re.compile(r"([^:]*\.py:[^:]+|[^:]+)(?::(.*))?")


@dataclass(frozen=True)
class Variant:
    """A method's name and its options. The method itself says what a bare word means."""

    name: str
    parts: tuple[str, ...] = ()  # each `key=value` or a bare word, as the user wrote it

    @classmethod
    def parse(cls, text: str) -> Variant:
        match = PATTERN.fullmatch(text)
        if match is None:
            raise FedloomError(
                "a method must look like NAME or NAME:key=value",
                f"got {text!r}",
                "see `fedloom list methods`",
            )
        name, options = match.groups()
        parts = [part for part in (options or "").split(",") if part]
        return cls(name, tuple(parts))

    def with_absolute_paths(self) -> str:
        """The same variant with absolute paths, so that a run resumes from any folder."""
        name = absolute(self.name)
        if not self.parts:
            return name
        parts = [absolute_part(part) for part in self.parts]
        return f"{name}:{','.join(parts)}"


@dataclass(frozen=True)
class Labelled:
    """Variants, and the names in tables of those that have a label."""

    methods: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)

    def changed(self, change: Callable[[str], str]) -> Labelled:
        """Replace every variant by `change(variant)`; tables keep calling it what they did."""
        methods = tuple(map(change, self.methods))
        names = dict(self.names)
        for before, after in zip(self.methods, methods, strict=True):
            if after != before:
                name = self.names.get(Variant.parse(before).with_absolute_paths(), before)
                names[Variant.parse(after).with_absolute_paths()] = name
        return Labelled(methods, names)


def labelled(texts: Iterable[str]) -> Labelled:
    """Split off labels: `spider:lr=.1,cells=3@small` is the variant before the @, named `small`."""
    methods = []
    names: dict[str, str] = {}
    method_by_name: dict[str, str] = {}
    for text in texts:
        method = text
        name = text
        match = LABELLED.fullmatch(text)
        if match is not None:
            method, name = match.groups()
            names[Variant.parse(method).with_absolute_paths()] = name
        if method_by_name.setdefault(name, method) != method:
            raise FedloomError(
                "two variants must not have one name in tables",
                f"got {name!r} twice",
                "give each its own name, as in spider:lr=.1@small spider:lr=.3@large",
            )
        methods.append(method)
    return Labelled(tuple(methods), names)


def without_folders(text: str) -> str:
    """A variant as tables show it: files without their folders. `widths=.25/1` is not a file."""
    variant = Variant.parse(text)
    name = without_folder(variant.name)
    if not variant.parts:
        return name
    parts = []
    for part in variant.parts:
        key, equals, value = part.partition("=")
        parts.append(f"{key}{equals}{without_folder(value)}")
    return f"{name}:{','.join(parts)}"


def without_folder(text: str) -> str:
    for prefix in ("", CELLS, SPACE):
        if text.startswith(f"{prefix}/"):
            return prefix + text.rpartition("/")[2]
    return text


def absolute_part(part: str) -> str:
    key, equals, value = part.partition("=")
    if not equals:
        return part
    return f"{key}={absolute(value)}"
