"""A chart of shares as stacked bars: one bar per row, its pieces in the same order everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import LETTER, near, short, svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

WIDTH = 760.0
BAR = 22.0  # pixels
BETWEEN = 8.0  # pixels between two bars
AFTER_FIRST = 14.0  # pixels after the first bar, which the others are compared with


@dataclass(frozen=True)
class Bar:
    name: str
    amounts: Sequence[float]  # one for each piece
    text: str  # written at the right of the bar


@dataclass(frozen=True)
class Stacked:
    key: str
    title: str
    description: str
    bars: Sequence[Bar]  # the others are compared with the first one
    pieces: Sequence[str]  # the names of the pieces
    text_name: str  # what the texts at the right of the bars are

    def draw(self) -> Safe:
        left = 14 + LETTER * max((len(short(bar.name)) for bar in self.bars), default=1)
        texts = [self.text_name, *(bar.text for bar in self.bars)]
        right = 14 + LETTER * max(map(len, texts))
        room = WIDTH - left - right
        y = 8.0
        parts = [words(left + room + 8, y + BAR / 2 + 4, self.text_name, "name")]
        for number, bar in enumerate(self.bars):
            base_line = y + BAR / 2 + 4
            parts.append(words(left - 8, base_line, short(bar.name), "label", "end"))
            parts.append(self._pieces(bar, left, y, room))
            parts.append(words(left + room + 8, base_line, bar.text, "tick"))
            y += BAR + BETWEEN
            if number == 0:
                y += AFTER_FIRST - BETWEEN
        return svg(self.key, self.title, self.description, (WIDTH, y), parts, kind="chart wide")

    def _pieces(self, bar: Bar, left: float, y: float, room: float) -> Safe:
        total = sum(bar.amounts)
        parts = []
        for number, (piece, amount) in enumerate(zip(self.pieces, bar.amounts, strict=True)):
            if total <= 0 or amount <= 0:
                continue
            width = room * amount / total
            description = tag("title", f"{piece}: {100 * amount / total:.1f} %")
            box = tag(
                "rect",
                x=round(left, 2),
                y=near(y),
                width=round(width, 2),
                height=BAR,
                class_=f"dot c{number % SERIES} piece",
            )
            name = None
            if LETTER * len(piece) + 4 <= width:
                name = words(left + width / 2, y + BAR / 2 + 4, piece, "on-piece", "middle")
            parts.append(tag("g", description, box, name))
            left += width
        return joined(parts)
