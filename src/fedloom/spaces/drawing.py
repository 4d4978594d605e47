"""Drawings of architectures: lines of text for a terminal, and a self-contained SVG."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from fedloom.errors import FedloomError
from fedloom.spaces import space_of
from fedloom.spaces.layout import CHAR, LINE, Box, Graph, Layout, Link, Place
from fedloom.spaces.space import NONE, Space
from fedloom.svg import printable, text
from fedloom.types import Arch

MARGIN = 24.0  # around the whole drawing
HEADING = 28.0  # the height of one line of heading


def graphs_of(arch: Arch) -> list[Graph] | None:
    """Returns the graphs of an architecture's cells; None: its space has no drawing."""
    return space_of(arch.space).graphs(arch)


def links(
    space: Space,
    arch: Arch,
    edges: Sequence[tuple[int, int]],
    first_slot: int,
) -> tuple[Link, ...]:
    """Returns the edges of one cell, without those on which only `none` is alive."""
    existing = []
    for slot, (source, target) in enumerate(edges, first_slot):
        options = space.slots[slot].options
        names = tuple(options[op] for op in sorted(arch.choice[slot]))
        if set(names) - {NONE}:
            existing.append(Link(source, target, names, slot))
    return tuple(existing)


def as_text(arch: Arch) -> str:
    """Lists every node of every cell with its inputs and the operations on them.

    An architecture of a space without a drawing is listed slot by slot.
    """
    graphs = graphs_of(arch)
    if graphs is None:
        return slot_by_slot(arch)
    cells = []
    for graph in graphs:
        cells.append("\n".join([graph.title, *text_lines(graph)]))
    return "\n\n".join(cells)


def slot_by_slot(arch: Arch) -> str:
    """Lists an architecture's operations by slot, which works for every space."""
    return "\n".join(slot_lines(arch))


def slot_lines(arch: Arch) -> Iterator[str]:
    slots = space_of(arch.space).slots
    widest = max(len(slot.name) for slot in slots)
    for slot, live in zip(slots, arch.choice, strict=True):
        names = "nothing"
        if live:
            names = " + ".join(slot.options[op] for op in sorted(live))
        yield f"  {slot.name.rjust(widest)} ── {names}"


def text_lines(graph: Graph) -> Iterator[str]:
    widest = max(len(name) for name in graph.names)
    for state in range(graph.inputs, len(graph.names)):
        label = graph.names[state].rjust(widest)
        incoming = graph.into(state)
        if graph.gathered and state == len(graph.names) - 1:
            nodes = ", ".join(graph.names[node] for node in graph.gathered)
            yield f"  {label} ── {nodes}"
        elif not incoming:
            yield f"  {label} ── nothing"
        for number, link in enumerate(incoming):
            line = branch(number, len(incoming))
            source = graph.names[link.source].ljust(widest)
            yield f"  {label} {line} {source} ── {' + '.join(link.ops)}"
            label = " " * widest  # a node is named before its first input only


def branch(number: int, count: int) -> str:
    """The line that connects a node to its input with this number, of `count` inputs."""
    if count == 1:
        return "──"
    if number == 0:
        return "┬─"
    if number == count - 1:
        return "└─"
    return "├─"


def as_svg(arch: Arch, title: str = "") -> str:
    """Draws the cells one below the other, with colours for light and for dark mode."""
    title = printable(title)
    graphs = graphs_of(arch)
    if graphs is None:
        rule = "an architecture must be of a space that can be drawn"
        raise FedloomError(rule, f"{arch.space} has no drawing", "read it as JSON, or as text")
    content_width = len(title) * CHAR * 1.2
    y = MARGIN
    parts = []
    label = f"architecture of {space_of(arch.space).title}"
    if title:
        parts.append(text(MARGIN, MARGIN + LINE / 2, title, "title"))
        y += HEADING
        label = title
    for graph in graphs:
        layout = Layout(graph)
        width, height = layout.size
        content_width = max(content_width, width)
        parts.append(text(MARGIN, y + LINE / 2, graph.title, "heading"))
        y += HEADING
        moved = f"translate({MARGIN:g} {y + height / 2:g})"
        parts.append(f'<g transform="{moved}">{cell(layout)}</g>')
        y += height + MARGIN
    full_width = content_width + 2 * MARGIN
    size = f'width="{full_width:g}" height="{y:g}" viewBox="0 0 {full_width:g} {y:g}"'
    attributes = f'class="fl-cell" role="img" aria-label={quoteattr(label)}'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} {size}>',
        f"<style>{STYLE}</style>",
        '<rect class="ground" width="100%" height="100%" rx="8"/>',
        *parts,
        "</svg>\n",
    ]
    return "\n".join(lines)


def cell(layout: Layout, marked: Collection[tuple[int, int]] = ()) -> str:
    """Draws one cell: the lines first, so that boxes cover them.

    The operations on `marked` edges are highlighted.
    """
    graph = layout.graph
    parts = [lane(layout, place) for place in layout.lanes]
    for state in layout.states:
        for link, box in layout.boxes(state):
            parts.append(edge(layout, link, box))
    for node in graph.gathered:
        parts.append(gathering(layout, node))
    for state in layout.states:
        for link, box in layout.boxes(state):
            shape = operation(link, box)
            if (link.source, link.target) in marked:
                shape = f'<g class="marked">{shape}</g>'
            parts.append(shape)
    for state in layout.states:
        parts.append(node_box(graph, state, layout.node(state)))
    return "\n".join(parts)


