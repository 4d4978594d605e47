"""A chart of clients' figures in ascending order, group beside group, with one line per run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import (
    HIGH,
    LETTER,
    WIDE,
    Frame,
    Scale,
    Text,
    near,
    room,
    scale,
    svg,
    words,
)
from fedloom.report.figures.curves import dashes_of, swatch
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

MOST_DOTS = 60  # clients; more have no dots on the line
LEAST_GAP = 1.0  # the gap between groups, in clients, is at least this wide
GAP = 0.03  # and at least this share of all clients


@dataclass(frozen=True)
class Ranks:
    """One group of clients: the figures of each run, from the lowest to the highest."""

    name: str
    figures: Sequence[Sequence[float]]  # one sequence per run

    @property
    def size(self) -> int:
        return max((len(figures) for figures in self.figures), default=0)


@dataclass(frozen=True)
class Ranked:
    key: str
    title: str
    description: str
    groups: Sequence[Ranks]
    runs: Sequence[str]  # their names
    x_name: str
    y_name: str
    y_text: Text
    bounds: tuple[float, float]

    @property
    def clients(self) -> int:
        return sum(group.size for group in self.groups)

    @property
    def gap(self) -> float:
        return max(LEAST_GAP, GAP * self.clients)

    def draw(self) -> Safe:
        frame = self._frame()
        parts = [frame.draw()]
        begin = 0.0
        for number, group in enumerate(self.groups):
            if number:
                cut = near(frame.x(begin - self.gap / 2 - 0.5))
                line = f"M{cut} {frame.y.end}V{frame.y.begin}"
                parts.append(tag("path", d=line, class_="cut"))
            parts.append(self._group(group, begin, frame))
            begin += group.size + self.gap
        drawing = svg(self.key, self.title, self.description, (WIDE, HIGH), parts)
        if len(self.runs) == 1:
            return drawing
        items = [tag("li", swatch(number), name) for number, name in enumerate(self.runs)]
        return joined(drawing, tag("ul", items, class_="legend"))

    def _frame(self) -> Frame:
        all_figures: list[float] = []
        width = -self.gap
        for group in self.groups:
            width += group.size + self.gap
            for figures in group.figures:
                all_figures += figures
        y = scale(all_figures, HIGH - 46, 46.0, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        x = Scale(-0.5, max(width, 1.0) - 0.5, left, WIDE - 14, ())
        return Frame(x, y, str, self.y_text, self.x_name, self.y_name)

    def _group(self, group: Ranks, begin: float, frame: Frame) -> Safe:
        left = frame.x(begin - 0.5)
        right = frame.x(begin + group.size - 0.5)
        middle = (left + right) / 2
        parts = []
        if len(group.name) * LETTER < right - left + frame.x(self.gap) - frame.x(0):
            parts.append(words(middle, frame.y.end - 6, group.name, "phase", "middle"))
        parts.append(words(middle, frame.y.begin + 18, f"{group.size:,}", "tick", "middle"))
        for number, figures in enumerate(group.figures):
            places = []
            for rank, figure in enumerate(figures):
                places.append((near(frame.x(begin + rank)), near(frame.y(figure))))
            parts.append(self._series(places, number))
        return joined(parts)

    def _series(self, places: Sequence[tuple[float, float]], number: int) -> Safe:
        colour = f"c{number % SERIES}"
        parts = []
        if len(places) > 1:
            line = "M" + "L".join(f"{x} {y}" for x, y in places)
            dashes = dashes_of(number)
            parts.append(tag("path", d=line, class_=f"curve {colour}", stroke_dasharray=dashes))
        if len(places) == 1 or self._has_room_for_dots():
            for x, y in places:
                parts.append(tag("circle", cx=x, cy=y, r=3.5, class_=f"dot {colour}"))
        return joined(parts)

    def _has_room_for_dots(self) -> bool:
        return self.clients <= MOST_DOTS
