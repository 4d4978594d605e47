"""What all charts share: the SVG around them, scales with round ticks, and a frame with a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedloom.report.html import Child, Safe, joined, tag

# The size of a chart in pixels: it is readable on a phone, and two fit side by side on a screen.
WIDE = 460.0
HIGH = 290.0
MOST_TICKS = 8  # of a logarithmic axis
LETTER = 7.0  # pixels: about the width of a character
Text = Callable[[float], str]  # how a value is written


def svg(
    key: str,
    title: str,
    description: str,
    size: tuple[float, float],
    *content: Child,
    kind: str = "chart",
) -> Safe:
    """Return a drawing with a title and a description for readers who cannot see it.

    `key` must be unique in the page.
    """
    width, height = size
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-about"),
        *content,
        role="img",
        aria_labelledby=f"{key}-title {key}-about",
        class_=kind,
        viewBox=f"0 0 {width:g} {height:g}",
        width=round(width, 1),
        height=round(height, 1),
    )


def words(
    x: float,
    y: float,
    text: str,
    kind: str | None = None,
    anchor: str | None = None,
) -> Safe:
    return tag("text", text, x=near(x), y=near(y), class_=kind, text_anchor=anchor)


def near(value: float) -> float:
    """Round to a tenth of a pixel: that is precise enough, and keeps pages small."""
    return round(value, 1)


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels, and knows the axis's ticks."""

    low: float
    high: float
    begin: float  # the place of `low`, in pixels
    end: float  # the place of `high`
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def scale(
    values: Sequence[float],
    begin: float,
    end: float,
    *,
    bounds: tuple[float, float] | None = None,
    ticks: int = 5,
) -> Scale:
    """Return a scale with round ends around all values.

    The ends stay within `bounds`, which values cannot leave.
    """
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    if high - low < 1e-12:
        half = abs(low) * 0.1
        if half == 0:
            half = 0.5
        high = high + half
        low = low - half
    size = round_step((high - low) / ticks)
    low = math.floor(low / size + 1e-9) * size
    high = math.ceil(high / size - 1e-9) * size
    if bounds is not None:
        low = max(low, bounds[0])
        high = min(high, bounds[1])
    first = math.ceil(low / size - 1e-9)
    last = math.floor(high / size + 1e-9)
    places = []
    for number in range(first, last + 1):
        places.append(round(number * size, 12))
    return Scale(low, high, begin, end, tuple(places))


@dataclass(frozen=True)
class LogScale(Scale):
    """A logarithmic scale; all values are above 0."""

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)


def log_scale(values: Sequence[float], begin: float, end: float) -> LogScale:
    """Return a logarithmic scale around positive, differing values.

    Its ends are among 1, 2, 5, 10, 20, ….
    """
    ticks = [step_below(min(values))]
    while ticks[-1] < max(values) * 0.999999:
        ticks.append(next_step(ticks[-1]))
    every = math.ceil(len(ticks) / MOST_TICKS)
    return LogScale(ticks[0], ticks[-1], begin, end, tuple(ticks[::every]))


def step_below(value: float) -> float:
    """Return the largest of 1, 2, 5, 10, … that is not above the value."""
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    for step in (5.0, 2.0):
        if step * power <= value * 1.000001:
            return step * power
    return power


def next_step(step: float) -> float:
    """Return the next of 1, 2, 5, 10, … after this one."""
    return round_step(step * 1.01)


def round_step(size: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … that is not below the size."""
    power = 10.0 ** math.floor(math.log10(size))
    for step in (1.0, 2.0, 5.0):
        if step * power >= size * 0.999999:
            return step * power
    return 10.0 * power


@dataclass(frozen=True)
class Frame:
    """The axes of a chart: their scales, the texts of their ticks, and their names."""

    x: Scale
    y: Scale
    x_text: Text
    y_text: Text
    x_name: str
    y_name: str

    def draw(self) -> Safe:
        left = self.x.begin
        right = self.x.end
        bottom = self.y.begin
        parts = []
        for tick in self.y.ticks:
            line = f"M{near(left)} {near(self.y(tick))}H{near(right)}"
            parts.append(tag("path", d=line, class_="grid"))
        for tick, text in tick_texts(self.y, self.y_text):
            parts.append(words(left - 7, self.y(tick) + 4, text, "tick", "end"))
        for tick, text in tick_texts(self.x, self.x_text):
            parts.append(words(self.x(tick), bottom + 18, text, "tick", "middle"))
        axis = f"M{near(left)} {near(bottom)}H{near(right)}"
        parts.append(tag("path", d=axis, class_="axis"))
        parts.append(words((left + right) / 2, bottom + 37, self.x_name, "name", "middle"))
        parts.append(words(4, 14, self.y_name, "name"))
        return joined(parts)


def tick_texts(along: Scale, text: Text) -> list[tuple[float, str]]:
    """Return ticks and their texts, without useless decimals and without repeated texts."""
    ticks = along.ticks
    texts = [text(tick) for tick in ticks]
    while len(set(texts)) < len(texts):
        ticks = every_other(ticks)
        texts = [text(tick) for tick in ticks]
    if all(tick_text.endswith(".0") for tick_text in texts):
        texts = [tick_text.removesuffix(".0") for tick_text in texts]
    return list(zip(ticks, texts, strict=True))


def every_other(ticks: tuple[float, ...]) -> tuple[float, ...]:
    """Return the ticks that are multiples of twice their distance."""
    step = ticks[1] - ticks[0]
    return tuple(tick for tick in ticks if round(tick / step) % 2 == 0)


def room(texts: Iterable[str]) -> float:
    """Return the pixels that the longest of these texts needs at the left of a chart."""
    return 14 + LETTER * max(map(len, texts), default=1)


def short(name: str, most: int = 18) -> str:
    if len(name) <= most:
        return name
    return name[: most - 1] + "…"
