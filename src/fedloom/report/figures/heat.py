"""A matrix as shades, with its numbers where they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import LETTER, near, short, svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import step

BROAD, TALL = 640.0, 900.0  # at most, without names
CELL, ROW = 40.0, 24.0  # at most
READABLE = 13.0  # pixels; names of narrower rows and columns are left out
SLANT = 0.8  # of a name's length is its height, when it stands at an angle


@dataclass(frozen=True)
class Heat:
    key: str
    title: str
    about: str
    rows: Sequence[str]
    columns: Sequence[str]
    shares: Sequence[Sequence[float | None]]  # from 0 to 1: the shade; None: unknown
    texts: Sequence[Sequence[str]]
    row_name: str
    column_name: str
    framed: Callable[[int, int], bool] = lambda row, column: False  # cells with a frame around

    def draw(self) -> Safe:
        cell = min(CELL, BROAD / max(1, len(self.columns)))
        row = min(ROW, TALL / max(1, len(self.rows)))
        names = [short(name) for name in self.rows] if row >= READABLE else []
        heads = [short(name, 12) for name in self.columns] if cell >= READABLE else []
        left = 34 + LETTER * max(map(len, names), default=0)
        slanted = any(len(head) * LETTER > cell - 2 for head in heads)
        top = 30 + (LETTER * SLANT * max(map(len, heads), default=0) if slanted else 14)
        size = (left + cell * len(self.columns) + (30 if slanted else 8), top + row * len(self.rows) + 8)
        wide = max(len(text) for line in self.texts for text in line) if self.texts and self.columns else 0
        written = wide * LETTER <= cell and row >= READABLE
        parts = [words(left, 12, f"{self.column_name} →", "name"), words(14, top - 6, "↓", "name", "middle")]
        parts += [words(left - 8, top + (k + 0.5) * row + 4, name, "label", "end") for k, name in enumerate(names)]
        parts += [heading(head, left + (k + 0.5) * cell, top - 6, slanted) for k, head in enumerate(heads)]
        parts.append((self._numbered if written else self._shaded)(left, top, cell, row))
        side = tag("g", words(0, 0, self.row_name, "name", "middle"),
                   transform=f"translate(12 {near(top + row * len(self.rows) / 2)}) rotate(-90)")  # fmt: skip
        beside = side if len(self.rows) * row > 60 else None
        return svg(self.key, self.title, self.about, size, parts, beside, kind="chart heat")

    def _numbered(self, left: float, top: float, cell: float, row: float) -> Safe:
        found = []
        for k, shares in enumerate(self.shares):
            for c, share in enumerate(shares):
                x, y = left + c * cell, top + k * row
                box = tag("rect", x=near(x), y=near(y), width=near(cell - 1), height=near(row - 1),
                          class_="framed" if self.framed(k, c) else None)  # fmt: skip
                number = words(x + (cell - 1) / 2, y + row / 2 + 4, self.texts[k][c], None, "middle")
                found.append(tag("g", box, number, class_=f"heat{step(share or 0.0)}"))
        return joined(found)

    def _shaded(self, left: float, top: float, cell: float, row: float) -> Safe:
        """Cells too small for numbers: one shape for all of a shade, none for those that are empty or unknown."""
        gap = 1.0 if min(cell, row) >= 6 else 0.0
        box = f"h{cell - gap:g}v{row - gap:g}h{gap - cell:g}z"
        shapes: dict[int, list[str]] = {}
        for k, shares in enumerate(self.shares):
            for c, share in enumerate(shares):
                if share:
                    shapes.setdefault(step(share), []).append(f"M{left + c * cell:g} {top + k * row:g}{box}")
        return joined([tag("path", d="".join(found), class_=f"heat{level}") for level, found in sorted(shapes.items())])


def heading(name: str, x: float, y: float, slanted: bool) -> Safe:
    if not slanted:
        return words(x, y, name, "label", "middle")
    return tag("g", words(0, 0, name, "label"), transform=f"translate({near(x)} {near(y)}) rotate(-50)")
