"""The layout of a cell's drawing, in columns from left to right.

A node stands to the right of everything that leads into it. The operations on its edges are boxes
stacked in front of it, so that no two labels overlap. A state that is used further to the right
gets its own lane through the columns in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# Pixels. The font is monospaced, of 12 pixels.
CHAR = 7.4  # width of a character
LINE = 16.0  # height of a line
PAD = 9.0  # inside a box
GAP = 10.0  # between boxes
BEND = 48.0  # space for curves between columns
LEAD = 28.0  # space between an operation and its node
NODE = 28.0  # height of a node


class Link(NamedTuple):
    """An edge, with its live operations."""

    source: int
    target: int
    ops: tuple[str, ...]
    slot: int | None = None  # the architecture's slot, if the edge is one

    @property
    def width(self) -> float:
        return max(map(len, self.ops)) * CHAR + 2 * PAD

    @property
    def height(self) -> float:
        return len(self.ops) * LINE + PAD


class Arrow(NamedTuple):
    """A connection from one state to another."""

    source: int
    target: int


@dataclass(frozen=True)
class Graph:
    """One cell: its states by number, and the operations between them."""

    title: str
    names: tuple[str, ...]  # the names of the states: inputs, nodes, output
    inputs: int
    links: tuple[Link, ...]
    # The states whose concatenation is the output. If empty, the last node is the output.
    gathered: tuple[int, ...] = ()

    def into(self, state: int) -> list[Link]:
        return [link for link in self.links if link.target == state]

    @property
    def arrows(self) -> list[Arrow]:
        """All connections between states: the operations and the concatenation."""
        arrows = [Arrow(link.source, link.target) for link in self.links]
        output = len(self.names) - 1
        for state in self.gathered:
            arrows.append(Arrow(state, output))
        return arrows

    def sources_of(self, state: int) -> list[int]:
        return [arrow.source for arrow in self.arrows if arrow.target == state]

    def targets_of(self, state: int) -> list[int]:
        return [arrow.target for arrow in self.arrows if arrow.source == state]


class Box(NamedTuple):
    """A rectangle: the middle of its left side, and its size."""

    x: float
    y: float
    width: float
    height: float


class Column(NamedTuple):
    """The horizontal positions of a column."""

    left: float  # the left side of its operations and lanes
    middle: float  # the left side of its nodes
    right: float


class Place(NamedTuple):
    """A state in a column, which is its own or one that it passes through."""

    column: int
    state: int


class PlacedLink(NamedTuple):
    link: Link
    box: Box


@dataclass(frozen=True)
class Layout:
    graph: Graph

    # Columns

    @property
    def states(self) -> range:
        return range(len(self.graph.names))

    @cached_property
    def column(self) -> list[int]:
        """The column of every state: one further right than all of its sources.

        The output is in the rightmost column.
        """
        columns = [0] * self.graph.inputs
        for state in range(self.graph.inputs, len(self.graph.names)):
            source_columns = [columns[source] for source in self.graph.sources_of(state)]
            columns.append(1 + max(source_columns, default=0))
        columns[-1] = 1 + max(columns[:-1])
        return columns

    @property
    def column_count(self) -> int:
        return max(self.column) + 1

    @cached_property
    def lanes(self) -> list[Place]:
        """The places where a state passes through a column."""
        lanes = []
        for state in self.states:
            targets = [self.column[target] for target in self.graph.targets_of(state)]
            last = max(targets, default=0)
            for number in range(self.column[state] + 1, last):
                lanes.append(Place(number, state))
        return lanes

    @cached_property
    def columns(self) -> list[Column]:
        columns = []
        left = 0.0
        for number in range(self.column_count):
            middle = left
            right_of_names = 0.0
            for state in self.states:
                if self.column[state] != number:
                    continue
                for link in self.graph.into(state):
                    middle = max(middle, left + (link.width + LEAD))
                name_width = len(self.graph.names[state]) * CHAR + 2 * PAD
                right_of_names = max(right_of_names, name_width)
            right = middle + right_of_names
            columns.append(Column(left, middle, right))
            left = right + BEND
        return columns

    # Heights

    @cached_property
    def heights(self) -> dict[Place, float]:
        """The height that a state needs in a column."""
        heights = dict.fromkeys(self.lanes, LINE)
        for state in self.states:
            boxes = [link.height for link in self.graph.into(state)]
            stacked = sum(boxes) + GAP * (len(boxes) - 1)
            heights[Place(self.column[state], state)] = max(NODE, stacked)
        return heights

    @cached_property
    def y(self) -> dict[Place, float]:
        """The vertical middle of a state in a column.

        The states of a column are ordered by the heights of their sources.
        """
        middles: dict[Place, float] = {}
        for number in range(self.column_count):
            places = [place for place in self.heights if place.column == number]
            places.sort(key=lambda place: (self._source_height(middles, place), place.state))
            heights = [self.heights[place] for place in places]
            top = -(sum(heights) + GAP * (len(places) - 1)) / 2
            for place, height in zip(places, heights, strict=True):
                middles[place] = top + height / 2
                top += height + GAP
        return middles

    def _source_height(self, middles: dict[Place, float], place: Place) -> float:
        """The mean of the middles of a state's sources in the column before."""
        if place.column == 0:
            return 0.0
        sources = self.graph.sources_of(place.state)
        passes_through = self.column[place.state] < place.column
        if passes_through:
            sources = [place.state]
        if not sources:
            return 0.0
        heights = [middles[Place(place.column - 1, source)] for source in sources]
        return sum(heights) / len(heights)

    # What is drawn

    def node(self, state: int) -> Box:
        number = self.column[state]
        column = self.columns[number]
        return Box(column.middle, self.y[Place(number, state)], column.right - column.middle, NODE)

    def boxes(self, state: int) -> list[PlacedLink]:
        """The operations in front of a node, ordered by the heights of their sources.

        All boxes of a column are as wide as its widest.
        """
        number = self.column[state]
        links = self.graph.into(state)
        links.sort(key=lambda link: (self.y[Place(number - 1, link.source)], link.source))
        stacked = sum(link.height for link in links) + GAP * (len(links) - 1)
        top = self.y[Place(number, state)] - stacked / 2
        column = self.columns[number]
        width = column.middle - LEAD - column.left
        placed = []
        for link in links:
            box = Box(column.left, top + link.height / 2, width, link.height)
            placed.append(PlacedLink(link, box))
            top += link.height + GAP
        return placed

    def out(self, state: int, number: int) -> tuple[float, float]:
        """The point where a state leaves a column, its own or one that it passes through."""
        return self.columns[number].right, self.y[Place(number, state)]

    @cached_property
    def size(self) -> tuple[float, float]:
        farthest = 0.0
        for place, middle in self.y.items():
            farthest = max(farthest, abs(middle) + self.heights[place] / 2)
        return self.columns[-1].right, 2 * farthest
