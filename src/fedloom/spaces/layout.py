"""Where the parts of a cell's drawing stand, in columns from left to right.

A node stands right of everything that leads into it; the operations on its edges are boxes stacked before it, so that
no two labels can meet; a state that is needed further right gets a lane of its own through the columns between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

CHAR, LINE = 7.4, 16.0  # pixels of the 12-pixel monospaced font: width of a letter, height of a line
PAD, GAP = 9.0, 10.0  # inside a box, between boxes
BEND, LEAD = 48.0, 28.0  # room for curves between columns, and between an operation and its node
NODE = 28.0  # height of a node


class Link(NamedTuple):
    """An edge, with its live operations."""

    source: int
    target: int
    ops: tuple[str, ...]
    slot: int | None = None  # of the architecture, where the edge is one

    @property
    def width(self) -> float:
        return max(map(len, self.ops)) * CHAR + 2 * PAD

    @property
    def height(self) -> float:
        return len(self.ops) * LINE + PAD


@dataclass(frozen=True)
class Graph:
    """One cell: its states by number, and the operations between them."""

    title: str
    names: tuple[str, ...]  # of the states: inputs, nodes, output
    inputs: int
    links: tuple[Link, ...]
    gathered: tuple[int, ...] = ()  # the states whose concatenation is the output; none: the last node is it

    def into(self, state: int) -> list[Link]:
        return [link for link in self.links if link.target == state]

    @property
    def arrows(self) -> list[tuple[int, int]]:
        """(source, target) of all that leads from state to state: operations and the concatenation."""
        output = len(self.names) - 1
        joined = [(state, output) for state in self.gathered]
        return [*((link.source, link.target) for link in self.links), *joined]


class Box(NamedTuple):
    """The middle of its left side, and its size."""

    x: float
    y: float
    width: float
    height: float


class Column(NamedTuple):
    left: float  # of its operations and lanes
    middle: float  # left of its nodes
    right: float


@dataclass(frozen=True)
class Layout:
    graph: Graph

    @cached_property
    def column(self) -> list[int]:
        """Of every state: one further right than all that leads to it, the output further right than everything."""
        found = [0] * self.graph.inputs
        for state in range(self.graph.inputs, len(self.graph.names)):
            found.append(1 + max((found[source] for source, target in self.graph.arrows if target == state), default=0))
        found[-1] = 1 + max(found[:-1])
        return found

    @cached_property
    def lanes(self) -> list[tuple[int, int]]:
        """(column, state) wherever a state passes through."""
        last = [max((self.column[t] for s, t in self.graph.arrows if s == state), default=0) for state in self.states]
        return [(number, state) for state in self.states for number in range(self.column[state] + 1, last[state])]

    @property
    def states(self) -> range:
        return range(len(self.graph.names))

    @cached_property
    def heights(self) -> dict[tuple[int, int], float]:
        """(column, state) → the height it takes there."""
        found = dict.fromkeys(self.lanes, LINE)
        for state in self.states:
            boxes = [link.height for link in self.graph.into(state)]
            found[self.column[state], state] = max(NODE, sum(boxes) + GAP * (len(boxes) - 1))
        return found

    @cached_property
    def y(self) -> dict[tuple[int, int], float]:
        """(column, state) → its middle. Members of a column follow the order of what they come from."""
        found: dict[tuple[int, int], float] = {}
        for number in range(max(self.column) + 1):
            members = sorted((self._pull(found, number, state), state) for own, state in self.heights if own == number)
            heights = [self.heights[number, state] for _, state in members]
            top = -(sum(heights) + GAP * (len(members) - 1)) / 2
            for (_, state), height in zip(members, heights, strict=True):
                found[number, state] = top + height / 2
                top += height + GAP
        return found

    def _pull(self, y: dict[tuple[int, int], float], number: int, state: int) -> float:
        """The mean height of what leads into a member of a column."""
        passing = self.column[state] < number
        sources = [state] if passing else [source for source, target in self.graph.arrows if target == state]
        heights = [y[number - 1, source] for source in sources if number]
        return sum(heights) / len(heights) if heights else 0.0

    @cached_property
    def columns(self) -> list[Column]:
        found, left = [], 0.0
        for number in range(max(self.column) + 1):
            states = [state for state in self.states if self.column[state] == number]
            boxes = [link.width + LEAD for state in states for link in self.graph.into(state)]
            middle = left + max(boxes, default=0.0)
            right = middle + max((len(self.graph.names[state]) * CHAR + 2 * PAD for state in states), default=0.0)
            found.append(Column(left, middle, right))
            left = right + BEND
        return found

    def node(self, state: int) -> Box:
        column = self.columns[self.column[state]]
        return Box(column.middle, self.y[self.column[state], state], column.right - column.middle, NODE)

    def boxes(self, state: int) -> list[tuple[Link, Box]]:
        """The operations before a node, those from above on top; all as wide as the widest of the column."""
        number = self.column[state]
        links = sorted(self.graph.into(state), key=lambda link: (self.y[number - 1, link.source], link.source))
        top = self.y[number, state] - (sum(link.height for link in links) + GAP * (len(links) - 1)) / 2
        left, middle, _ = self.columns[number]
        found = []
        for link in links:
            found.append((link, Box(left, top + link.height / 2, middle - LEAD - left, link.height)))
            top += link.height + GAP
        return found

    def out(self, state: int, number: int) -> tuple[float, float]:
        """Where a state leaves a column, its own or one that it passes through."""
        return self.columns[number].right, self.y[number, state]

    @cached_property
    def size(self) -> tuple[float, float]:
        return self.columns[-1].right, 2 * max(abs(y) + self.heights[place] / 2 for place, y in self.y.items())
