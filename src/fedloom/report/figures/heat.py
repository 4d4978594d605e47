"""A heat map: a matrix as shades, with its numbers where they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import LETTER, near, short, svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import step

BROAD = 640.0  # pixels: the largest width of all cells together, without names
TALL = 900.0  # pixels: their largest height
CELL = 40.0  # pixels: the largest width of a cell, if there are many columns
FEW = 6  # columns: so many have room for whole names
ROW = 24.0  # pixels: its largest height
READABLE = 13.0  # pixels; narrower rows and columns have no names
SLANT = 0.8  # the height of a slanted name, as a share of its length


@dataclass(frozen=True)
class Heat:
    key: str
    title: str
    description: str
    rows: Sequence[str]
    columns: Sequence[str]
    shares: Sequence[Sequence[float | None]]  # from 0 to 1: the shade; None: unknown
    texts: Sequence[Sequence[str]]
    row_name: str
    column_name: str
    framed: Callable[[int, int], bool] = lambda row, column: False  # which cells have a frame

    def draw(self) -> Safe:
        cell_width = self._cell_width()
        cell_height = min(ROW, TALL / max(1, len(self.rows)))
        names: list[str] = []
        if cell_height >= READABLE:
            names = [short(name) for name in self.rows]
        heads: list[str] = []
        if cell_width >= READABLE:
            heads = [short(name, self._longest_head()) for name in self.columns]
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
        return svg(self.key, self.title, self.description, size, parts, side, kind="chart heat")

    def _cell_width(self) -> float:
        """A few columns are as wide as their names; many share the room that there is."""
        width = CELL
        if len(self.columns) <= FEW:
            width = max(CELL, 10 + LETTER * longest([short(name) for name in self.columns]))
        return min(width, BROAD / max(1, len(self.columns)))

    def _longest_head(self) -> int:
        """How many letters of a column's name are shown."""
        if len(self.columns) <= FEW:
            return 18
        return 12

    def _has_room_for_texts(self, cells: Cells) -> bool:
        longest_text = 0
        for texts in self.texts:
            longest_text = max(longest_text, longest(texts))
        return longest_text * LETTER <= cells.width and cells.height >= READABLE

    def _side_name(self, cells: Cells) -> Safe | None:
        """Write what rows are, from bottom to top, where there is room for it."""
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
                frame = None
                if self.framed(row, column):
                    frame = "framed"
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
        """Draw cells that are too small for numbers: one shape for all cells of a shade.

        Cells that are empty or unknown are not drawn.
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
