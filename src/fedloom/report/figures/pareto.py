"""A chart of loss against cost: scored paths, their front, the chosen path and its control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import (
    HIGH,
    WIDE,
    Frame,
    Text,
    log_scale,
    near,
    room,
    scale,
    svg,
    words,
)
from fedloom.report.figures.intervals import diamond
from fedloom.report.figures.legend import Entry, legend
from fedloom.report.html import Safe, joined, tag

MOST_COARSE = 400  # points; if there are more, they are drawn finer
LARGE_RANGE = 8  # ratio of largest to smallest loss above which the axis is logarithmic


@dataclass(frozen=True)
class Place:
    """Where a path lies in the chart."""

    cost: float
    loss: float


@dataclass(frozen=True)
class Pareto:
    key: str
    title: str
    description: str
    scored: Sequence[Place]
    front: Sequence[Place]
    chosen: Place | None
    control: Place | None
    limit: float | None  # the limit on the cost, if it has the same unit
    x_name: str
    y_name: str
    x_text: Text
    y_text: Text

    def draw(self) -> Safe:
        frame = self._frame()
        parts = [frame.draw(), self._limit(frame), specks(self.scored, frame)]
        parts.append(staircase(self.front, frame))
        if self.control is not None:
            parts.append(self._named("control", ring(self.control, frame), self.control))
        if self.chosen is not None:
            x = frame.x(self.chosen.cost)
            y = frame.y(self.chosen.loss)
            parts.append(self._named("chosen", diamond(x, y), self.chosen))
        drawing = svg(self.key, self.title, self.description, (WIDE, HIGH), parts)
        return joined(drawing, self._legend())

    def _frame(self) -> Frame:
        places = [*self.scored, *self.front]
        for place in (self.chosen, self.control):
            if place is not None:
                places.append(place)
        costs = [place.cost for place in places]
        losses = [place.loss for place in places]
        if self.limit is not None:
            costs.append(self.limit)
        bottom = HIGH - 46
        y = scale(losses, bottom, 34.0)
        if min(losses, default=0.0) > 0 and max(losses) > LARGE_RANGE * min(losses):
            y = log_scale(losses, bottom, 34.0)
        left = room(map(self.y_text, y.ticks))
        x = scale(costs, left + 12, WIDE - 26, ticks=4)
        return Frame(x, y, self.x_text, self.y_text, self.x_name, self.y_name)

    def _limit(self, frame: Frame) -> Safe | None:
        if self.limit is None:
            return None
        x = near(frame.x(self.limit))
        line = tag("path", d=f"M{x} {frame.y.end}V{frame.y.begin}", class_="level")
        name = words(x - 4, frame.y.end - 4, "limit", "phase", "end")
        return joined(line, name)

    def _named(self, name: str, shape: Safe, place: Place) -> Safe:
        """Add the text that a pointer resting on the shape shows."""
        amounts = f"{self.x_text(place.cost)}, {self.y_text(place.loss)}"
        return tag("g", tag("title", f"{name}: {amounts}"), shape)

    def _legend(self) -> Safe:
        entries = []
        if self.scored:
            entries.append(Entry(tag("path", d="M14 6h0", class_="speck"), "a scored path"))
        if self.front:
            line = tag("path", d="M1 6H27", class_="curve c0")
            entries.append(Entry(line, "front: no path is better in both"))
        if self.chosen is not None:
            entries.append(Entry(diamond(14, 6), "chosen"))
        if self.control is not None:
            shape = tag("circle", cx=14, cy=6, r=4.5, class_="ring c1")
            entries.append(Entry(shape, "control: a random path of about the same cost"))
        return legend(entries)


def specks(places: Sequence[Place], frame: Frame) -> Safe | None:
    """Draw many small points as one shape."""
    if not places:
        return None
    points = []
    for place in places:
        x = near(frame.x(place.cost))
        y = near(frame.y(place.loss))
        points.append(f"M{x} {y}h0")
    return tag("path", d="".join(points), class_=speck_class(len(places)))


def speck_class(count: int) -> str:
    """Return the CSS class of points: many points are drawn finer."""
    if count > MOST_COARSE:
        return "speck fine"
    return "speck"


def staircase(front: Sequence[Place], frame: Frame) -> Safe | None:
    """Draw the front as a staircase: from its cost on, each path is the best that is affordable."""
    places = sorted(front, key=lambda place: place.cost)
    if not places:
        return None
    line = ""
    points = []
    for place in places:
        x = near(frame.x(place.cost))
        y = near(frame.y(place.loss))
        if not line:
            line = f"M{x} {y}"
        else:
            line += f"H{x}V{y}"
        points.append(tag("circle", cx=x, cy=y, r=3, class_="dot c0"))
    return joined(tag("path", d=line, class_="curve c0"), points)


def ring(place: Place, frame: Frame) -> Safe:
    x = near(frame.x(place.cost))
    y = near(frame.y(place.loss))
    return tag("circle", cx=x, cy=y, r=4.5, class_="ring c1")
