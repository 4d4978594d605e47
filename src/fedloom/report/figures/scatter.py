"""One figure against another: a point a client or a method, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import HIGH, LETTER, WIDE, Frame, Text, near, room, scale, short, svg, words
from fedloom.report.figures.intervals import dot
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

Box = tuple[float, float, float, float]  # left, top, right, bottom
MOST_NAMED = 25  # points with their names beside them


@dataclass(frozen=True)
class Mark:
    name: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    worst: bool = False
    number: int = 0  # its colour


def scatter(
    key: str, title: str, about: str, marks: Sequence[Mark], x_name: str, y_name: str, x_text: Text, y_text: Text,
    bounds: tuple[float, float],
) -> Safe:  # fmt: skip
    ends = [end for mark in marks for end in mark.interval or ()]
    y = scale([*(mark.y for mark in marks), *ends], HIGH - 46, 34.0, bounds=bounds)
    left = room(map(y_text, y.ticks))
    x = scale([mark.x for mark in marks], left + 12, WIDE - 26, ticks=4)
    frame = Frame(x, y, x_text, y_text, x_name, y_name)
    labels = placed(marks, frame) if len(marks) <= MOST_NAMED else [None] * len(marks)
    drawn = [one(mark, frame, label) for mark, label in zip(marks, labels, strict=True)]
    return svg(key, title, about, (WIDE, HIGH), frame.draw(), drawn)


def one(mark: Mark, frame: Frame, label: Safe | None) -> Safe:
    x, y = near(frame.x(mark.x)), near(frame.y(mark.y))
    colour = "mark" if mark.worst else f"c{mark.number % SERIES}"
    whisker = None
    if mark.interval is not None and label is not None:
        low, high = (near(frame.y(end)) for end in mark.interval)
        whisker = tag("path", d=f"M{x} {low}V{high}", class_=f"whisker {colour}")
    tip = tag("title", f"{mark.name}: {frame.x_text(mark.x)}, {frame.y_text(mark.y)}")
    return tag("g", tip, joined(whisker, dot(x, y, mark.worst, colour), label))


def placed(marks: Sequence[Mark], frame: Frame) -> list[Safe]:
    """Names beside their points: at the first of four corners where no other name or point is."""
    taken = [(frame.x(mark.x) - 5, frame.y(mark.y) - 5, frame.x(mark.x) + 5, frame.y(mark.y) + 5) for mark in marks]
    found = []
    for mark in marks:
        x, y, name = frame.x(mark.x), frame.y(mark.y), short(mark.name)
        corners = [corner(x, y, len(name) * LETTER, *sides) for sides in ((1, -1), (-1, -1), (1, 1), (-1, 1))]
        inside = [box for box in corners if box[0] >= frame.x.begin - 10 and box[2] <= WIDE]
        free = [box for box in inside if not any(overlap(box, other) for other in taken)]
        box = (free or inside or corners)[0]
        taken.append(box)
        found.append(words(box[0], box[3] - 3, name, "label"))
    return found


def corner(x: float, y: float, width: float, side: int, above: int) -> Box:
    """Where a name of this width lies, right (1) or left of a point and below (1) or above it."""
    left = x + 8 if side > 0 else x - 8 - width
    top = y + 2 if above > 0 else y - 17
    return left, top, left + width, top + 15


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
