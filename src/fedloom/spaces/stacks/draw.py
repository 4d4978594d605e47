"""Draws the cells of both stacks as graphs."""

from __future__ import annotations

from fedloom.spaces.drawing import links
from fedloom.spaces.layout import Graph
from fedloom.spaces.stacks.space import BASE_INPUTS, StackSpace
from fedloom.types import Arch

INPUT_NAMES = {1: ("c_{k-1}",), 2: ("c_{k-2}", "c_{k-1}")}


def stack_graphs(space: StackSpace, arch: Arch) -> list[Graph]:
    space.check(arch)
    graphs = []
    for cell in space.cells:
        nodes = tuple(range(cell.inputs, cell.inputs + space.nodes))
        node_names = [str(node - cell.inputs) for node in nodes]
        names = (*INPUT_NAMES[cell.inputs], *node_names, "output")
        edges = links(space, arch, cell.edges, cell.slots.start)
        title = title_of(cell.name, cell.inputs, cell.reduces)
        graphs.append(Graph(title, names, cell.inputs, edges, nodes))
    return graphs


def title_of(name: str, inputs: int, reduces: bool) -> str:
    number = name.rpartition(".")[2]
    if inputs != BASE_INPUTS:
        return f"personal cell {number}"
    if reduces:
        return f"base cell {number} (reduces)"
    return f"base cell {number}"
