"""HTML and SVG as typed values: whatever is not `Safe` counts as text and is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from fedloom.svg import printable


class Safe(str):
    """A string that is already HTML and must not be escaped again."""

    __slots__ = ()


Child: TypeAlias = "str | float | Sequence[Child] | None"
Value: TypeAlias = str | float | bool | None

# Elements that are written without an end tag. SVG elements may have content, and then have one.
EMPTY = ("br", "meta", "circle", "path", "rect", "line", "polygon")


def tag(name: str, /, *children: Child, **attributes: Value) -> Safe:
    """Return an element, such as `tag("p", "1 < 2", class_="note")`.

    An attribute that is None or False is left out; one that is True is written without a value.
    """
    inside = joined(*children)
    head = name
    for key, value in attributes.items():
        if value is None or value is False:  # but 0 is a value
            continue
        head += attribute(key, value)
    if name in EMPTY and not inside:
        return Safe(f"<{head}/>")
    return Safe(f"<{head}>{inside}</{name}>")


def attribute(key: str, value: Value) -> str:
    """Return ` name="value"`; `class_` becomes class, and `stroke_width` stroke-width."""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(text_of(value))}"'


def joined(*parts: Child) -> Safe:
    """Concatenate the parts, escaping those that are plain text."""
    return Safe("".join(map(render, parts)))


def render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Safe):
        return child
    if isinstance(child, str | float | int):
        return escape(text_of(child), quote=False)
    return "".join(map(render, child))


def text_of(value: Value) -> str:
    """Write floats with at most 10 digits, and drop characters that XML cannot hold from text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)
