"""A figure for each client with its interval; of many clients, all of them in order."""

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
    short,
    svg,
    tick_texts,
    words,
)
from fedloom.report.html import Safe, joined, tag

ROW = 24.0
MOST_ROWS = 30  # clients with a row of their own


@dataclass(frozen=True)
class Item:
    name: str
    value: float
    interval: tuple[float, float] | None
    other: float | None = None  # the same figure of the model beside it
    worst: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Of its interval; of one without, its value twice."""
        if self.interval is None:
            return self.value, self.value
        return self.interval

    def spoken(self, text: Text) -> str:
        """For a pointer that rests on it."""
        sentence = f"{self.name}: {text(self.value)}"
        if self.interval is not None:
            low, high = self.interval
            sentence += f" ({text(low)} to {text(high)})"
        if self.worst:
            sentence += ", the worst"
        return sentence


@dataclass(frozen=True)
class Intervals:
    key: str
    title: str
    about: str
    items: Sequence[Item]
    name: str  # of the figure
    text: Text
    bounds: tuple[float, float]
    holds_zero: bool = False  # of differences: the axis shows where there is none

    def draw(self) -> Safe:
        if len(self.items) <= MOST_ROWS:
            return self._rows()
        return self._ordered()

    def _values(self) -> list[float]:
        """All that the axis must show."""
        values = all_values(self.items)
        if self.holds_zero:
            values.append(0.0)
        return values

    def _rows(self) -> Safe:
        """A row a client: a whisker and a dot.

        A ring is the other model, a diamond the worst client.
        """
        names = [short(item.name) for item in self.items]
        left = 28 + LETTER * max(map(len, names))  # room for wide letters, and bold ones
        bottom = 30 + ROW * len(self.items)
        x = scale(self._values(), left, WIDE - 22, bounds=self.bounds)
        parts = []
        for tick in x.ticks:
            parts.append(tag("path", d=f"M{near(x(tick))} 24V{bottom}", class_="grid"))
        for tick, tick_text in tick_texts(x, self.text):
            parts.append(words(x(tick), bottom + 17, tick_text, "tick", "middle"))
        if self.holds_zero:
            parts.append(tag("path", d=f"M{near(x(0.0))} 24V{bottom}", class_="axis"))
        parts.append(words((left + WIDE - 22) / 2, bottom + 36, self.name, "name", "middle"))
        for number, item in enumerate(self.items):
            y = 30 + ROW * (number + 0.5)
            kind = "worst-name" if item.worst else "label"
            parts.append(words(left - 10, y + 4, names[number], kind, "end"))
            parts.append(row(item, x, y, self.text))
        return svg(self.key, self.title, self.about, (WIDE, bottom + 46), parts)

    def _ordered(self) -> Safe:
        """Too many for rows: all clients from the lowest to the highest figure.

        Their intervals are one area.
        """
        items = sorted(self.items, key=lambda item: item.value)
        y = scale(self._values(), HIGH - 46, 34.0, bounds=self.bounds)
        left = room(map(self.text, y.ticks))
        last = len(items) - 1
        x = Scale(0, last, left, WIDE - 14, (0, last))
        frame = Frame(
            x,
            y,
            lambda tick: f"{tick + 1:.0f}",
            self.text,
            "clients, by their figure",
            self.name,
        )
        lows = []
        values = []
        highs = []
        worst = []
        for number, item in enumerate(items):
            across = near(x(number))
            low, high = item.ends
            lows.append(f"{across} {near(y(low))}")
            values.append(f"{across} {near(y(item.value))}")
            highs.append(f"{across} {near(y(high))}")
            if item.worst:
                worst.append(dot(x(number), y(item.value), True, "mark"))
        outline = "M" + "L".join([*highs, *reversed(lows)]) + "z"
        area = tag("path", d=outline, class_="area c0")
        line = tag("path", d="M" + "L".join(values), class_="curve c0")
        drawn = joined(area, frame.draw(), line)
        return svg(self.key, self.title, self.about, (WIDE, HIGH), drawn, worst)


def row(item: Item, x: Scale, y: float, text: Text) -> Safe:
    colour = "c0"
    if item.worst:
        colour = "mark"
    ring = None
    if item.other is not None:
        ring = tag("circle", cx=near(x(item.other)), cy=y, r=4.5, class_="ring c1")
    whisker = None
    if item.interval is not None:
        low, high = (near(x(end)) for end in item.interval)
        line = f"M{low} {y - 4}v8M{low} {y}H{high}M{high} {y - 4}v8"
        whisker = tag("path", d=line, class_=f"whisker {colour}")
    tip = tag("title", item.spoken(text))
    return tag("g", tip, whisker, ring, dot(x(item.value), y, item.worst, colour))


def dot(x: float, y: float, worst: bool, colour: str) -> Safe:
    """A diamond for the worst, so that colour is not all that tells."""
    x = near(x)
    y = near(y)
    if worst:
        diamond = f"M{x} {y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"
        return tag("path", d=diamond, class_=f"dot {colour}")
    return tag("circle", cx=x, cy=y, r=4.5, class_=f"dot {colour}")


def all_values(items: Sequence[Item]) -> list[float]:
    """All that a scale must have room for."""
    values: list[float] = []
    for item in items:
        values.append(item.value)
        values.extend(item.ends)
        if item.other is not None:
            values.append(item.other)
    return values
