"""The building blocks of a page: sections, figures with their tables, tiles, notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedloom.report.html import Child, Safe, tag

PAGED = 50  # rows of a table shown at once; a longer table has pages


def section(key: str, heading: str, *content: Child) -> Safe:
    """Return a section; without content it is hidden, and a live page can fill it later."""
    if not any(content):
        return tag("section", id=key, hidden=True)
    title = tag("h2", heading, id=f"{key}-heading")
    return tag("section", title, *content, id=key, aria_labelledby=f"{key}-heading")


def figure(
    key: str,
    heading: str,
    drawing: Safe,
    caption: Child,
    fallback: Safe | None = None,
) -> Safe:
    """Return a drawing with its caption, and with `fallback`, the same numbers as a table."""
    numbers = None
    if fallback is not None:
        numbers = collapsible(f"{key}-table", "As a table", fallback)
    return tag(
        "figure",
        tag("h3", heading),
        scrollable(drawing, heading),
        tag("figcaption", caption),
        numbers,
        id=f"{key}-figure",
    )


def scrollable(content: Child, label: str) -> Safe:
    """Wrap content that may be wider than a phone in a frame that scrolls, by keyboard too."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def collapsible(
    key: str,
    summary: Child,
    *content: Child,
    show: bool = False,
    printed: bool = False,
) -> Safe:
    """Return content that readers can open and close.

    `key` identifies it, so that a live page can keep it open when it updates. `show` opens it at
    first; with `printed` it is open on paper.
    """
    kind = None
    if printed:
        kind = "printed"
    return tag("details", tag("summary", summary), *content, data_key=key, open=show, class_=kind)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    label: str,
    words: Collection[str] = ("architecture",),
) -> Safe:
    """Return a table; one of more than `PAGED` rows has pages.

    The first column and the columns named in `words` hold words, the others hold numbers.
    """
    kinds: list[str | None] = []
    columns = []
    for number, name in enumerate(head):
        kind: str | None = "number"
        if number == 0 or name in words:
            kind = None
        kinds.append(kind)
        columns.append(tag("th", name, scope="col", class_=kind))
    body = [table_row(row, kinds) for row in rows]
    page_size = None
    if len(rows) > PAGED:
        page_size = PAGED
    whole = tag(
        "table",
        tag("thead", tag("tr", columns)),
        tag("tbody", body),
        data_rows=page_size,
    )
    return scrollable(whole, label)


def table_row(row: Sequence[Child], kinds: Sequence[str | None]) -> Safe:
    """Return one row. Its first cell is its heading; `kinds` are the CSS classes of all cells."""
    cells = []
    for cell, kind in zip(row[1:], kinds[1:], strict=True):
        cells.append(tag("td", cell, class_=kind))
    return tag("tr", tag("th", row[0], scope="row"), cells)


@dataclass(frozen=True)
class Tile:
    """A single figure shown large: its name, its value, and a short remark."""

    name: str
    value: str
    note: str = ""

    def draw(self) -> Safe:
        remark = None
        if self.note:
            remark = tag("span", self.note)
        return tag("div", tag("dt", self.name), tag("dd", tag("strong", self.value), remark))


def tiles(*shown: Tile) -> Safe:
    return tag("dl", [tile.draw() for tile in shown], class_="tiles")


def note(*content: Child) -> Safe:
    return tag("p", *content, class_="note")


def warning(sentences: Sequence[str]) -> Safe | None:
    """Return a box with what readers must know before they read the figures."""
    if not sentences:
        return None
    return tag("p", tag("strong", "Caution: "), " ".join(sentences), class_="warning", role="note")


def code(text: str) -> Safe:
    label = "command or configuration"
    return tag("pre", tag("code", text), tabindex=0, role="region", aria_label=label)


def grid(*figures: Safe | None) -> Safe | None:
    """Place figures beside each other where the screen has room; None are left out."""
    shown = [figure for figure in figures if figure is not None]
    if not shown:
        return None
    return tag("div", shown, class_="grid-of-figures")
