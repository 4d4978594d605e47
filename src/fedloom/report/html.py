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
EMPTY = ("br", "meta", "circle", "path", "rect", "line", "polygon")  # SVG's may have content, and then are not empty


def tag(name: str, /, *children: Child, **attributes: Value) -> Safe:
    """`tag("p", "1 < 2", class_="note")`. An attribute that is None or False is left out, a True one has no value."""
    inside = "".join(rendered(child) for child in children)
    given = [(key, value) for key, value in attributes.items() if value is not None and value is not False]  # 0 is
    head = name + "".join(attribute(key, value) for key, value in given)
    return Safe(f"<{head}/>" if name in EMPTY and not inside else f"<{head}>{inside}</{name}>")


def attribute(key: str, value: Value) -> str:
    """`class_` is class, `stroke_width` stroke-width."""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(text_of(value))}"'


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
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def joined(*parts: Child) -> Safe:
    return Safe("".join(map(rendered, parts)))
