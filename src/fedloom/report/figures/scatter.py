"""One figure against another: a point a client or a method, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import HIGH, WIDE, Frame, Text, near, room, scale, short, svg, words
from fedloom.report.figures.intervals import dot
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

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
    named = len(marks) <= MOST_NAMED
    drawn = [one(mark, frame, named) for mark in marks]
    return svg(key, title, about, (WIDE, HIGH), frame.draw(), drawn)


def one(mark: Mark, frame: Frame, named: bool) -> Safe:
    x, y = near(frame.x(mark.x)), near(frame.y(mark.y))
    colour = "mark" if mark.worst else f"c{mark.number % SERIES}"
    whisker = None
    if mark.interval is not None and named:
        low, high = (near(frame.y(end)) for end in mark.interval)
        whisker = tag("path", d=f"M{x} {low}V{high}", class_=f"whisker {colour}")
    left = x > frame.x.end - 60
    label = words(x + (-9 if left else 9), y - 7, short(mark.name), "label", "end" if left else None) if named else None
    tip = tag("title", f"{mark.name}: {frame.x_text(mark.x)}, {frame.y_text(mark.y)}")
    return tag("g", tip, joined(whisker, dot(x, y, mark.worst, colour), label))
