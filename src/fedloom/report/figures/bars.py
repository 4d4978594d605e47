"""A bar chart of groups: each group has one bar per meaning, with its number beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.evaluate.summary import without_none
from fedloom.report.figures.chart import LETTER, WIDE, Text, near, short, svg, words
from fedloom.report.figures.legend import Entry, legend
from fedloom.report.html import Safe, joined, tag
from fedloom.report.palette import SERIES

BAR = 16.0  # pixels
BETWEEN = 12.0  # pixels between two groups


@dataclass(frozen=True)
class Group:
    name: str
    amounts: Sequence[float | None]  # one for each of the chart's meanings; None: not known


@dataclass(frozen=True)
class Bars:
    key: str
    title: str
    description: str
    groups: Sequence[Group]
    meanings: Sequence[str]  # of a group's bars
    text: Text

    def draw(self) -> Safe:
        names = [short(group.name) for group in self.groups]
        left = 14 + LETTER * max(map(len, names), default=1)
        longest = 0.0
        number_room = LETTER
        for group in self.groups:
            for amount in group.amounts:
                if amount is not None:
                    longest = max(longest, amount)
                    number_room = max(number_room, LETTER * len(self.text(amount)))
        width = WIDE - left - number_room - 14
        y = 8.0
        parts = []
        for group, name in zip(self.groups, names, strict=True):
            middle = y + BAR * len(without_none(group.amounts)) / 2 + 4
            parts.append(words(left - 8, middle, name, "label", "end"))
            for number, amount in enumerate(group.amounts):
                if amount is None:
                    continue
                length = width * amount / (longest or 1.0)
                parts.append(self._bar(left, y, length, amount, number))
                y += BAR
            y += BETWEEN
        line = f"M{near(left)} 4V{near(y - BETWEEN + 4)}"
        parts.append(tag("path", d=line, class_="axis"))
        drawing = svg(self.key, self.title, self.description, (WIDE, y), parts)
        return joined(drawing, self._legend())

    def _bar(self, left: float, y: float, length: float, amount: float, number: int) -> Safe:
        box = tag(
            "rect",
            x=near(left),
            y=near(y + 1),
            width=near(max(length, 1.0)),
            height=BAR - 2,
            class_=f"dot c{number % SERIES}",
        )
        label = words(left + length + 6, y + BAR / 2 + 4, self.text(amount), "tick")
        return joined(box, label)

    def _legend(self) -> Safe:
        entries = []
        for number, meaning in enumerate(self.meanings):
            box = tag("rect", x=4, y=0, width=20, height=12, class_=f"dot c{number % SERIES}")
            entries.append(Entry(box, meaning))
        return legend(entries)
