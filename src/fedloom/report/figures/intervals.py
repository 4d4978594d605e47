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

    def spoken(self, text: Text) -> str:
        """For a pointer that rests on it."""
        between = "" if self.interval is None else f" ({text(self.interval[0])} to {text(self.interval[1])})"
        return f"{self.name}: {text(self.value)}{between}" + (", the worst" if self.worst else "")


def intervals(
    key: str, title: str, about: str, items: Sequence[Item], name: str, text: Text, bounds: tuple[float, float]
) -> Safe:
    draw = rows if len(items) <= MOST_ROWS else ordered
    return draw(key, title, about, items, name, text, bounds)


def rows(
    key: str, title: str, about: str, items: Sequence[Item], name: str, text: Text, bounds: tuple[float, float]
) -> Safe:
    """A row a client: a whisker and a dot, a ring for the other model, a diamond for the worst."""
    names = [short(item.name) for item in items]
    left = 28 + LETTER * max(map(len, names))  # room for wide letters, and bold ones
    bottom = 30 + ROW * len(items)
    x = scale(all_values(items), left, WIDE - 22, bounds=bounds)
    parts = [tag("path", d=f"M{near(x(tick))} 24V{bottom}", class_="grid") for tick in x.ticks]
    parts += [words(x(tick), bottom + 17, told, "tick", "middle") for tick, told in tick_texts(x, text)]
    parts.append(words((left + WIDE - 22) / 2, bottom + 36, name, "name", "middle"))
    for k, item in enumerate(items):
        y = 30 + ROW * (k + 0.5)
        parts.append(words(left - 10, y + 4, names[k], "worst-name" if item.worst else "label", "end"))
        parts.append(row(item, x, y, text))
    return svg(key, title, about, (WIDE, bottom + 46), parts)


def row(item: Item, x: Scale, y: float, text: Text) -> Safe:
    colour = "mark" if item.worst else "c0"
    ring = None if item.other is None else tag("circle", cx=near(x(item.other)), cy=y, r=4.5, class_="ring c1")
    whisker = None
    if item.interval is not None:
        low, high = (near(x(end)) for end in item.interval)
        whisker = tag("path", d=f"M{low} {y - 4}v8M{low} {y}H{high}M{high} {y - 4}v8", class_=f"whisker {colour}")
    return tag("g", tag("title", item.spoken(text)), whisker, ring, dot(x(item.value), y, item.worst, colour))


def dot(x: float, y: float, worst: bool, colour: str) -> Safe:
    """A diamond for the worst, so that colour is not all that tells."""
    x, y = near(x), near(y)
    if worst:
        return tag("path", d=f"M{x} {y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z", class_=f"dot {colour}")
    return tag("circle", cx=x, cy=y, r=4.5, class_=f"dot {colour}")


def ordered(
    key: str, title: str, about: str, items: Sequence[Item], name: str, text: Text, bounds: tuple[float, float]
) -> Safe:
    """Too many for rows: all clients from the lowest to the highest figure, their intervals as one area."""
    found = sorted(items, key=lambda item: item.value)
    y = scale(all_values(found), HIGH - 46, 34.0, bounds=bounds)
    left = 14 + LETTER * max(len(text(tick)) for tick in y.ticks)
    x = Scale(0, len(found) - 1, left, WIDE - 14, (0, len(found) - 1))
    frame = Frame(x, y, lambda tick: f"{tick + 1:.0f}", text, "clients, by their figure", name)
    area = "M" + "L".join(f"{near(x(k))} {near(y((item.interval or (item.value,) * 2)[1]))}" for k, item in
                          enumerate(found))  # fmt: skip
    area += "L" + "L".join(
        f"{near(x(k))} {near(y((found[k].interval or (found[k].value,) * 2)[0]))}" for k in reversed(range(len(found)))
    )
    line = "M" + "L".join(f"{near(x(k))} {near(y(item.value))}" for k, item in enumerate(found))
    worst = [dot(x(k), y(item.value), True, "mark") for k, item in enumerate(found) if item.worst]
    parts = joined(tag("path", d=area + "z", class_="area c0"), frame.draw(), tag("path", d=line, class_="curve c0"))
    return svg(key, title, about, (WIDE, HIGH), parts, worst)


def all_values(items: Sequence[Item]) -> list[float]:
    others = [item.other for item in items if item.other is not None]
    return [*(item.value for item in items), *others, *(end for item in items for end in item.interval or ())]
