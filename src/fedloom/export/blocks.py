"""A graph in the order of its computing, cut into blocks: the cells of a network of cells, the blocks of a ResNet.

Where a block begins and ends is for the reader's sake alone: whatever is cut, the same is computed in the same order.
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
        used = [source for node in self.nodes for source in node.all_input_nodes]
        return [node for node in dict.fromkeys(used) if node not in self.nodes]

    @property
    def outputs(self) -> list[fx.Node]:
        """Values that are needed after it."""
        return [node for node in self.nodes if any(user not in self.nodes for user in node.users)]


def block_of(path: str) -> str:
    """Whose a layer is: `cells.3.pre0.conv` is of cells.3, `encoder.conv` of encoder; a layer of the network is TOP."""
    parts = path.split(".")
    numbered = [place for place, part in enumerate(parts) if part.isdecimal()]
    if numbered:
        return ".".join(parts[: numbered[0] + 1]) if numbered[0] < len(parts) - 1 else TOP
    return parts[0] if len(parts) > 1 else TOP


def local(target: str) -> str:
    """A layer's name in the network."""
    return target.removeprefix(INSIDE)


def tag(node: fx.Node) -> str | None:
    """The block a node is known to be of; None: it may go with its neighbours on either side."""
    if node.op in ("call_module", "get_attr") and str(node.target).startswith(INSIDE):
        return block_of(local(str(node.target)))
    called = [str(path) for path in node.meta.get("nn_module_stack", {}) if str(path)]
    if not called:
        return TOP
    return block_of(f"{local(called[-1])}.") or None if called[-1].startswith(INSIDE) else None


def blocks(graph: fx.Graph) -> list[Block]:
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    tags = [tag(node) for node in nodes]
    while True:
        found = cut(nodes, tags)
        count = Counter(block.name for block in found)
        again = {
            name for name, times in count.items() if name != TOP and times > 1
        }  # called twice: no block of its own
        if not again:
            return found
        tags = [TOP if name in again else name for name in tags]


def cut(nodes: Sequence[fx.Node], tags: Sequence[str | None]) -> list[Block]:
    place = {node: number for number, node in enumerate(nodes)}
    known = [(-1, TOP), *((n, name) for n, name in enumerate(tags) if name is not None), (len(nodes), TOP)]
    found, begin = list[Block](), 0
    for (first, name), (second, after) in pairwise(known):
        if name == after and second < len(nodes):
            continue
        end = second if name == after else 1 + min(range(first, second), key=lambda p: (crossing(nodes, place, p), p))
        if end > begin:
            found.append(Block(name, tuple(nodes[begin:end])))
        begin = end
    return [*found, Block(TOP, tuple(nodes[begin:]))] if begin < len(nodes) else found


def crossing(nodes: Sequence[fx.Node], place: dict[fx.Node, int], position: int) -> int:
    """How many values are made up to here and used later: where they are fewest, a block ends."""
    return len({
        source for node in nodes[position + 1 :] for source in node.all_input_nodes
        if place.get(source, -1) <= position
    })  # fmt: skip
