"""Every client's architecture as graphs, with the edges marked that differ from what most clients have.

An architecture of a space that brings no drawing, or whose drawing fails, is told in words, slot by slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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


Operations = tuple[tuple[int, ...], ...]  # the live ones of every slot


@dataclass(frozen=True)
class ClientArchitecture:
    """One client's architecture, and the slots in which it differs from most."""

    client: int
    arch: Arch
    differs: tuple[int, ...]
    graphs: tuple[Graph, ...]  # none: its space brings no drawing
    failed: bool = False  # its space brings a drawing, which raises


def architectures(story: Story) -> Safe:
    clients = client_architectures(story)
    if not clients:
        return section("cells", "Architectures", fixed(story), undrawn(story, 0))
    different = {client.arch for client in clients}
    content = the_only_one(story, clients) if len(different) == 1 else all_of_them(story, clients)
    return section("cells", "Architectures", content, undrawn(story, len(clients)))


def the_only_one(story: Story, clients: Sequence[ClientArchitecture]) -> Safe:
    who = story.called(clients[0].client)
    if len(clients) > 1:
        who = f"all {len(clients):,} clients have it"
    drawn = picture(clients[0], "all", "the architecture")
    return opened("cell-all", f"One architecture: {who}", drawn, show=True, printed=True)


def all_of_them(story: Story, clients: Sequence[ClientArchitecture]) -> Safe:
    shown = clients[:MOST_DRAWN]
    sentences = ["Open a client to see its architecture."]
    if any(client.graphs for client in clients):
        sentences.append("A dashed frame marks an edge whose operations are not what most clients have.")
    not_shown = len(clients) - len(shown)
    if not_shown:
        sentences.append(f"The first {len(shown)} are shown; {not_shown:,} more stand in the table above, in words.")
    return joined(note(" ".join(sentences)), *[one(story, client) for client in shown])


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


def client_architectures(story: Story) -> list[ClientArchitecture]:
    """Of clients with a searched architecture of a space that can be asked."""
    clients: list[ClientArchitecture] = []
    for client in story.clients:
        if not client.is_searched:
            continue
        try:
            clients.append(carefully(partial(architecture_of, client)))
        except FedloomError:  # of a space that does not answer, or edited
            continue
    usual = most_common([client.arch for client in clients])
    return [replace(client, differs=differing(client.arch, usual[client.arch.space])) for client in clients]


def architecture_of(client: ClientResult) -> ClientArchitecture:
    arch = Arch.from_plain(client.architecture)
    space_of(arch.space).check(arch)
    slot_by_slot(arch)  # what everything here can fall back to
    try:
        graphs = carefully(lambda: tuple(graphs_of(arch) or ()))
    except FedloomError:
        return ClientArchitecture(client.client, arch, (), (), failed=True)
    return ClientArchitecture(client.client, arch, (), graphs)


def most_common(archs: Sequence[Arch]) -> dict[str, Operations]:
    """Per space and slot the operations that most clients have; of as many, those met first."""
    by_space: dict[str, list[Operations]] = {}
    for arch in archs:
        by_space.setdefault(arch.space, []).append(arch.choice)
    usual = {}
    for space, choices in by_space.items():
        slots = zip(*choices, strict=True)  # a slot: what every client has in it
        usual[space] = tuple(Counter(slot).most_common(1)[0][0] for slot in slots)
    return usual


def differing(arch: Arch, usual: Operations) -> tuple[int, ...]:
    """The slots whose operations are not the usual ones, in whatever order."""
    slots = []
    for number, (own, most) in enumerate(zip(arch.choice, usual, strict=True)):
        if set(own) != set(most):
            slots.append(number)
    return tuple(slots)


def one(story: Story, client: ClientArchitecture) -> Safe:
    edges = difference(client)
    name = story.called(client.client)
    summary = joined(tag("b", name), f" – {in_words(client.arch.to_plain())} ", tag("span", edges, class_="pill"))
    return opened(f"cell-{client.client}", summary, picture(client, str(client.client), name), printed=True)


def difference(client: ClientArchitecture) -> str:
    """In how many edges it differs; where nothing is drawn there are no edges, but slots."""
    what = "edge" if client.graphs else "slot"
    count = len(client.differs)
    if not count:
        return "as most clients"
    if count == 1:
        return f"1 {what} differs"
    return f"{count} {what}s differ"


def picture(client: ClientArchitecture, key: str, name: str) -> Safe:
    """The cells below one another, and the same in text; of a space without a drawing, the text alone."""
    if not client.graphs:
        return in_text(client)
    try:
        return carefully(lambda: in_cells(client, key, name))
    except FedloomError:
        return in_text(replace(client, graphs=(), failed=True))


def in_text(client: ClientArchitecture) -> Safe:
    text = tag("pre", slot_by_slot(client.arch), class_="cells", tabindex=0)
    failure = note("It is told in words: its space's drawing failed.") if client.failed else None
    return joined(text, failure, missing_edges(client))


def in_cells(client: ClientArchitecture, key: str, name: str) -> Safe:
    text = tag("pre", as_text(client.arch), class_="cells", tabindex=0)
    return joined(
        scrolled(drawing(client, key, name), f"cells of {name}"),
        opened(f"cell-{key}-text", "As text", text, missing_edges(client)),
    )


def drawing(client: ClientArchitecture, key: str, name: str) -> Safe:
    layouts = [Layout(graph) for graph in client.graphs]
    width = max(layout.size[0] for layout in layouts) + 2 * MARGIN
    y, parts = 12.0, []
    for layout in layouts:
        parts.append(words(MARGIN, y + 10, layout.graph.title, "heading"))
        y += HEADING
        inside = Safe(cell(layout, marked(client, layout.graph)))
        parts.append(tag("g", inside, transform=f"translate({MARGIN:g} {y + layout.size[1] / 2:g})"))
        y += layout.size[1] + MARGIN
    about = f"{in_words(client.arch.to_plain())}; {len(client.differs)} edges differ from what most clients have."
    return svg(f"cells-{key}", f"cells of {name}", about, (width, y), parts, kind="fl-cell")


def marked(client: ClientArchitecture, graph: Graph) -> set[tuple[int, int]]:
    """The edges of this graph that differ."""
    return {(link.source, link.target) for link in graph.links if link.slot in client.differs}


def missing_edges(client: ClientArchitecture) -> Safe | None:
    """Edges that differ by not being there have nothing to mark; they are named."""
    slots = space_of(client.arch.space).slots
    gone = [slots[k].name for k in client.differs if not set(alive(client.arch, k)) - {NONE}]
    if not gone:
        return None
    return note(
        f"Most clients have these {'edges' if client.graphs else 'slots'}, this one has not: {', '.join(gone)}."
    )


def alive(arch: Arch, slot: int) -> list[str]:
    return [space_of(arch.space).slots[slot].options[op] for op in arch.choice[slot]]
