"""The building blocks of a page: sections, figures with their tables, tiles, notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedloom.report.html import Child, Safe, tag

PAGED = 50  # rows of a table that are shown at once


def section(key: str, heading: str, *content: Child) -> Safe:
    """It is always there, so that a live page can fill it later; nobody sees an empty one."""
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
    """A drawing, what it says, and its numbers for those who prefer a table."""
    numbers = None
    if fallback is not None:
        numbers = opened(f"{key}-table", "As a table", fallback)
    return tag(
        "figure",
        tag("h3", heading),
        scrolled(drawing, heading),
        tag("figcaption", caption),
        numbers,
        id=f"{key}-figure",
    )


def scrolled(content: Child, label: str) -> Safe:
    """What may be wider than a phone moves inside its own frame, by keyboard too."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def opened(
    key: str,
    summary: Child,
    *content: Child,
    show: bool = False,
    printed: bool = False,
) -> Safe:
    """Something to open. A live page keeps it as it was; `printed`: paper shows it open."""
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
    """The first column and those named in `words` hold words, the others hold numbers.

    A table of more than a screenful has pages.
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
    page_size = PAGED if len(rows) > PAGED else None
    whole = tag(
        "table",
        tag("thead", tag("tr", columns)),
        tag("tbody", body),
        data_rows=page_size,
    )
    return scrolled(whole, label)


def table_row(row: Sequence[Child], kinds: Sequence[str | None]) -> Safe:
    """Its first cell is the row's name. `kinds` are the classes of the cells, the first too."""
    cells = []
    for cell, kind in zip(row[1:], kinds[1:], strict=True):
        cells.append(tag("td", cell, class_=kind))
    return tag("tr", tag("th", row[0], scope="row"), cells)


@dataclass(frozen=True)
class Tile:
    """A figure to see at once: what, how much, and a word on it."""

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
    """What a reader must know before the figures."""
    if not sentences:
        return None
    return tag("p", tag("strong", "Caution: "), " ".join(sentences), class_="warning", role="note")


def code(text: str) -> Safe:
    label = "command or configuration"
    return tag("pre", tag("code", text), tabindex=0, role="region", aria_label=label)


def grid(*figures: Safe | None) -> Safe | None:
    """Beside each other where there is room."""
    shown = [figure for figure in figures if figure is not None]
    if not shown:
        return None
    return tag("div", shown, class_="grid-of-figures")
