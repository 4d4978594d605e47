"""Cutting a traced graph into blocks, such as cells or the blocks of a ResNet.

Blocks only make the written network easier to read: wherever they begin and end, the same is
computed in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import fx

TOP = ""  # the name for nodes outside all blocks
INSIDE = "net."  # the path of the network inside the graph's root


@dataclass(frozen=True)
class Block:
    """Consecutive nodes of a graph."""

    name: str  # "cells.3", or TOP
    nodes: tuple[fx.Node, ...]

    @property
    def inputs(self) -> list[fx.Node]:
        """The values that it uses and that are computed before it."""
        sources: dict[fx.Node, None] = {}  # each once, in the order of their use
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source not in self.nodes:
                    sources[source] = None
        return list(sources)

    @property
    def outputs(self) -> list[fx.Node]:
        """Its values that are used after it."""
        return [node for node in self.nodes if not set(node.users) <= set(self.nodes)]


def blocks(graph: fx.Graph) -> list[Block]:
    """The nodes of a graph in the order in which they are computed, cut into blocks."""
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    tags = [tag(node) for node in nodes]
    while True:
        pieces = cut(nodes, tags)
        torn = torn_blocks(pieces)
        if not torn:
            return pieces
        for place, name in enumerate(tags):
            if name in torn:
                tags[place] = TOP


def torn_blocks(pieces: Sequence[Block]) -> set[str]:
    """The names of blocks that occur in several pieces: they cannot become blocks."""
    counts = Counter(block.name for block in pieces)
    return {name for name, times in counts.items() if name != TOP and times > 1}


# Which block a node belongs to


def tag(node: fx.Node) -> str | None:
    """The block that a node is known to belong to; None: that of its neighbours on either side."""
    if node.op in ("call_module", "get_attr") and str(node.target).startswith(INSIDE):
        return block_of(local(str(node.target)))
    callers = [str(path) for path in node.meta.get("nn_module_stack", {}) if str(path)]
    if not callers:
        return TOP
    innermost = callers[-1]
    if not innermost.startswith(INSIDE):
        return None
    return block_of(f"{local(innermost)}.") or None


def block_of(path: str) -> str:
    """The block that a layer belongs to, by its name in the network.

    `cells.3.pre0.conv` belongs to cells.3 and `encoder.conv` to encoder. A layer of the network
    itself belongs to TOP.
    """
    parts = path.split(".")
    for place, part in enumerate(parts):
        if part.isdecimal():
            if place == len(parts) - 1:
                return TOP
            return ".".join(parts[: place + 1])
    if len(parts) == 1:
        return TOP
    return parts[0]


def local(target: str) -> str:
    """A layer's name in the network."""
    return target.removeprefix(INSIDE)


# Where blocks end


@dataclass(frozen=True)
class Tagged:
    """A place in the graph whose block is known."""

    place: int
    name: str


def cut(nodes: Sequence[fx.Node], tags: Sequence[str | None]) -> list[Block]:
    """The blocks of these nodes, where `tags` are the blocks that are known.

    Between two nodes of different blocks the cut is where the fewest values cross it.
    """
    places = {node: place for place, node in enumerate(nodes)}
    tagged = [Tagged(-1, TOP)]
    for place, name in enumerate(tags):
        if name is not None:
            tagged.append(Tagged(place, name))
    tagged.append(Tagged(len(nodes), TOP))
    pieces = []
    begin = 0
    for here, after in pairwise(tagged):
        if here.name != after.name:
            end = 1 + narrowest(nodes, places, range(here.place, after.place))
        elif after.place == len(nodes):
            end = len(nodes)
        else:
            continue
        if end > begin:
            pieces.append(Block(here.name, tuple(nodes[begin:end])))
        begin = end
    if begin < len(nodes):
        pieces.append(Block(TOP, tuple(nodes[begin:])))
    return pieces


def narrowest(nodes: Sequence[fx.Node], places: dict[fx.Node, int], candidates: range) -> int:
    """The place after which the fewest values cross the cut; the first one of several."""
    return min(candidates, key=lambda place: crossing(nodes, places, place))


def crossing(nodes: Sequence[fx.Node], places: dict[fx.Node, int], place: int) -> int:
    """How many values are computed up to this place and used later."""
    values = set()
    for node in nodes[place + 1 :]:
        for source in node.all_input_nodes:
            if places.get(source, -1) <= place:
                values.add(source)
    return len(values)
