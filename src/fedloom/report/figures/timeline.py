"""A timeline of rounds: one lane of blocks for each cluster, or for the slowest client.

Kinds of blocks differ in their height too, so that nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from fedloom.report.figures.chart import LETTER, Scale, near, scale, short, svg, words
from fedloom.report.figures.legend import Entry, legend
from fedloom.report.html import Safe, joined, tag

Kind = Literal["training", "transfer", "aggregation", "heartbeat", "waiting"]

# All sizes are in pixels.
NARROW = 980.0  # the smallest width of the drawing: it needs no scrolling on a screen
BROAD = 6000.0  # the largest width
ROUND = 70.0  # the width of a round of median length, if the drawing may be so wide
LANE = 44.0  # the height of a lane
BAR = 18.0  # the height of the tallest block
TOP = 30.0  # the height of the rounds' names
THINNEST = 0.4  # the smallest width of a block
MARGIN = 24.0  # at the right
SMALL = 6.2  # about the width of a small character
HEIGHTS: dict[Kind, float] = {
    "training": BAR,
    "transfer": 11.0,
    "aggregation": 5.0,
    "heartbeat": BAR,
    "waiting": 1.5,
}
CLASSES: dict[Kind, str] = {
    "training": "dot c0",
    "transfer": "dot c1",
    "aggregation": "dot c2",
    "heartbeat": "lost",
    "waiting": "idle",
}


@dataclass(frozen=True)
class Block:
    kind: Kind
    begin: float
    end: float


@dataclass(frozen=True)
class Takeover:
    """Another client becomes the aggregator at this moment."""

    at: float
    name: str


@dataclass(frozen=True)
class Turn:
    """One round of one lane."""

    description: str  # the round in words, shown when a pointer rests on it
    name: str  # of the aggregator when the round begins
    blocks: Sequence[Block]
    takeovers: Sequence[Takeover] = ()


@dataclass(frozen=True)
class Lane:
    name: str
    turns: Sequence[Turn]

    @property
    def has_takeovers(self) -> bool:
        return any(turn.takeovers for turn in self.turns)


@dataclass(frozen=True)
class Period:
    """The begin and the end of a round."""

    round: int
    begin: float
    end: float


@dataclass(frozen=True)
class Label:
    """A name above a lane's blocks. Of two that overlap, the less important one is left out."""

    x: float
    text: str
    importance: int  # 0 is the most important
    marked: bool = False

    @property
    def end(self) -> float:
        return self.x + SMALL * len(self.text) + 6

    def overlaps(self, other: Label) -> bool:
        return self.x < other.end and other.x < self.end


@dataclass(frozen=True)
class Timeline:
    key: str
    title: str
    description: str
    lanes: Sequence[Lane]
    periods: Sequence[Period]
    meanings: dict[Kind, str] = field(default_factory=dict)  # of the kinds that occur
    x_name: str = "simulated seconds"

    def draw(self) -> Safe:
        x = self._scale()
        bottom = TOP + LANE * len(self.lanes) + 6
        parts = []
        for number, period in enumerate(self.periods):
            parts.append(draw_period(period, number, x, bottom))
        for tick in x.ticks:
            parts.append(words(x(tick), bottom + 18, f"{tick:g}", "tick", "middle"))
        parts.append(tag("path", d=f"M{near(x.begin)} {bottom}H{near(x.end)}", class_="axis"))
        parts.append(words(x.begin, bottom + 37, self.x_name, "name"))
        for number, lane in enumerate(self.lanes):
            parts.append(draw_lane(lane, TOP + LANE * number, x))
        size = (x.end + MARGIN, bottom + 46)
        drawing = svg(self.key, self.title, self.description, size, parts, kind="chart timeline")
        return joined(drawing, self._legend())

    def _scale(self) -> Scale:
        """Return a time axis that is wide enough for a round of median length to be seen."""
        left = 14 + LETTER * max((len(short(lane.name)) for lane in self.lanes), default=1)
        begin = min(period.begin for period in self.periods)
        end = max(period.end for period in self.periods)
        median_length = median(period.end - period.begin for period in self.periods)
        comfortable = NARROW
        if median_length > 0:
            comfortable = left + ROUND * (end - begin) / median_length
        width = min(BROAD, max(NARROW, comfortable)) - MARGIN
        ticks = scale([begin, end], left, width, ticks=max(5, int((width - left) / 110))).ticks
        if end <= begin:
            end = begin + 1.0
        shown = tuple(tick for tick in ticks if begin <= tick <= end)
        return Scale(begin, end, left, width, shown)

    def _legend(self) -> Safe:
        entries = []
        for kind, meaning in self.meanings.items():
            height = min(12.0, HEIGHTS[kind])
            shape = rectangle(kind, 2, 6 - height / 2, 24, height)
            entries.append(Entry(shape, meaning))
        if any(lane.has_takeovers for lane in self.lanes):
            entries.append(Entry(triangle(14, 11), "another aggregator takes over"))
        return legend(entries)


