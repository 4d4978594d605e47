"""Draws the cell of an architecture as a graph of four states; the last is the output."""

from __future__ import annotations

from fedloom.spaces.drawing import links
from fedloom.spaces.layout import Graph
from fedloom.spaces.nasbench201.space import EDGES, NasBench201
from fedloom.types import Arch

STATES = ("input", "1", "2", "output")


def cell_graph(space: NasBench201, arch: Arch) -> list[Graph]:
    space.check(arch)
    return [Graph("cell", STATES, 1, links(space, arch, EDGES, first_slot=0))]
