"""HTML and SVG as values that cannot forget to escape: whatever is not `Safe` already is text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from fedloom.svg import printable


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | float | Sequence[Child] | None"
Value: TypeAlias = str | float | bool | None

# Elements without an end tag. Those of SVG may have content, and then have one.
EMPTY = ("br", "meta", "circle", "path", "rect", "line", "polygon")


def tag(name: str, /, *children: Child, **attributes: Value) -> Safe:
    """`tag("p", "1 < 2", class_="note")`.

    An attribute that is None or False is left out, a True one has no value.
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
    """`class_` is class, `stroke_width` stroke-width."""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(text_of(value))}"'


def joined(*parts: Child) -> Safe:
    return Safe("".join(map(rendered, parts)))


def rendered(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Safe):
        return child
    if isinstance(child, str | float | int):
        return escape(text_of(child), quote=False)
    return "".join(map(rendered, child))


def text_of(value: Value) -> str:
    """A number short, a name without the characters that XML cannot hold."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)
