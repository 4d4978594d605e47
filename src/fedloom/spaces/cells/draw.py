"""Draws the cells of an architecture as graphs: inputs, nodes, and the nodes' concatenation."""

from __future__ import annotations

from fedloom.spaces.cells.chosen import ChosenCells
from fedloom.spaces.drawing import links
from fedloom.spaces.layout import Graph
from fedloom.types import Arch


def cell_graphs(space: ChosenCells, arch: Arch) -> list[Graph]:
    space.check(arch)
    nodes = tuple(range(2, space.nodes + 2))
    names = ("c_{k-2}", "c_{k-1}", *(str(node - 2) for node in nodes), "output")
    graphs = []
    for kind in space.cell_kinds:
        edges = links(space, arch, space.edges, space.slots_of(kind).start)
        graphs.append(Graph(space.cell_title(kind), names, 2, edges, nodes))
    return graphs
