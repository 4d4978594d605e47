"""How results look in a notebook: the terminal's tables as HTML, with all text escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from fedloom.errors import FedloomError
from fedloom.report.architectures import in_words, svg_of
from fedloom.types import Json

CELL = "padding:2px 10px;vertical-align:top;text-align:"
TITLE = "caption-side:top;text-align:left;padding:4px 10px;font-weight:bold"
NOT_IN_TABLE = ("client", "architecture")  # the title and the picture show them


class Architecture(dict[str, Json]):
    """A searched architecture: the JSON that it is, and a picture of its cells."""

    def __init__(self, plain: Mapping[str, Json], title: str = "") -> None:
        super().__init__(plain)
        self.title = title

    def draw(self, path: Path | str | None = None) -> str:
        """Return the cells as SVG, which a notebook shows by itself.

        With a `path`, the SVG is also written there.
        """
        svg = svg_of(self, self.title)
        if path is not None:
            Path(path).write_text(svg)
        return svg

    def _repr_svg_(self) -> str | None:
        """Return None if the architecture cannot be drawn: a notebook then shows the JSON."""
        try:
            return self.draw()
        except FedloomError:
            return None


def table_html(table: Table) -> str:
    """Return one of our tables as HTML; its cells are plain text."""
    sides = [column.justify for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    lines = []
    for row in zip(*(column.cells for column in table.columns), strict=True):
        lines.append(row_html("td", [str(cell) for cell in row], sides))
    title = escape(str(table.title or ""))
    below = escape(str(table.caption or ""))
    return (
        f'<table class="fedloom"><caption style="{TITLE}">{title}</caption>'
        f"<thead>{row_html('th', heads, sides)}</thead><tbody>{''.join(lines)}</tbody></table>"
        f'<p style="max-width:60em;padding:0 10px">{below}</p>'
    )


def row_html(tag: str, cells: list[str], sides: list[Any]) -> str:
    """Return one row; `sides` says how each cell is justified."""
    row = ""
    for cell, side in zip(cells, sides, strict=True):
        row += cell_html(cell, tag, side)
    return f"<tr>{row}</tr>"


def cell_html(text: str, tag: str, side: str) -> str:
    style = f"{CELL}left"
    if side == "right":
        style = f"{CELL}right;white-space:nowrap"
    lines = escape(text).replace("\n", "<br>")
    return f'<{tag} style="{style}">{lines}</{tag}>'


def client_html(client: Any) -> str:
    """Return a client's figures as a table, and its architecture as a picture or in words."""
    rows = ""
    for name, value in client.figures.items():
        if name not in NOT_IN_TABLE:
            head = cell_html(name, "th", "left")
            cell = cell_html(figure_text(value), "td", "left")
            rows += f"<tr>{head}{cell}</tr>"
    picture = None
    if isinstance(client.architecture, Architecture):
        picture = client.architecture._repr_svg_()
    if picture is None:
        picture = f"<p>{escape(in_words(client.architecture))}</p>"
    caption = f'<caption style="{TITLE}">client {client.client}</caption>'
    return f'<table class="fedloom">{caption}<tbody>{rows}</tbody></table>{picture}'


def figure_text(value: Json) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "–".join(map(figure_text, value))
    return str(value)