def draw_period(period: Period, number: int, x: Scale, bottom: float) -> Safe:
    """Shade every other round, and write the round's name where it fits."""
    left = x(period.begin)
    right = x(period.end)
    ground = None
    if number % 2:
        height = near(bottom - TOP + 8)
        width = near(right - left)
        ground = tag("rect", x=near(left), y=TOP - 8, width=width, height=height, class_="band")
    for name in (f"round {period.round}", f"{period.round}"):
        if len(name) * LETTER < right - left:
            label = words((left + right) / 2, TOP - 14, name, "phase", "middle")
            return joined(ground, label)
    return joined(ground)


def draw_lane(lane: Lane, top: float, x: Scale) -> Safe:
    middle = top + LANE - BAR / 2 - 6
    parts = [words(x.begin - 8, middle + 4, short(lane.name), "label", "end")]
    labels: list[Label] = []
    aggregator_before = None
    for turn in lane.turns:
        shapes = [tag("title", turn.description)]
        for block in turn.blocks:
            left = x(block.begin)
            width = max(THINNEST, x(block.end) - left)
            height = HEIGHTS[block.kind]
            shapes.append(rectangle(block.kind, left, middle - height / 2, width, height))
        for takeover in turn.takeovers:
            shapes.append(triangle(x(takeover.at), middle - BAR / 2 - 1))
            labels.append(takeover_label(takeover, x))
        if turn.blocks:
            importance = 2
            if turn.name != aggregator_before:
                importance = 1
            labels.append(Label(x(turn.blocks[0].begin) + 2, turn.name, importance))
        aggregator_before = turn.name
        if turn.takeovers:
            aggregator_before = turn.takeovers[-1].name
        parts.append(tag("g", shapes))
    for label in placed(labels, x.end + MARGIN):
        kind = "small phase"
        if label.marked:
            kind = "small worst-name"
        parts.append(words(label.x, middle - BAR / 2 - 4, label.text, kind))
    return joined(parts)


def takeover_label(takeover: Takeover, x: Scale) -> Label:
    """Return the label right of the triangle, or left of it where the drawing ends."""
    place = x(takeover.at)
    behind = Label(place + 7, f"→ {takeover.name}", 0, marked=True)
    if behind.end <= x.end + MARGIN:
        return behind
    width = behind.end - behind.x
    return Label(place - 7 - width, f"{takeover.name} ←", 0, marked=True)


def placed(labels: Iterable[Label], end: float) -> list[Label]:
    """Return the labels that fit without overlapping; the important ones are placed first."""
    fitting: list[Label] = []
    for label in sorted(labels, key=lambda label: (label.importance, label.x)):
        is_free = not any(label.overlaps(other) for other in fitting)
        if is_free and label.end <= end:
            fitting.append(label)
    return fitting


def rectangle(kind: Kind, x: float, y: float, width: float, height: float) -> Safe:
    return tag(
        "rect",
        x=round(x, 2),
        y=near(y),
        width=round(width, 2),
        height=near(height),
        class_=CLASSES[kind],
    )


def triangle(x: float, tip: float) -> Safe:
    """Draw a triangle whose tip points down at a moment."""
    shape = f"{near(x - 5)},{near(tip - 9)} {near(x + 5)},{near(tip - 9)} {near(x)},{near(tip)}"
    return tag("polygon", points=shape, class_="dot mark")
