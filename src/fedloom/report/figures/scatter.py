"""A scatter plot of one figure against another: one point per client or method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import (
    HIGH,
    LETTER,
    WIDE,
    Frame,
    Text,
    near,
    room,
    scale,
    short,
    svg,
    words,
)
from fedloom.report.figures.intervals import diamond, dot
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

MOST_NAMED = 25  # points; more have neither names nor intervals


@dataclass(frozen=True)
class Mark:
    """A point of the plot: a client or a method."""

    name: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    worst: bool = False
    number: int = 0  # its colour


@dataclass(frozen=True)
class Scatter:
    key: str
    title: str
    description: str
    marks: Sequence[Mark]
    x_name: str
    y_name: str
    x_text: Text
    y_text: Text
    bounds: tuple[float, float]  # of y

    def draw(self) -> Safe:
        frame = self._frame()
        labels: list[Safe] | list[None] = [None] * len(self.marks)
        if len(self.marks) <= MOST_NAMED:
            labels = placed(self.marks, frame)
        points = []
        for mark, label in zip(self.marks, labels, strict=True):
            points.append(draw_mark(mark, frame, label))
        return svg(self.key, self.title, self.description, (WIDE, HIGH), frame.draw(), points)

    def _frame(self) -> Frame:
        heights: list[float] = []
        for mark in self.marks:
            heights.append(mark.y)
            if mark.interval is not None:
                heights.extend(mark.interval)
        y = scale(heights, HIGH - 46, 34.0, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        x = scale([mark.x for mark in self.marks], left + 12, WIDE - 26, ticks=4)
        return Frame(x, y, self.x_text, self.y_text, self.x_name, self.y_name)


def draw_mark(mark: Mark, frame: Frame, label: Safe | None) -> Safe:
    x = near(frame.x(mark.x))
    y = near(frame.y(mark.y))
    colour = f"c{mark.number % SERIES}"
    if mark.worst:
        colour = "mark"
    whisker = None
    if mark.interval is not None and label is not None:
        low, high = (near(frame.y(end)) for end in mark.interval)
        whisker = tag("path", d=f"M{x} {low}V{high}", class_=f"whisker {colour}")
    tip = tag("title", f"{mark.name}: {frame.x_text(mark.x)}, {frame.y_text(mark.y)}")
    point = dot(x, y, colour)
    if mark.worst:
        point = diamond(x, y)
    return tag("g", tip, joined(whisker, point, label))


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        beside = self.left >= other.right or other.left >= self.right
        above = self.top >= other.bottom or other.top >= self.bottom
        return not beside and not above


def placed(marks: Sequence[Mark], frame: Frame) -> list[Safe]:
    """Place each name at the first corner of its point where no other name or point is."""
    occupied = []
    for mark in marks:
        x = frame.x(mark.x)
        y = frame.y(mark.y)
        occupied.append(Box(x - 5, y - 5, x + 5, y + 5))
    names = []
    for mark in marks:
        name = short(mark.name)
        corners = corners_of(frame.x(mark.x), frame.y(mark.y), len(name) * LETTER)
        box = best_corner(corners, occupied, frame)
        occupied.append(box)
        names.append(words(box.left, box.bottom - 3, name, "label"))
    return names


def corners_of(x: float, y: float, width: float) -> list[Box]:
    """Return where a name of this width may lie beside a point, the best place first."""
    at_right = x + 8
    at_left = x - 8 - width
    above = y - 17
    below = y + 2
    return [
        name_box(at_right, above, width),
        name_box(at_left, above, width),
        name_box(at_right, below, width),
        name_box(at_left, below, width),
    ]


def name_box(left: float, top: float, width: float) -> Box:
    return Box(left, top, left + width, top + 15)


def best_corner(corners: Sequence[Box], occupied: Sequence[Box], frame: Frame) -> Box:
    """Return the first free corner, else the first one inside the chart, else the first."""
    inside = []
    for box in corners:
        if box.left >= frame.x.begin - 10 and box.right <= WIDE:
            inside.append(box)
    for box in inside:
        if not any(box.overlaps(other) for other in occupied):
            return box
    if inside:
        return inside[0]
    return corners[0]