def lane(layout: Layout, place: Place) -> str:
    """The line of a state that passes through a column."""
    column = layout.columns[place.column]
    begin = layout.out(place.state, place.column - 1)
    line = curve(begin, (column.left, layout.y[place]))
    return path(f"{line}H{column.right:g}")


def edge(layout: Layout, link: Link, box: Box) -> str:
    """The line of an edge, from its source to the operation and on to its node."""
    begin = layout.out(link.source, layout.column[link.target] - 1)
    node = layout.node(link.target)
    to_operation = curve(begin, (box.x, box.y))
    to_node = curve((box.x + box.width, box.y), (node.x, node.y))
    return path(to_operation + to_node, f"{link.source}-{link.target}") + tip(node)


def gathering(layout: Layout, node: int) -> str:
    """The line from a node to the output, which concatenates several nodes."""
    output = layout.states[-1]
    into = layout.node(output)
    begin = layout.out(node, layout.column[output] - 1)
    return path(curve(begin, (into.x, into.y)), f"{node}-{output}") + tip(into)


def curve(begin: tuple[float, float], end: tuple[float, float]) -> str:
    left, start = begin
    right, finish = end
    middle = (left + right) / 2
    bend = f"{middle:g} {start:g} {middle:g} {finish:g}"
    return f"M{left:g} {start:g}C{bend} {right:g} {finish:g}"


def path(line: str, name: str = "") -> str:
    if not name:
        return f'<path class="edge" d="{line}"/>'
    return f'<path class="edge" d="{line}" data-edge="{name}"/>'


def tip(node: Box) -> str:
    """An arrowhead at the left of a node."""
    back = f"{node.x - 7:g}"
    line = f"M{back} {node.y - 4:g}L{node.x:g} {node.y:g}L{back} {node.y + 4:g}Z"
    return f'<path class="tip" d="{line}"/>'


def operation(link: Link, box: Box) -> str:
    kind = "other"
    if len(link.ops) == 1 and "_" in link.ops[0]:
        kind = link.ops[0].split("_")[1]
    middle = box.x + box.width / 2
    first = box.y - (len(link.ops) - 1) * LINE / 2
    labels = [text(middle, first + LINE * number, op) for number, op in enumerate(link.ops)]
    return f'<g class="op {kind}">{rounded(box, 6)}{"".join(labels)}</g>'


def node_box(graph: Graph, state: int, box: Box) -> str:
    kind = "node"
    if state < graph.inputs:
        kind = "input"
    elif state == len(graph.names) - 1:
        kind = "output"
    label = text(box.x + box.width / 2, box.y, graph.names[state])
    return f'<g class="{kind}">{rounded(box, 10)}{label}</g>'


def rounded(box: Box, radius: float) -> str:
    top = box.y - box.height / 2
    size = f'width="{box.width:g}" height="{box.height:g}"'
    return f'<rect x="{box.x:g}" y="{top:g}" {size} rx="{radius:g}"/>'


class Paint(NamedTuple):
    """The colours of a kind of box."""

    fill: str
    outline: str


def colours(ground: str, ink: str, line: str, boxes: Mapping[str, Paint]) -> str:
    """The CSS rules of one mode, light or dark."""
    rules = [
        f".ground{{fill:{ground}}}",
        f"text{{fill:{ink}}}",
        f".edge{{stroke:{line}}}",
        f".tip{{fill:{line}}}",
    ]
    for kind, paint in boxes.items():
        rules.append(f".{kind} rect{{fill:{paint.fill};stroke:{paint.outline}}}")
    return "".join(f".fl-cell {rule}" for rule in rules)


LIGHT = colours(
    ground="#ffffff",
    ink="#1f2328",
    line="#8c959f",
    boxes={
        "input": Paint("#eaeef2", "#57606a"),
        "node": Paint("#ffffff", "#57606a"),
        "output": Paint("#eaeef2", "#57606a"),
        "conv": Paint("#ddf4ff", "#54aeff"),
        "pool": Paint("#dafbe1", "#4ac26b"),
        "connect": Paint("#fff8c5", "#d4a72c"),
        "other": Paint("#f6f8fa", "#8c959f"),
    },
)
DARK = colours(
    ground="#0d1117",
    ink="#e6edf3",
    line="#6e7681",
    boxes={
        "input": Paint("#30363d", "#8b949e"),
        "node": Paint("#161b22", "#8b949e"),
        "output": Paint("#30363d", "#8b949e"),
        "conv": Paint("#0c2d4d", "#388bfd"),
        "pool": Paint("#12361f", "#2ea043"),
        "connect": Paint("#3a2d05", "#bb8009"),
        "other": Paint("#21262d", "#6e7681"),
    },
)
STYLE = (
    ".fl-cell text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".fl-cell .label{text-anchor:middle}.fl-cell .title{font-size:14px;font-weight:bold}"
    ".fl-cell .heading{font-weight:bold}.fl-cell .edge{fill:none;stroke-width:1.5}"
    f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}"
)
