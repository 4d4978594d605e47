"""A graph in the order of its computing, cut into blocks: cells, or the blocks of a ResNet.

Where a block begins and ends is for the reader's sake alone: whatever is cut, the same is computed
in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import fx

TOP = ""  # what stands in no block
INSIDE = "net."  # where the network is in the graph's root


@dataclass(frozen=True)
class Block:
    name: str  # "cells.3", or TOP
    nodes: tuple[fx.Node, ...]

    @property
    def inputs(self) -> list[fx.Node]:
        """Values that are made before it."""
        sources: dict[fx.Node, None] = {}  # each once, in the order of their use
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source not in self.nodes:
                    sources[source] = None
        return list(sources)

    @property
    def outputs(self) -> list[fx.Node]:
        """Values that are needed after it."""
        return [node for node in self.nodes if not set(node.users) <= set(self.nodes)]


def blocks(graph: fx.Graph) -> list[Block]:
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
    """Names of blocks that are called more than once: they are no blocks of their own."""
    counts = Counter(block.name for block in pieces)
    return {name for name, times in counts.items() if name != TOP and times > 1}


# Whose a node is


def tag(node: fx.Node) -> str | None:
    """The block a node is known to be of; None: it may go with its neighbours on either side."""
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

    `cells.3.pre0.conv` is of cells.3, `encoder.conv` of encoder; a layer of the network is TOP.
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


# Where a block ends


@dataclass(frozen=True)
class Tagged:
    """A place in the graph whose block is known."""

    place: int
    name: str


def cut(nodes: Sequence[fx.Node], tags: Sequence[str | None]) -> list[Block]:
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
    """After which of these nodes a block ends: where the fewest values cross, the first of such."""
    return min(candidates, key=lambda place: crossing(nodes, places, place))


def crossing(nodes: Sequence[fx.Node], places: dict[fx.Node, int], place: int) -> int:
    """How many values are made up to here and used later."""
    values = set()
    for node in nodes[place + 1 :]:
        for source in node.all_input_nodes:
            if places.get(source, -1) <= place:
                values.add(source)
    return len(values)
