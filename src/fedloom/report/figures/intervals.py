"""A chart of figures with their intervals: one row per item, or for many items a sorted curve."""

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

ROW = 24.0  # pixels
MOST_ROWS = 30  # items; more are drawn as a curve


@dataclass(frozen=True)
class Item:
    """A client or a method: its figure and interval."""

    name: str
    value: float
    interval: tuple[float, float] | None
    other: float | None = None  # the figure of the model that it is compared with
    worst: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; without one, the value twice."""
        if self.interval is None:
            return self.value, self.value
        return self.interval

    def spoken(self, text: Text) -> str:
        """Return the text that a pointer resting on the item shows."""
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
    description: str
    items: Sequence[Item]
    name: str  # of the figure
    text: Text
    bounds: tuple[float, float]
    holds_zero: bool = False  # whether the axis must show 0, as for differences

    def draw(self) -> Safe:
        if len(self.items) <= MOST_ROWS:
            return self._rows()
        return self._ordered()

    def _values(self) -> list[float]:
        """Return every value that the axis must have room for."""
        values = all_values(self.items)
        if self.holds_zero:
            values.append(0.0)
        return values

    def _rows(self) -> Safe:
        """Draw one row per item: a whisker and a dot.

        A ring is the other model, a diamond the worst item.
        """
        names = [short(item.name) for item in self.items]
        left = 28 + LETTER * max(map(len, names))  # with room for wide and for bold letters
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
            kind = "label"
            if item.worst:
                kind = "worst-name"
            parts.append(words(left - 10, y + 4, names[number], kind, "end"))
            parts.append(row(item, x, y, self.text))
        return svg(self.key, self.title, self.description, (WIDE, bottom + 46), parts)

    def _ordered(self) -> Safe:
        """Draw items that are too many for rows: a curve from the lowest to the highest figure.

        Their intervals become one area.
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
                worst.append(diamond(x(number), y(item.value)))
        outline = "M" + "L".join([*highs, *reversed(lows)]) + "z"
        area = tag("path", d=outline, class_="area c0")
        line = tag("path", d="M" + "L".join(values), class_="curve c0")
        drawn = joined(area, frame.draw(), line)
        return svg(self.key, self.title, self.description, (WIDE, HIGH), drawn, worst)


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
    point = dot(x(item.value), y, colour)
    if item.worst:
        point = diamond(x(item.value), y)
    return tag("g", tag("title", item.spoken(text)), whisker, ring, point)


def dot(x: float, y: float, colour: str) -> Safe:
    return tag("circle", cx=near(x), cy=near(y), r=4.5, class_=f"dot {colour}")


def diamond(x: float, y: float) -> Safe:
    """Mark what stands out, such as the worst client: by its shape, not by its colour alone."""
    outline = f"M{near(x)} {near(y) - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"
    return tag("path", d=outline, class_="dot mark")


def all_values(items: Sequence[Item]) -> list[float]:
    """Return all figures, interval ends and compared figures of the items."""
    values: list[float] = []
    for item in items:
        values.append(item.value)
        values.extend(item.ends)
        if item.other is not None:
            values.append(item.other)
    return values
