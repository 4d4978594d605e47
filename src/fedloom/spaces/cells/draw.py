"""The two cells of an architecture as graphs: inputs, nodes, and the concatenation of the nodes."""

from __future__ import annotations

from fedloom.spaces.cells.space import KINDS, CellSpace
from fedloom.spaces.drawing import links
from fedloom.spaces.layout import Graph
from fedloom.types import Arch

TITLES = {"normal": "normal cell", "reduce": "reduction cell"}


def cell_graphs(space: CellSpace, arch: Arch) -> list[Graph]:
    space.check(arch)
    nodes = tuple(range(2, space.nodes + 2))
    names = ("c_{k-2}", "c_{k-1}", *(str(node - 2) for node in nodes), "output")
    graphs = []
    for kind in KINDS:
        edges = links(space, arch, space.edges, space.slots_of(kind).start)
        graphs.append(Graph(TITLES[kind], names, 2, edges, nodes))
    return graphs
