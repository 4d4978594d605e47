"""Architectures as a person sees them: lines for a terminal, and a self-contained SVG."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from xml.sax.saxutils import quoteattr

from fedloom.errors import FedloomError
from fedloom.spaces import space_of
from fedloom.spaces.layout import CHAR, LINE, Box, Graph, Layout, Link
from fedloom.spaces.space import NONE, Space
from fedloom.svg import printable, text
from fedloom.types import Arch

MARGIN, HEADING = 24.0, 28.0  # around everything; for a line of heading


def graphs_of(arch: Arch) -> list[Graph] | None:
    """The drawing that its space makes of an architecture; None: it brings none."""
    return space_of(arch.space).graphs(arch)


def links(space: Space, arch: Arch, edges: Sequence[tuple[int, int]], first_slot: int) -> tuple[Link, ...]:
    """The edges of one cell. One on which nothing but `none` is alive does not exist."""
    found = []
    for number, (source, target) in enumerate(edges, first_slot):
        names = tuple(space.slots[number].options[op] for op in sorted(arch.choice[number]))
        if set(names) - {NONE}:
            found.append(Link(source, target, names, number))
    return tuple(found)


def as_text(arch: Arch) -> str:
    """Every node of every cell: where it takes its inputs from, and what it does to them.

    An architecture of a space without a drawing is told slot by slot.
    """
    graphs = graphs_of(arch)
    if graphs is None:
        return slot_by_slot(arch)
    return "\n\n".join("\n".join([graph.title, *text_lines(graph)]) for graph in graphs)


def slot_by_slot(arch: Arch) -> str:
    """In words, which every space can be told in."""
    return "\n".join(slot_lines(arch))


def slot_lines(arch: Arch) -> Iterator[str]:
    slots = space_of(arch.space).slots
    widest = max(len(slot.name) for slot in slots)
    for slot, live in zip(slots, arch.choice, strict=True):
        names = [slot.options[op] for op in sorted(live)]
        yield f"  {slot.name.rjust(widest)} ── {' + '.join(names) or 'nothing'}"


def text_lines(graph: Graph) -> Iterator[str]:
    wide = max(len(name) for name in graph.names)
    for state in range(graph.inputs, len(graph.names)):
        name = graph.names[state].rjust(wide)
        incoming = graph.into(state)
        if graph.gathered and state == len(graph.names) - 1:
            yield f"  {name} ── {', '.join(graph.names[node] for node in graph.gathered)}"
        elif not incoming:
            yield f"  {name} ── nothing"
        for number, link in enumerate(incoming):
            label = name if number == 0 else " " * wide
            line = branch(number, len(incoming))
            yield f"  {label} {line} {graph.names[link.source].ljust(wide)} ── {' + '.join(link.ops)}"


def branch(number: int, count: int) -> str:
    """The line to the input of this number, of so many into one node."""
    if count == 1:
        return "──"
    if number == 0:
        return "┬─"
    if number == count - 1:
        return "└─"
    return "├─"


def as_svg(arch: Arch, title: str = "") -> str:
    """The cells one below the other. It brings its own colours, for light and for dark."""
    title = printable(title)
    graphs = graphs_of(arch)
    if graphs is None:
        rule = "an architecture must be of a space that can be drawn"
        raise FedloomError(rule, f"{arch.space} brings no drawing", "read it as JSON, or as text")
    layouts = [Layout(graph) for graph in graphs]
    width = max(len(title) * CHAR * 1.2, *(layout.size[0] for layout in layouts)) + 2 * MARGIN
    y = MARGIN + (HEADING if title else 0.0)
    parts = [text(MARGIN, MARGIN + LINE / 2, title, "title")] if title else []
    for layout in layouts:
        parts.append(text(MARGIN, y + LINE / 2, layout.graph.title, "heading"))
        y += HEADING
        parts.append(f'<g transform="translate({MARGIN:g} {y + layout.size[1] / 2:g})">{cell(layout)}</g>')
        y += layout.size[1] + MARGIN
    label = quoteattr(title or f"architecture of {arch.space}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fl-cell" role="img" aria-label={label} '
        f'width="{width:g}" height="{y:g}" viewBox="0 0 {width:g} {y:g}">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="100%" height="100%" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def cell(layout: Layout, marked: Collection[tuple[int, int]] = ()) -> str:
    """Lines first, so that boxes lie over them. `marked`: edges whose operations stand out."""
    graph, states = layout.graph, layout.states
    parts = [lane(layout, number, state) for number, state in layout.lanes]
    for state in states:
        for link, box in layout.boxes(state):
            parts.append(edge(layout, link, box))
    for node in graph.gathered:
        into = layout.node(states[-1])
        begin = layout.out(node, layout.column[-1] - 1)
        parts.append(path(f"{curve(begin, (into.x, into.y))}", f"{node}-{states[-1]}") + tip(into))
    for state in states:
        for link, box in layout.boxes(state):
            drawn = operation(link, box)
            parts.append(f'<g class="marked">{drawn}</g>' if link[:2] in marked else drawn)
    parts += [node_box(graph, state, layout.node(state)) for state in states]
    return "\n".join(parts)


def lane(layout: Layout, number: int, state: int) -> str:
    column, y = layout.columns[number], layout.y[number, state]
    return path(f"{curve(layout.out(state, number - 1), (column.left, y))}H{column.right:g}")


def edge(layout: Layout, link: Link, box: Box) -> str:
    """From its source to the operation, and on to its node."""
    begin, node = layout.out(link.source, layout.column[link.target] - 1), layout.node(link.target)
    line = curve(begin, (box.x, box.y)) + curve((box.x + box.width, box.y), (node.x, node.y))
    return path(line, f"{link.source}-{link.target}") + tip(node)


def curve(begin: tuple[float, float], end: tuple[float, float]) -> str:
    middle = (begin[0] + end[0]) / 2
    return f"M{begin[0]:g} {begin[1]:g}C{middle:g} {begin[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"


def path(line: str, name: str = "") -> str:
    named = f' data-edge="{name}"' if name else ""
    return f'<path class="edge" d="{line}"{named}/>'


def tip(node: Box) -> str:
    """An arrowhead at the left of a node."""
    return (
        f'<path class="tip" d="M{node.x - 7:g} {node.y - 4:g}L{node.x:g} {node.y:g}L{node.x - 7:g} {node.y + 4:g}Z"/>'
    )


def operation(link: Link, box: Box) -> str:
    kind = "other"
    if len(link.ops) == 1 and "_" in link.ops[0]:
        kind = link.ops[0].split("_")[1]
    first = box.y - (len(link.ops) - 1) * LINE / 2
    lines = (text(box.x + box.width / 2, first + LINE * number, op) for number, op in enumerate(link.ops))
    return f'<g class="op {kind}">{rounded(box, 6)}{"".join(lines)}</g>'


def node_box(graph: Graph, state: int, box: Box) -> str:
    kind = "node"
    if state < graph.inputs:
        kind = "input"
    elif state == len(graph.names) - 1:
        kind = "output"
    return f'<g class="{kind}">{rounded(box, 10)}{text(box.x + box.width / 2, box.y, graph.names[state])}</g>'


def rounded(box: Box, radius: float) -> str:
    top = box.y - box.height / 2
    return f'<rect x="{box.x:g}" y="{top:g}" width="{box.width:g}" height="{box.height:g}" rx="{radius:g}"/>'


def colours(ground: str, ink: str, line: str, kinds: dict[str, tuple[str, str]]) -> str:
    """The rules of one mode; kinds: fill and outline of every kind of box."""
    boxes = (f".fl-cell .{kind} rect{{fill:{fill};stroke:{edge}}}" for kind, (fill, edge) in kinds.items())
    return (
        f".fl-cell .ground{{fill:{ground}}}.fl-cell text{{fill:{ink}}}"
        f".fl-cell .edge{{stroke:{line}}}.fl-cell .tip{{fill:{line}}}" + "".join(boxes)
    )


LIGHT = colours("#ffffff", "#1f2328", "#8c959f", {
    "input": ("#eaeef2", "#57606a"), "node": ("#ffffff", "#57606a"), "output": ("#eaeef2", "#57606a"),
    "conv": ("#ddf4ff", "#54aeff"), "pool": ("#dafbe1", "#4ac26b"), "connect": ("#fff8c5", "#d4a72c"),
    "other": ("#f6f8fa", "#8c959f"),
})  # fmt: skip
DARK = colours("#0d1117", "#e6edf3", "#6e7681", {
    "input": ("#30363d", "#8b949e"), "node": ("#161b22", "#8b949e"), "output": ("#30363d", "#8b949e"),
    "conv": ("#0c2d4d", "#388bfd"), "pool": ("#12361f", "#2ea043"), "connect": ("#3a2d05", "#bb8009"),
    "other": ("#21262d", "#6e7681"),
})  # fmt: skip
STYLE = (
    ".fl-cell text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".fl-cell .label{text-anchor:middle}.fl-cell .title{font-size:14px;font-weight:bold}"
    ".fl-cell .heading{font-weight:bold}.fl-cell .edge{fill:none;stroke-width:1.5}"
    f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}"
)
