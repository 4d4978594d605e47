"""A line chart over rounds, or over what was spent.

Phases are shaded behind the lines, and dotted levels show what to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import (
    HIGH,
    WIDE,
    Frame,
    Scale,
    Text,
    finite,
    near,
    room,
    scale,
    svg,
    words,
)
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import DASHES, SERIES

MOST_POINTS = 400  # of a line: more points than pixels show nothing
Point = tuple[float, float | None]  # a round (or what was spent), and a figure or None


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    number: int  # its colour and dashes


@dataclass(frozen=True)
class Band:
    """A phase: shaded from its first round to its last."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Level:
    """A constant figure, drawn as a dotted line."""

    name: str
    value: float


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    description: str
    y_name: str
    y_text: Text
    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    levels: Sequence[Level] = ()
    bounds: tuple[float, float] | None = None
    floor: float | None = None  # a value that the y axis must include
    x_name: str = "round"
    x_text: Text | None = None  # how amounts spent are written; None: the x axis has rounds

    def draw(self) -> Safe:
        frame = self._frame()
        parts = [shade(frame, band, number) for number, band in enumerate(self.bands)]
        for band in self.bands[1:]:
            cut = f"M{near(frame.x(band.begin - 0.5))} {frame.y.end}V{frame.y.begin}"
            parts.append(tag("path", d=cut, class_="cut"))
        parts.append(frame.draw())
        for level in self.levels:
            line_across = f"M{frame.x.begin} {near(frame.y(level.value))}H{frame.x.end}"
            parts.append(tag("path", d=line_across, class_="level"))
        for line in self.lines:
            parts.append(draw_line(line, frame.x, frame.y))
        drawing = svg(self.key, self.title, self.description, (WIDE, HIGH), parts)
        return joined(drawing, self._legend())

    def _frame(self) -> Frame:
        rounds: list[float] = []
        figures: list[float] = []
        for line in self.lines:
            rounds += [number for number, _ in line.points]
            figures += finite(value for _, value in line.points)
        figures += [level.value for level in self.levels]
        if self.floor is not None:
            figures.append(self.floor)
        if not rounds:
            rounds = [0.0, 1.0]
        top = 34.0
        if self.bands:
            top = 46.0  # with room for their names
        bottom = HIGH - 46
        y = scale(figures, bottom, top, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        if self.x_text is not None:
            x = scale([0.0, *rounds], left, WIDE - 24)
            return Frame(x, y, self.x_text, self.y_text, self.x_name, self.y_name)
        x = whole_rounds(rounds, left, WIDE - 14)
        return Frame(x, y, lambda tick: f"{tick:g}", self.y_text, self.x_name, self.y_name)

    def _legend(self) -> Safe:
        items = [tag("li", swatch(line.number), line.name) for line in self.lines]
        for level in self.levels:
            text = f"{level.name}: {self.y_text(level.value)}"
            items.append(tag("li", swatch(None), text))
        return tag("ul", items, class_="legend")


def whole_rounds(rounds: Sequence[float], begin: float, end: float) -> Scale:
    """Return an axis from the first to the last round, with ticks at whole rounds."""
    low = min(rounds)
    high = max(rounds)
    if low == high:
        return Scale(low - 0.5, high + 0.5, begin, end, (low,))
    size = whole_step(math.ceil((high - low) / 6))
    first = math.ceil(low / size) * size
    whole_numbers = range(first, math.floor(high) + 1, size)
    return Scale(low, high, begin, end, tuple(map(float, whole_numbers)))


def whole_step(least: int) -> int:
    """Return the first of 1, 2, 5, 10, 20, … that is not below `least`."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= least:
                return step * power
        power *= 10


def shade(frame: Frame, band: Band, number: int) -> Safe:
    """Shade every other phase, and write its name where it fits."""
    left = max(frame.x.begin, frame.x(band.begin - 0.5))
    right = min(frame.x.end, frame.x(band.end + 0.5))
    ground = None
    if number % 2:
        ground = tag(
            "rect",
            x=near(left),
            y=frame.y.end,
            width=near(max(0.0, right - left)),
            height=frame.y.begin - frame.y.end,
            class_="band",
        )
    label = None
    if len(band.name) * 6.5 < right - left:
        label = words((left + right) / 2, frame.y.end - 6, band.name, "phase", "middle")
    return joined(ground, label)


def draw_line(line: Line, x: Scale, y: Scale) -> Safe:
    """Draw a line; rounds without a figure are skipped, and a single figure is a dot."""
    points = thinned(line.points)
    if not points:
        return Safe("")
    colour = f"c{line.number % SERIES}"
    last_round, last_value = points[-1]
    last_x = near(x(last_round))
    last_y = near(y(last_value))
    end = tag("circle", cx=last_x, cy=last_y, r=3.5, class_=f"dot {colour}")
    if len(points) == 1:
        return end
    corners = []
    for number, value in points:
        corners.append(f"{near(x(number))} {near(y(value))}")
    path = "M" + "L".join(corners)
    dashes = dashes_of(line.number)
    curve = tag("path", d=path, class_=f"curve {colour}", stroke_dasharray=dashes)
    return joined(curve, end)


def thinned(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the points that have a figure; of too many, some at equal distances and the last."""
    drawable = []
    for number, value in points:
        if value is not None and math.isfinite(value):
            drawable.append((number, value))
    every = math.ceil(len(drawable) / MOST_POINTS)
    if every <= 1:
        return drawable
    return [*drawable[::every], drawable[-1]]


def dashes_of(number: int) -> str | None:
    """Return a line's dashes; None: it is solid."""
    return DASHES[number % len(DASHES)] or None


def swatch(number: int | None) -> Safe:
    """Draw a piece of a line for the legend; None stands for a level."""
    kind = "level"
    dashes = None
    if number is not None:
        kind = f"curve c{number % SERIES}"
        dashes = dashes_of(number)
    line = tag("path", d="M1 6H27", class_=kind, stroke_dasharray=dashes)
    return tag(
        "svg",
        line,
        width=28,
        height=12,
        viewBox="0 0 28 12",
        class_="swatch",
        aria_hidden="true",
    )
