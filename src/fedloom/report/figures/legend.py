"""The legend below a chart: what its shapes and colours stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.report.html import Safe, tag


@dataclass(frozen=True)
class Entry:
    """A shape as in the chart, centred in a box of 28 × 12 pixels, and its meaning."""

    shape: Safe
    meaning: str


def legend(entries: Sequence[Entry]) -> Safe:
    items = []
    for entry in entries:
        sample = tag(
            "svg",
            entry.shape,
            width=28,
            height=12,
            viewBox="0 0 28 12",
            class_="swatch",
            aria_hidden="true",
        )
        items.append(tag("li", sample, entry.meaning))
    return tag("ul", items, class_="legend")
