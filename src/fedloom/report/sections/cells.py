"""Every client's architecture as graphs, with the edges marked that differ from what most clients have.

An architecture of a space that brings no drawing, or whose drawing fails, is told in words, slot by slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedloom.errors import FedloomError
from fedloom.records.result import ClientResult
from fedloom.report.architectures import carefully, in_words
from fedloom.report.figures.chart import svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.parts import note, opened, scrolled, section
from fedloom.report.story import Story
from fedloom.spaces import space_of
from fedloom.spaces.drawing import HEADING, MARGIN, as_text, cell, graphs_of, slot_by_slot
from fedloom.spaces.layout import Graph, Layout
from fedloom.spaces.space import NONE
from fedloom.types import Arch

MOST_DRAWN = 40  # clients; the others stand in the table of clients, in words


@dataclass(frozen=True)
class Choice:
    """One client's architecture, and the slots in which it differs from most."""

    client: int
    arch: Arch
    differs: tuple[int, ...]
    graphs: tuple[Graph, ...]  # none: its space brings no drawing
    failed: bool = False  # its space brings a drawing, which raises


def architectures(story: Story) -> Safe:
    found = choices(story)
    if not found:
        return section("cells", "Architectures", fixed(story), undrawn(story, 0))
    several = len(found) > 1 and len({choice.arch for choice in found}) > 1
    if not several:
        who = f"all {len(found):,} clients have it" if len(found) > 1 else story.called(found[0].client)
        drawn = opened("cell-all", f"One architecture: {who}", picture(found[0], "all", "the architecture"),
                       show=True, printed=True)  # fmt: skip
        return section("cells", "Architectures", drawn, undrawn(story, len(found)))
    shown = found[:MOST_DRAWN]
    left = len(found) - len(shown)
    told = "Open a client to see its architecture."
    if any(choice.graphs for choice in found):
        told += " A dashed frame marks an edge whose operations are not what most clients have."
    more = f" The first {len(shown)} are shown; {left:,} more stand in the table above, in words." if left else ""
    pictures = [one(story, choice) for choice in shown]
    return section("cells", "Architectures", note(told + more), pictures, undrawn(story, len(found)))


def fixed(story: Story) -> Safe | None:
    names = sorted({client.architecture for client in story.clients if isinstance(client.architecture, str)})
    if names:
        return note(f"Nothing was searched: every client has {' or '.join(names[:5])}, a fixed network.")
    if story.result:
        return note("Clients of a federation keep their architectures to themselves.") if story.federated else None
    return None


def undrawn(story: Story, drawable: int) -> Safe | None:
    """How many searched architectures are of a space that nobody here knows."""
    searched = sum(client.is_searched for client in story.clients)
    if searched == drawable:
        return None
    count = f"{searched - drawable:,} of {searched:,} architectures"
    return note(f"{count} are of a space that cannot be opened here; architectures/*.json has them.")


def choices(story: Story) -> list[Choice]:
    """Of clients with a searched architecture of a space that can be asked."""
    choices: list[Choice] = []
    for client in story.clients:
        if not client.is_searched:
            continue
        try:
            choices.append(carefully(partial(choice_of, client)))
        except FedloomError:  # of a space that does not answer, or edited
            continue
    usual = most_common([choice.arch for choice in choices])
    return [replace(choice, differs=differing(choice.arch, usual)) for choice in choices]


def choice_of(client: ClientResult) -> Choice:
    arch = Arch.from_plain(client.architecture)
    space_of(arch.space).check(arch)
    slot_by_slot(arch)  # what everything here can fall back to
    try:
        graphs = carefully(lambda: tuple(graphs_of(arch) or ()))
    except FedloomError:
        return Choice(client.client, arch, (), (), failed=True)
    return Choice(client.client, arch, (), graphs)


def most_common(archs: Sequence[Arch]) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """Per space and slot the choice that most clients made; of as many, the one met first."""
    spaces = {arch.space for arch in archs}
    return {
        space: tuple(
            Counter(slot).most_common(1)[0][0]
            for slot in zip(*(arch.choice for arch in archs if arch.space == space), strict=True)
        )
        for space in spaces
    }


def differing(arch: Arch, usual: Mapping[str, tuple[tuple[int, ...], ...]]) -> tuple[int, ...]:
    return tuple(
        k for k, (own, most) in enumerate(zip(arch.choice, usual[arch.space], strict=True)) if set(own) != set(most)
    )


def one(story: Story, choice: Choice) -> Safe:
    edges = difference(choice)
    name = story.called(choice.client)
    summary = joined(tag("b", name), f" – {in_words(choice.arch.to_plain())} ", tag("span", edges, class_="pill"))
    return opened(f"cell-{choice.client}", summary, picture(choice, str(choice.client), name), printed=True)


def difference(choice: Choice) -> str:
    """In how many edges it differs; where nothing is drawn there are no edges, but slots."""
    what = "edge" if choice.graphs else "slot"
    count = len(choice.differs)
    if not count:
        return "as most clients"
    if count == 1:
        return f"1 {what} differs"
    return f"{count} {what}s differ"


def picture(choice: Choice, key: str, name: str) -> Safe:
    """The cells below one another, and the same in text; of a space without a drawing, the text alone."""
    if not choice.graphs:
        return in_text(choice)
    try:
        return carefully(lambda: in_cells(choice, key, name))
    except FedloomError:
        return in_text(replace(choice, graphs=(), failed=True))


def in_text(choice: Choice) -> Safe:
    text = tag("pre", slot_by_slot(choice.arch), class_="cells", tabindex=0)
    failure = note("It is told in words: its space's drawing failed.") if choice.failed else None
    return joined(text, failure, missing_edges(choice))


def in_cells(choice: Choice, key: str, name: str) -> Safe:
    text = tag("pre", as_text(choice.arch), class_="cells", tabindex=0)
    return joined(
        scrolled(drawing(choice, key, name), f"cells of {name}"),
        opened(f"cell-{key}-text", "As text", text, missing_edges(choice)),
    )


def drawing(choice: Choice, key: str, name: str) -> Safe:
    layouts = [Layout(graph) for graph in choice.graphs]
    width = max(layout.size[0] for layout in layouts) + 2 * MARGIN
    y, parts = 12.0, []
    for layout in layouts:
        parts.append(words(MARGIN, y + 10, layout.graph.title, "heading"))
        y += HEADING
        inside = Safe(cell(layout, marked(choice, layout.graph)))
        parts.append(tag("g", inside, transform=f"translate({MARGIN:g} {y + layout.size[1] / 2:g})"))
        y += layout.size[1] + MARGIN
    about = f"{in_words(choice.arch.to_plain())}; {len(choice.differs)} edges differ from what most clients have."
    return svg(f"cells-{key}", f"cells of {name}", about, (width, y), parts, kind="fl-cell")


def marked(choice: Choice, graph: Graph) -> set[tuple[int, int]]:
    """The edges of this graph that differ."""
    return {(link.source, link.target) for link in graph.links if link.slot in choice.differs}


def missing_edges(choice: Choice) -> Safe | None:
    """Edges that differ by not being there have nothing to mark; they are named."""
    slots = space_of(choice.arch.space).slots
    gone = [slots[k].name for k in choice.differs if not set(alive(choice.arch, k)) - {NONE}]
    if not gone:
        return None
    return note(
        f"Most clients have these {'edges' if choice.graphs else 'slots'}, this one has not: {', '.join(gone)}."
    )


def alive(arch: Arch, slot: int) -> list[str]:
    return [space_of(arch.space).slots[slot].options[op] for op in arch.choice[slot]]
