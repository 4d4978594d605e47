"""A chart of a figure against a cost, where points belong together, as a method's tiers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import HIGH, WIDE, Frame, Text, near, room, scale, svg
from fedloom.report.figures.curves import dashes_of, swatch
from fedloom.report.figures.scatter import MOST_NAMED, Mark, placed
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES


@dataclass(frozen=True)
class Offer:
    """A network's cost and its figure."""

    name: str  # a short name, written beside the point
    cost: float
    figure: float
    spread: float | None = None  # drawn as a whisker of this length above and below


@dataclass(frozen=True)
class Offers:
    """Points that belong together; a line connects them, from the cheapest to the dearest."""

    name: str
    offers: Sequence[Offer]
    number: int  # its colour and dashes


@dataclass(frozen=True)
class Tradeoff:
    key: str
    title: str
    description: str
    lines: Sequence[Offers]
    x_name: str
    y_name: str
    x_text: Text
    y_text: Text
    bounds: tuple[float, float]  # of y

    def draw(self) -> Safe:
        frame = self._frame()
        parts = [frame.draw()]
        for line in self.lines:
            parts.append(self._line(line, frame))
        parts += self._names(frame)
        drawing = svg(self.key, self.title, self.description, (WIDE, HIGH), parts)
        items = [tag("li", swatch(line.number), line.name) for line in self.lines]
        return joined(drawing, tag("ul", items, class_="legend"))

    def _frame(self) -> Frame:
        costs: list[float] = []
        figures: list[float] = []
        for line in self.lines:
            for offer in line.offers:
                costs.append(offer.cost)
                half = offer.spread or 0.0
                figures += [offer.figure - half, offer.figure + half]
        low, high = self.bounds
        within = [min(max(figure, low), high) for figure in figures]
        y = scale(within, HIGH - 46, 34.0, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        x = scale(costs, left + 12, WIDE - 30, ticks=4)
        return Frame(x, y, self.x_text, self.y_text, self.x_name, self.y_name)

    def _names(self, frame: Frame) -> list[Safe]:
        """Return the labels of the points; points on the same spot share one label."""
        names_at: dict[tuple[float, float], list[str]] = {}  # by the point's cost and figure
        for line in self.lines:
            for offer in line.offers:
                names = names_at.setdefault((offer.cost, offer.figure), [])
                if offer.name not in names:
                    names.append(offer.name)
        marks = []
        for (cost, figure), names in names_at.items():
            marks.append(Mark(", ".join(names), cost, figure))
        if len(marks) > MOST_NAMED:
            return []
        return placed(marks, frame)

    def _line(self, line: Offers, frame: Frame) -> Safe:
        colour = f"c{line.number % SERIES}"
        offers = sorted(line.offers, key=lambda offer: offer.cost)
        corners = []
        points = []
        for offer in offers:
            x = near(frame.x(offer.cost))
            y = near(frame.y(offer.figure))
            corners.append(f"{x} {y}")
            points.append(self._point(line, offer, frame))
        curve = None
        if len(offers) > 1:
            dashes = dashes_of(line.number)
            path = "M" + "L".join(corners)
            curve = tag("path", d=path, class_=f"curve {colour}", stroke_dasharray=dashes)
        return joined(curve, points)

    def _point(self, line: Offers, offer: Offer, frame: Frame) -> Safe:
        colour = f"c{line.number % SERIES}"
        x = near(frame.x(offer.cost))
        y = near(frame.y(offer.figure))
        amounts = f"{self.x_text(offer.cost)}, {self.y_text(offer.figure)}"
        whole_name = line.name
        if offer.name != line.name:
            whole_name = f"{line.name}, {offer.name}"
        tip = tag("title", f"{whole_name}: {amounts}")
        whisker = None
        if offer.spread is not None:
            low = near(within(frame, offer.figure - offer.spread))
            high = near(within(frame, offer.figure + offer.spread))
            whisker = tag("path", d=f"M{x} {low}V{high}", class_=f"whisker {colour}")
        shape = tag("circle", cx=x, cy=y, r=4.5, class_=f"dot {colour}")
        return tag("g", tip, whisker, shape)


def within(frame: Frame, figure: float) -> float:
    """Return the figure's height in pixels; one beyond the scale is put at the scale's end."""
    return frame.y(min(max(figure, frame.y.low), frame.y.high))
