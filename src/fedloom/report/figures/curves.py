"""Lines over rounds, with phases shaded behind them and levels to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.figures.chart import HIGH, WIDE, Frame, Scale, Text, known, near, room, scale, svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import DASHES, SERIES

MOST_POINTS = 400  # of a line; more than pixels say nothing
Point = tuple[float, float | None]  # a round, and a figure or none


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
    """A figure that does not change, as a dotted line."""

    name: str
    value: float


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    about: str
    y_name: str
    y_text: Text
    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    levels: Sequence[Level] = ()
    bounds: tuple[float, float] | None = None
    floor: float | None = None  # where the scale begins at the latest

    def draw(self) -> Safe:
        frame = self._frame()
        begin = [band.begin for band in self.bands[1:]]
        parts = [shade(frame, band, k) for k, band in enumerate(self.bands)]
        parts += [
            tag("path", d=f"M{near(frame.x(x - 0.5))} {frame.y.end}V{frame.y.begin}", class_="cut") for x in begin
        ]
        parts += [frame.draw()]
        parts += [tag("path", d=f"M{frame.x.begin} {near(frame.y(level.value))}H{frame.x.end}", class_="level")
                  for level in self.levels]  # fmt: skip
        parts += [draw_line(line, frame.x, frame.y) for line in self.lines]
        return joined(svg(self.key, self.title, self.about, (WIDE, HIGH), parts), self._legend())

    def _frame(self) -> Frame:
        rounds = [x for line in self.lines for x, _ in line.points] or [0.0, 1.0]
        figures = known(y for line in self.lines for _, y in line.points)
        top, bottom = 46.0 if self.bands else 34.0, HIGH - 46
        floor = [] if self.floor is None else [self.floor]
        y = scale([*figures, *(level.value for level in self.levels), *floor], bottom, top, bounds=self.bounds)
        left = room(map(self.y_text, y.ticks))
        x = whole_rounds(rounds, left, WIDE - 14)
        return Frame(x, y, lambda tick: f"{tick:g}", self.y_text, "round", self.y_name)

    def _legend(self) -> Safe:
        items = [tag("li", swatch(line.number), line.name) for line in self.lines]
        items += [tag("li", swatch(None), f"{level.name}: {self.y_text(level.value)}") for level in self.levels]
        return tag("ul", items, class_="legend")


def whole_rounds(rounds: Sequence[float], begin: float, end: float) -> Scale:
    """From the first to the last: a half round is none."""
    low, high = min(rounds), max(rounds)
    if low == high:
        return Scale(low - 0.5, high + 0.5, begin, end, (low,))
    size = max(1, math.ceil((high - low) / 6))
    size = next(step * 10**p for p in range(12) for step in (1, 2, 5) if step * 10**p >= size)
    ticks = [float(k) for k in range(math.ceil(low / size) * size, math.floor(high) + 1, size)]
    return Scale(low, high, begin, end, tuple(ticks))


def shade(frame: Frame, band: Band, number: int) -> Safe:
    """Every other phase has a ground of its own, all have their names."""
    left = max(frame.x.begin, frame.x(band.begin - 0.5))
    right = min(frame.x.end, frame.x(band.end + 0.5))
    box = tag(
        "rect", x=near(left), y=frame.y.end, width=near(max(0.0, right - left)), height=frame.y.begin - frame.y.end,
        class_="band",
    )  # fmt: skip
    fits = len(band.name) * 6.5 < right - left
    label = words((left + right) / 2, frame.y.end - 6, band.name, "phase", "middle") if fits else None
    return joined(box if number % 2 else None, label)


def draw_line(line: Line, x: Scale, y: Scale) -> Safe:
    """Rounds without a figure are passed over; one figure alone is a dot."""
    points = [(near(x(at)), near(y(value))) for at, value in thinned(line.points)]
    if not points:
        return Safe("")
    colour = f"c{line.number % SERIES}"
    end = tag("circle", cx=points[-1][0], cy=points[-1][1], r=3.5, class_=f"dot {colour}")
    if len(points) == 1:
        return end
    dash = DASHES[line.number % len(DASHES)] or None
    path = "M" + "L".join(f"{a} {b}" for a, b in points)
    return joined(tag("path", d=path, class_=f"curve {colour}", stroke_dasharray=dash), end)


def thinned(points: Sequence[Point]) -> list[tuple[float, float]]:
    found = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
    every = -(-len(found) // MOST_POINTS)
    return found if every <= 1 else [*found[::every], found[-1]]


def swatch(number: int | None) -> Safe:
    """A piece of the line; None: of a level."""
    if number is None:
        line = tag("path", d="M1 6H27", class_="level")
    else:
        dash = DASHES[number % len(DASHES)] or None
        line = tag("path", d="M1 6H27", class_=f"curve c{number % SERIES}", stroke_dasharray=dash)
    return tag("svg", line, width=28, height=12, viewBox="0 0 28 12", class_="swatch", aria_hidden="true")
