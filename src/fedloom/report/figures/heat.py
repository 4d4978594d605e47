"""A matrix as shades, with its numbers where they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import LETTER, near, short, svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import step

BROAD = 640.0  # pixels at most, without names
TALL = 900.0
CELL = 40.0  # pixels of a cell's width at most
ROW = 24.0  # and of its height
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
        cell_width = min(CELL, BROAD / max(1, len(self.columns)))
        cell_height = min(ROW, TALL / max(1, len(self.rows)))
        names: list[str] = []
        if cell_height >= READABLE:
            names = [short(name) for name in self.rows]
        heads: list[str] = []
        if cell_width >= READABLE:
            heads = [short(name, 12) for name in self.columns]
        slanted = any(len(head) * LETTER > cell_width - 2 for head in heads)
        left = 34 + LETTER * longest(names)
        top = 30.0 + 14
        right_margin = 8
        if slanted:
            top = 30 + LETTER * SLANT * longest(heads)
            right_margin = 30
        cells = Cells(left, top, cell_width, cell_height)

        parts = [
            words(left, 12, f"{self.column_name} →", "name"),
            words(14, top - 6, "↓", "name", "middle"),
        ]
        for number, name in enumerate(names):
            y = top + (number + 0.5) * cell_height + 4
            parts.append(words(left - 8, y, name, "label", "end"))
        for number, head in enumerate(heads):
            x = left + (number + 0.5) * cell_width
            parts.append(heading(head, x, top - 6, slanted))
        if self._has_room_for_texts(cells):
            parts.append(self._numbered(cells))
        else:
            parts.append(self._shaded(cells))
        width = left + cell_width * len(self.columns) + right_margin
        height = top + cell_height * len(self.rows) + 8
        size = (width, height)
        side = self._side_name(cells)
        return svg(self.key, self.title, self.about, size, parts, side, kind="chart heat")

    def _has_room_for_texts(self, cells: Cells) -> bool:
        longest_text = 0
        for texts in self.texts:
            longest_text = max(longest_text, longest(texts))
        return longest_text * LETTER <= cells.width and cells.height >= READABLE

    def _side_name(self, cells: Cells) -> Safe | None:
        """What rows are, written upwards, where there is room for it."""
        if len(self.rows) * cells.height <= 60:
            return None
        middle = near(cells.top + cells.height * len(self.rows) / 2)
        name = words(0, 0, self.row_name, "name", "middle")
        return tag("g", name, transform=f"translate(12 {middle}) rotate(-90)")

    def _numbered(self, cells: Cells) -> Safe:
        parts = []
        for row, shares in enumerate(self.shares):
            for column, share in enumerate(shares):
                x = cells.x(column)
                y = cells.y(row)
                frame = "framed" if self.framed(row, column) else None
                box = tag(
                    "rect",
                    x=near(x),
                    y=near(y),
                    width=near(cells.width - 1),
                    height=near(cells.height - 1),
                    class_=frame,
                )
                middle = x + (cells.width - 1) / 2
                base_line = y + cells.height / 2 + 4
                number = words(middle, base_line, self.texts[row][column], None, "middle")
                level = step(share or 0.0)  # an unknown share has no shade
                parts.append(tag("g", box, number, class_=f"heat{level}"))
        return joined(parts)

    def _shaded(self, cells: Cells) -> Safe:
        """Cells too small for numbers: one shape for all of a shade.

        Those that are empty or unknown have none.
        """
        gap = 1.0
        if min(cells.width, cells.height) < 6:
            gap = 0.0
        box = f"h{cells.width - gap:g}v{cells.height - gap:g}h{gap - cells.width:g}z"
        boxes: dict[int, list[str]] = {}  # by their shade
        for row, shares in enumerate(self.shares):
            for column, share in enumerate(shares):
                if share:
                    corner = f"M{cells.x(column):g} {cells.y(row):g}"
                    boxes.setdefault(step(share), []).append(corner + box)
        shapes = []
        for level in sorted(boxes):
            shapes.append(tag("path", d="".join(boxes[level]), class_=f"heat{level}"))
        return joined(shapes)


@dataclass(frozen=True)
class Cells:
    """Where the cells of a matrix lie, in pixels."""

    left: float
    top: float
    width: float  # of one cell
    height: float

    def x(self, column: int) -> float:
        return self.left + column * self.width

    def y(self, row: int) -> float:
        return self.top + row * self.height


def longest(texts: Sequence[str]) -> int:
    return max(map(len, texts), default=0)


def heading(name: str, x: float, y: float, slanted: bool) -> Safe:
    if not slanted:
        return words(x, y, name, "label", "middle")
    place = f"translate({near(x)} {near(y)}) rotate(-50)"
    return tag("g", words(0, 0, name, "label"), transform=place)
