"""The report's colours, in light and dark mode: one palette for methods, clients and lines.

Hues are far apart for each kind of colour-blindness (after Okabe and Ito), and nothing is shown by
colour alone: lines also differ in their dashes, and the worst client in its shape. Text has a
contrast of at least 4.5, lines of at least 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SERIES = 6  # colours of lines; further lines reuse them, with other dashes
DASHES = ("", "7 4", "2 3", "9 3 2 3")
STEPS = 8  # shades of a heat map


@dataclass(frozen=True)
class Mode:
    """The colours of light or of dark mode."""

    ground: str
    card: str
    ink: str
    soft: str  # secondary text
    line: str  # grid and frames
    accent: str  # links, focus
    mark: str  # what stands out: the worst client, an edge that differs
    band: str  # behind every other phase of a curve
    series: tuple[str, ...]
    heat: tuple[str, ...]
    on_heat: tuple[str, ...]  # the text's colour on each shade of `heat`


LIGHT = Mode(
    ground="#f6f7f9",
    card="#ffffff",
    ink="#1b1f24",
    soft="#555f6b",
    line="#d5dae0",
    accent="#0b5cad",
    mark="#b3261e",
    band="#eef2f7",
    series=("#0b6bb8", "#c24e00", "#00805e", "#a03c8f", "#7a6400", "#4b5563"),
    heat=("#ffffff", "#e4eef8", "#c6ddf1", "#a0c6e8", "#75abdc", "#4f92cf", "#1f649f", "#0c4474"),
    on_heat=("#1b1f24",) * 6 + ("#ffffff",) * 2,
)
DARK = Mode(
    ground="#0e1217",
    card="#161c23",
    ink="#e8edf2",
    soft="#a3afbb",
    line="#333d48",
    accent="#7cc0ff",
    mark="#ff8f84",
    band="#1d2530",
    series=("#5bb4ef", "#f59a4a", "#3ecf9f", "#dd8fcb", "#e3cf4e", "#b6c0cb"),
    heat=("#161c23", "#16293b", "#173a58", "#1a4c76", "#1f6096", "#5b9fd6", "#8cc0eb", "#c2e0fa"),
    on_heat=("#e8edf2",) * 5 + ("#0e1217",) * 3,
)


def rules(mode: Mode) -> str:
    """Return the mode's colours as CSS variables."""
    colours: dict[str, str] = {}
    for name in ("ground", "card", "ink", "soft", "line", "accent", "mark", "band"):
        colours[name] = getattr(mode, name)
    for number, colour in enumerate(mode.series):
        colours[f"c{number}"] = colour
    for number, colour in enumerate(mode.heat):
        colours[f"h{number}"] = colour
    for number, colour in enumerate(mode.on_heat):
        colours[f"i{number}"] = colour
    variables = [f"--{name}:{colour}" for name, colour in colours.items()]
    return ":root{" + ";".join(variables) + "}"


def step(share: float) -> int:
    """Return the shade of a heat map for a share from 0 to 1; only 0 has shade 0."""
    if share <= 0:
        return 0
    return min(STEPS - 1, 1 + int(share * (STEPS - 1) * 0.999999))


def contrast(colour: str, ground: str) -> float:
    """Return the contrast of two colours as WCAG defines it, from 1 to 21."""
    low, high = sorted((luminance(colour), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of `#rrggbb`."""
    red = linear(colour[1:3])
    green = linear(colour[3:5])
    blue = linear(colour[5:7])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(channel: str) -> float:
    """Convert a channel of sRGB, two hexadecimal digits, to linear light."""
    part = int(channel, 16) / 255
    if part <= 0.04045:
        return part / 12.92
    return math.pow((part + 0.055) / 1.055, 2.4)
