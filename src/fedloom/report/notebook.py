"""How results look in a notebook: the terminal's tables as HTML, everything in them escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from fedloom.errors import FedloomError
from fedloom.report.architectures import drawn, in_words
from fedloom.types import Json

CELL = "padding:2px 10px;vertical-align:top;text-align:"
TITLE = "caption-side:top;text-align:left;padding:4px 10px;font-weight:bold"


class Architecture(dict[str, Json]):
    """A searched architecture: the JSON that it is, and a picture of its cells."""

    def __init__(self, plain: Mapping[str, Json], title: str = "") -> None:
        super().__init__(plain)
        self.title = title

    def draw(self, path: Path | str | None = None) -> str:
        """Its cells as SVG, which a notebook shows by itself; also written to `path` if there is one."""
        svg = drawn(self, self.title)
        if path is not None:
            Path(path).write_text(svg)
        return svg

    def _repr_svg_(self) -> str | None:
        """None, where it cannot be drawn: a notebook then shows the JSON."""
        try:
            return self.draw()
        except FedloomError:
            return None


def table_html(table: Table) -> str:
    """One of our tables, whose cells are plain text."""
    heads = [line(str(column.header), "th", column.justify) for column in table.columns]
    rows = [
        "".join(line(str(cell), "td", column.justify) for cell, column in zip(cells, table.columns, strict=True))
        for cells in zip(*(column.cells for column in table.columns), strict=True)
    ]
    title, below = (str(text or "") for text in (table.title, table.caption))
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<table class="fedloom"><caption style="{TITLE}">{escape(title)}</caption>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{lines}</tbody></table>"
        f'<p style="max-width:60em;padding:0 10px">{escape(below)}</p>'
    )


def line(text: str, tag: str, justify: str) -> str:
    side = "right;white-space:nowrap" if justify == "right" else "left"
    return f'<{tag} style="{CELL}{side}">{escape(text).replace(chr(10), "<br>")}</{tag}>'


def client_html(client: Any) -> str:
    """A client's figures, and its architecture if that can be drawn."""
    figures = {name: value for name, value in client.figures.items() if name not in ("client", "architecture")}
    rows = "".join(
        f"<tr>{line(name, 'th', 'left')}{line(figure(value), 'td', 'left')}</tr>" for name, value in figures.items()
    )
    what = None
    if isinstance(client.architecture, Architecture):
        what = client.architecture._repr_svg_()
    if what is None:
        what = f"<p>{escape(in_words(client.architecture))}</p>"
    caption = f'<caption style="{TITLE}">client {client.client}</caption>'
    return f'<table class="fedloom">{caption}<tbody>{rows}</tbody></table>{what}'


def figure(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "–".join(figure(each) for each in value)
    return "–" if value is None else str(value)
