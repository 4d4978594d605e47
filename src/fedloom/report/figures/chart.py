"""What all charts share: the SVG around them, scales with round ticks, and a frame with a grid and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedloom.report.html import Child, Safe, joined, tag

WIDE, HIGH = 460.0, 290.0  # of a chart: readable at the width of a phone, and two beside each other on a screen
LETTER = 7.0  # pixels of a character, about
Text = Callable[[float], str]


def svg(key: str, title: str, about: str, size: tuple[float, float], *content: Child, kind: str = "chart") -> Safe:
    """A drawing with a name and a description for those who cannot see it. `key` is unique in the page."""
    width, height = size
    return tag(
        "svg", tag("title", title, id=f"{key}-title"), tag("desc", about, id=f"{key}-about"), *content,
        role="img", aria_labelledby=f"{key}-title {key}-about", class_=kind, viewBox=f"0 0 {width:g} {height:g}",
        width=round(width, 1), height=round(height, 1),
    )  # fmt: skip


def words(x: float, y: float, text: str, kind: str | None = None, anchor: str | None = None) -> Safe:
    return tag("text", text, x=near(x), y=near(y), class_=kind, text_anchor=anchor)


def near(value: float) -> float:
    """A tenth of a pixel is enough, and keeps pages small."""
    return round(value, 1)


def known(values: Iterable[float | None]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


@dataclass(frozen=True)
class Scale:
    """From figures to pixels, and where its ticks are."""

    low: float
    high: float
    begin: float  # pixels
    end: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def scale(
    values: Sequence[float], begin: float, end: float, *, bounds: tuple[float, float] | None = None, ticks: int = 5
) -> Scale:
    """Round ends around all values, inside of `bounds` where figures cannot leave them."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low < 1e-12:
        half = abs(low) * 0.1 or 0.5
        low, high = low - half, high + half
    size = round_step((high - low) / ticks)
    low, high = math.floor(low / size + 1e-9) * size, math.ceil(high / size - 1e-9) * size
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
    return Scale(low, high, begin, end, tuple(round(k * size, 12) for k in range(first, last + 1)))


def round_step(size: float) -> float:
    """The next of 1, 2, 5, 10, …"""
    power = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= size * 0.999999)


@dataclass(frozen=True)
class Frame:
    """Scales, what is written beside their ticks, and what they are called."""

    x: Scale
    y: Scale
    x_text: Text
    y_text: Text
    x_name: str
    y_name: str

    def draw(self) -> Safe:
        x_texts, y_texts = tick_texts(self.x, self.x_text), tick_texts(self.y, self.y_text)
        left, right, bottom = self.x.begin, self.x.end, self.y.begin
        parts = [
            tag("path", d=f"M{near(left)} {near(self.y(tick))}H{near(right)}", class_="grid") for tick in self.y.ticks
        ]
        parts += [words(left - 7, self.y(tick) + 4, text, "tick", "end") for tick, text in y_texts]
        parts += [words(self.x(tick), bottom + 18, text, "tick", "middle") for tick, text in x_texts]
        parts.append(tag("path", d=f"M{near(left)} {near(bottom)}H{near(right)}", class_="axis"))
        parts.append(words((left + right) / 2, bottom + 37, self.x_name, "name", "middle"))
        parts.append(words(4, 14, self.y_name, "name"))
        return joined(parts)


def tick_texts(along: Scale, text: Text) -> list[tuple[float, str]]:
    """Ticks and their texts, without decimals that say nothing."""
    found = [text(tick) for tick in along.ticks]
    whole = all(each.endswith(".0") for each in found)
    return list(zip(along.ticks, (each.removesuffix(".0") if whole else each for each in found), strict=True))


def room(texts: Iterable[str]) -> float:
    """Pixels that the longest of these needs at the left of a chart."""
    return 14 + LETTER * max((len(text) for text in texts), default=1)


def short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
