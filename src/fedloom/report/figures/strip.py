"""A chart of what became of every client in every round: one row per client, one column per round.

Outcomes differ in their shape too, so that nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from fedloom.report.figures.chart import LETTER, near, short, svg, words
from fedloom.report.figures.legend import Entry, legend
from fedloom.report.html import Safe, joined, tag

Outcome = Literal["took part", "left", "late", "refused", "absent"]

BROAD = 880.0  # pixels: the width of all cells together, unless they would be too small
TALL = 900.0  # pixels: their height
LARGEST = 18.0  # pixels: the largest side of a cell
SMALLEST = 8.0  # pixels: its smallest side
READABLE = 14.0  # pixels from one name to the next
TOP = 44.0  # pixels above the cells
CLASSES: Mapping[Outcome, str] = {
    "took part": "dot c0",
    "left": "dot mark",
    "late": "dot c1",
    "refused": "dot c3",
    "absent": "idle",
}


@dataclass(frozen=True)
class Strip:
    key: str
    title: str
    description: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Outcome | None]]  # None: the client was not asked
    meanings: Mapping[Outcome, str]  # of the outcomes that occur
    column_name: str = "round"

    def draw(self) -> Safe:
        width = cell_size(BROAD, len(self.columns))
        height = cell_size(TALL, len(self.rows))
        left = 20 + LETTER * max((len(short(name)) for name in self.rows), default=1)
        parts = [words(left, 12, f"{self.column_name} →", "name")]
        every = ceil(READABLE / height)
        for number in range(0, len(self.rows), every):
            y = TOP + (number + 0.5) * height + 4
            parts.append(words(left - 8, y, short(self.rows[number]), "label", "end"))
        longest = max(map(len, self.columns), default=1)
        every = ceil((LETTER * longest + 6) / width)
        for number in range(0, len(self.columns), every):
            x = left + (number + 0.5) * width
            parts.append(words(x, TOP - 8, self.columns[number], "tick", "middle"))
        parts.append(self._grounds(left, width, height))
        parts.append(self._shapes(left, width, height))
        size = (left + width * len(self.columns) + 20, TOP + height * len(self.rows) + 8)
        drawing = svg(self.key, self.title, self.description, size, parts, kind="chart wide")
        return joined(drawing, self._legend())

    def _grounds(self, left: float, width: float, height: float) -> Safe:
        """Shade every other row, which guides the eye."""
        across = near(width * len(self.columns))
        grounds = []
        for number in range(1, len(self.rows), 2):
            y = near(TOP + number * height)
            ground = tag("rect", x=left, y=y, width=across, height=near(height), class_="band")
            grounds.append(ground)
        return joined(grounds)

    def _shapes(self, left: float, width: float, height: float) -> Safe:
        """Draw all cells of an outcome as one shape, because there are many."""
        outlines: dict[Outcome, list[str]] = {}
        for row, outcomes in enumerate(self.cells):
            for column, outcome in enumerate(outcomes):
                if outcome is None:
                    continue
                x = left + column * width + 0.5
                y = TOP + row * height + 0.5
                outline = cell_outline(outcome, x, y, width - 1, height - 1)
                outlines.setdefault(outcome, []).append(outline)
        shapes = []
        for outcome, paths in outlines.items():
            shapes.append(tag("path", d="".join(paths), class_=CLASSES[outcome]))
        return joined(shapes)

    def _legend(self) -> Safe:
        entries = []
        for outcome, meaning in self.meanings.items():
            outline = cell_outline(outcome, 8, 0, 12, 12)
            entries.append(Entry(tag("path", d=outline, class_=CLASSES[outcome]), meaning))
        return legend(entries)


def cell_size(room: float, cells: int) -> float:
    return min(LARGEST, max(SMALLEST, room / max(1, cells)))


def cell_outline(outcome: Outcome, x: float, y: float, width: float, height: float) -> str:
    """Return a cell's outline: a full box for a client that took part, other shapes for others."""
    if outcome == "took part":
        return box(x, y, width, height)
    if outcome == "left":  # the upper left half: the client began its work
        return f"M{near(x)} {near(y)}h{near(width)}l{near(-width)} {near(height)}z"
    if outcome == "late":  # the right half: the reply came in the end
        return box(x + width / 2, y, width / 2, height)
    if outcome == "refused":  # an hourglass
        right = near(x + width)
        low = near(y + height)
        return f"M{near(x)} {near(y)}H{right}L{near(x)} {low}H{right}z"
    return box(x + width * 0.25, y + height / 2 - 0.8, width / 2, 1.6)


def box(x: float, y: float, width: float, height: float) -> str:
    return f"M{near(x)} {near(y)}h{near(width)}v{near(height)}h{near(-width)}z"
