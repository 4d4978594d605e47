"""Draws a chain: one graph per stage over maps, or a single graph of all sums over symbols."""

from __future__ import annotations

from fedloom.spaces.chains.grammar import ZERO
from fedloom.spaces.chains.space import ChainSpace
from fedloom.spaces.layout import Graph, Link
from fedloom.types import Arch


def chain_graphs(space: ChainSpace, arch: Arch) -> list[Graph]:
    space.check(arch)
    if space.definition.is_text:
        return [sums_graph(space, arch)]
    graphs = []
    first_slot = 0
    for number, stage in enumerate(space.definition.stage):
        graphs.append(stage_graph(space, arch, number, first_slot))
        first_slot += stage.layers
    return graphs


def stage_graph(space: ChainSpace, arch: Arch, number: int, first_slot: int) -> Graph:
    """Draws the layers of a stage one after the other, and its reduction."""
    stage = space.definition.stage[number]
    inputs = space.definition.inputs
    names = ["input"]
    links = []
    for slot in range(first_slot, first_slot + stage.layers):
        links.append(Link(len(names) - 1, len(names), live_names(space, arch, slot), slot))
        names.append(space.slots[slot].name)
    if stage.reduce != "none":
        links.append(Link(len(names) - 1, len(names), (f"reduce {stage.reduce}",)))
        names.append("output")
    title = f"stage {number + 1}, {inputs[number]} channels"
    return Graph(title, tuple(names), 1, tuple(links))


def sums_graph(space: ChainSpace, arch: Arch) -> Graph:
    """Draws each stage as one state, into which all of its layers lead."""
    names = ["symbols"]
    links = []
    slot = 0
    for number, stage in enumerate(space.definition.stage, 1):
        for _ in range(stage.layers):
            live = live_names(space, arch, slot)
            if set(live) - {ZERO}:
                links.append(Link(number - 1, number, live, slot))
            slot += 1
        names.append(f"sum {number}")
    return Graph(f"layers of {space.title}", tuple(names), 1, tuple(links))


def live_names(space: ChainSpace, arch: Arch, slot: int) -> tuple[str, ...]:
    options = space.slots[slot].options
    return tuple(options[op] for op in sorted(arch.choice[slot]))
