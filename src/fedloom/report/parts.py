"""The building blocks of a page: sections, figures with their tables, tiles, notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedloom.report.html import Child, Safe, tag

PAGED = 50  # rows of a table that are shown at once


def section(key: str, heading: str, *content: Child) -> Safe:
    """It is always there, so that a live page can fill it later; without content nobody sees it."""
    if not any(content):
        return tag("section", id=key, hidden=True)
    return tag("section", tag("h2", heading, id=f"{key}-heading"), *content, id=key, aria_labelledby=f"{key}-heading")


def figure(key: str, heading: str, drawing: Safe, caption: Child, fallback: Safe | None = None) -> Safe:
    """A drawing, what it says, and its numbers for those who prefer a table."""
    return tag(
        "figure", tag("h3", heading), scrolled(drawing, heading), tag("figcaption", caption),
        None if fallback is None else opened(f"{key}-table", "As a table", fallback),
        id=f"{key}-figure",
    )  # fmt: skip


def scrolled(content: Child, label: str) -> Safe:
    """What may be wider than a phone moves inside its own frame, by keyboard too."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def opened(key: str, summary: Child, *content: Child, show: bool = False, printed: bool = False) -> Safe:
    """Something to open. A live page keeps it as it was; `printed`: paper shows it open."""
    return tag(
        "details", tag("summary", summary), *content, data_key=key, open=show, class_="printed" if printed else None
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[Child]], *, label: str, words: Collection[str] = ("architecture",)
) -> Safe:
    """The first column and those named in `words` hold words, the others numbers; more than a screenful has pages."""
    kinds = [None if k == 0 or name in words else "number" for k, name in enumerate(head)]
    columns = [tag("th", name, scope="col", class_=kind) for name, kind in zip(head, kinds, strict=True)]
    body = [
        tag("tr", tag("th", row[0], scope="row"), [
            tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)
        ])
        for row in rows
    ]  # fmt: skip
    made = tag("table", tag("thead", tag("tr", columns)), tag("tbody", body),
               data_rows=PAGED if len(rows) > PAGED else None)  # fmt: skip
    return scrolled(made, label)


def tiles(*pairs: tuple[str, str, str]) -> Safe:
    """Figures to see at once: what, how much, and a word on it."""
    return tag("dl", [
        tag("div", tag("dt", name), tag("dd", tag("strong", value), tag("span", note) if note else None))
        for name, value, note in pairs
    ], class_="tiles")  # fmt: skip


def note(*content: Child) -> Safe:
    return tag("p", *content, class_="note")


def code(text: str) -> Safe:
    return tag("pre", tag("code", text), tabindex=0, role="region", aria_label="command or configuration")


def grid(*figures: Safe | None) -> Safe | None:
    """Beside each other where there is room."""
    shown = [figure for figure in figures if figure is not None]
    return tag("div", shown, class_="grid-of-figures") if shown else None
