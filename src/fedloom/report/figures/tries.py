"""A chart of the candidates that a search tried, in order, with the best so far of each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import HIGH, WIDE, Frame, Text, near, room, scale, svg
from fedloom.report.figures.curves import dashes_of, swatch, whole_rounds
from fedloom.report.figures.pareto import speck_class
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES


@dataclass(frozen=True)
class Tried:
    """One group of candidates: their figures, in the order in which they were tried."""

    name: str
    figures: Sequence[float]
    number: int  # its colour and dashes

    def best_so_far(self, better: Callable[[float, float], bool]) -> list[float]:
        bests: list[float] = []
        for figure in self.figures:
            if bests and not better(figure, bests[-1]):
                bests.append(bests[-1])
            else:
                bests.append(figure)
        return bests


@dataclass(frozen=True)
class Tries:
    key: str
    title: str
    description: str
    groups: Sequence[Tried]
    better: Callable[[float, float], bool]
    x_name: str
    y_name: str
    y_text: Text
    bounds: tuple[float, float] | None = None

    def draw(self) -> Safe:
        frame = self._frame()
        specks = [self._specks(group, frame) for group in self.groups]
        lines = [self._line(group, frame) for group in self.groups]
        drawing = svg(
            self.key, self.title, self.description, (WIDE, HIGH), frame.draw(), specks, lines
        )
        items = []
        for group in self.groups:
            items.append(tag("li", swatch(group.number), f"{group.name}: best so far"))
        return joined(drawing, tag("ul", items, class_="legend"))

    def _frame(self) -> Frame:
        figures: list[float] = []
        longest = 1
        for group in self.groups:
            figures += group.figures
            longest = max(longest, len(group.figures))
        y = scale(figures, HIGH - 46, 34.0, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        x = whole_rounds([1.0, float(longest)], left + 6, WIDE - 14)
        return Frame(x, y, lambda tick: f"{tick:g}", self.y_text, self.x_name, self.y_name)

    def _specks(self, group: Tried, frame: Frame) -> Safe:
        places = []
        for order, figure in enumerate(group.figures, start=1):
            places.append(f"M{near(frame.x(order))} {near(frame.y(figure))}h0")
        colour = f"c{group.number % SERIES}"
        kind = speck_class(len(group.figures) * len(self.groups))
        return tag("path", d="".join(places), class_=f"{kind} ring {colour}")

    def _line(self, group: Tried, frame: Frame) -> Safe | None:
        corners = []
        for order, figure in enumerate(group.best_so_far(self.better), start=1):
            corners.append(f"{near(frame.x(order))} {near(frame.y(figure))}")
        if len(corners) < 2:
            return None
        colour = f"c{group.number % SERIES}"
        dashes = dashes_of(group.number)
        path = "M" + "L".join(corners)
        return tag("path", d=path, class_=f"curve {colour}", stroke_dasharray=dashes)
