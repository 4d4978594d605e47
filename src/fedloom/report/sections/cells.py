"""Every client's architecture as graphs, or that of every tier of devices.

Edges that differ from what most clients have are marked. An architecture of a space that brings no
drawing, or whose drawing fails, is told in words, slot by slot.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedloom.errors import FedloomError
from fedloom.records.result import TierResult
from fedloom.report.architectures import carefully, in_words
from fedloom.report.figures.chart import svg, words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.parts import note, opened, scrolled
from fedloom.report.story import Story
from fedloom.spaces import space_of
from fedloom.spaces.drawing import HEADING, MARGIN, as_text, cell, graphs_of, slot_by_slot
from fedloom.spaces.layout import Graph, Layout
from fedloom.spaces.space import NONE
from fedloom.types import Arch, Json

MOST_DRAWN = 40  # clients; the others stand in the table of clients, in words
MOST_SHRUNK = 1300  # pixels of a tier's drawing that a screen may make a little smaller
MOST_FIXED = 5  # names of fixed networks in one sentence

Operations = tuple[tuple[int, ...], ...]  # the live ones of every slot


@dataclass(frozen=True)
class ClientArchitecture:
    """One client's architecture, and the slots in which it differs from most."""

    client: int
    arch: Arch
    differs: tuple[int, ...]
    graphs: tuple[Graph, ...]  # none: its space brings no drawing
    failed: bool = False  # its space brings a drawing, which raises
    is_compared: bool = True  # with those of other clients; that of a tier is not


def of_tiers(tiers: Sequence[TierResult]) -> list[Safe]:
    """The network of every tier, which all its clients have.

    One that an earlier tier has too is not opened again.
    """
    drawn = []
    first_of: dict[str, int] = {}  # the first tier of each network
    for tier in tiers:
        network = json.dumps(tier.architecture, sort_keys=True)
        first = first_of.setdefault(network, tier.tier)
        words_on_it = "1 client" if tier.clients == 1 else f"{tier.clients:,} clients"
        if first != tier.tier:
            words_on_it += f", as tier {first}"
        summary = joined(
            tag("b", f"tier {tier.tier}"),
            f" – {in_words(tier.architecture)} ",
            tag("span", words_on_it, class_="pill"),
        )
        if isinstance(tier.architecture, str):  # a fixed network, which its name tells
            drawn.append(tag("p", summary))
            continue
        key = f"cell-tier-{tier.tier}"
        is_new = first == tier.tier
        drawn.append(opened(key, summary, tier_picture(tier), show=is_new, printed=True))
    return drawn


def tier_picture(tier: TierResult) -> Safe:
    """Its layers, drawn and as text."""
    try:
        one_tier = carefully(lambda: architecture_of(tier.tier, tier.architecture))
    except FedloomError:  # of a space that does not answer, or edited
        return note(f"It cannot be drawn here; architectures/tier-{tier.tier}.json has it.")
    alone = replace(one_tier, is_compared=False)
    return picture(alone, f"tier-{tier.tier}", f"tier {tier.tier}")


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
        mark = "A dashed frame marks an edge whose operations are not what most clients have."
        sentences.append(mark)
    not_shown = len(clients) - len(shown)
    if not_shown:
        others = f"{not_shown:,} more stand in the table above, in words"
        sentences.append(f"The first {len(shown)} are shown; {others}.")
    return joined(note(" ".join(sentences)), [one(story, client) for client in shown])


def fixed(story: Story) -> Safe | None:
    """What to say where no architecture can be shown."""
    if any(client.routes is not None for client in story.clients):
        return note("Every sample takes a path of its own: see Paths of samples.")
    names = set()
    for client in story.clients:
        if isinstance(client.architecture, str):
            names.add(client.architecture)
    if names:
        networks = " or ".join(sorted(names)[:MOST_FIXED])
        return note(f"Nothing was searched: every client has {networks}, a fixed network.")
    if story.result is not None and story.federated:
        return note("Clients of a federation keep their architectures to themselves.")
    return None


def undrawn(story: Story, drawable: int) -> Safe | None:
    """How many searched architectures are of a space that nobody here knows."""
    searched = sum(client.is_searched for client in story.clients)
    if searched == drawable:
        return None
    count = f"{searched - drawable:,} of {searched:,} architectures"
    reason = f"{count} are of a space that cannot be opened here"
    return note(f"{reason}; architectures/*.json has them.")


def client_architectures(story: Story) -> list[ClientArchitecture]:
    """Of clients with a searched architecture of a space that can be asked."""
    clients: list[ClientArchitecture] = []
    for client in story.clients:
        if not client.is_searched:
            continue
        try:
            whose = partial(architecture_of, client.client, client.architecture)
            clients.append(carefully(whose))
        except FedloomError:  # of a space that does not answer, or edited
            continue
    return compared(clients)


def compared(clients: Sequence[ClientArchitecture]) -> list[ClientArchitecture]:
    """Each with the slots in which it differs from what most of them have."""
    usual = most_common([client.arch for client in clients])
    with_differences = []
    for client in clients:
        slots = differing(client.arch, usual[client.arch.space])
        with_differences.append(replace(client, differs=slots))
    return with_differences


def architecture_of(client: int, architecture: Json) -> ClientArchitecture:
    arch = Arch.from_plain(architecture)
    space_of(arch.space).check(arch)
    slot_by_slot(arch)  # what everything here can fall back to
    try:
        graphs = carefully(lambda: tuple(graphs_of(arch) or ()))
    except FedloomError:
        return ClientArchitecture(client, arch, differs=(), graphs=(), failed=True)
    return ClientArchitecture(client, arch, differs=(), graphs=graphs)


def most_common(archs: Sequence[Arch]) -> dict[str, Operations]:
    """Per space and slot the operations that most clients have; of as many, those met first."""
    by_space: dict[str, list[Operations]] = {}
    for arch in archs:
        by_space.setdefault(arch.space, []).append(arch.choice)
    usual = {}
    for space, choices in by_space.items():
        slots = zip(*choices, strict=True)  # a slot: what every client has in it
        usual[space] = tuple(map(most_frequent, slots))
    return usual


def most_frequent(choices: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    ((choice, _),) = Counter(choices).most_common(1)
    return choice


def differing(arch: Arch, usual: Operations) -> tuple[int, ...]:
    """The slots whose operations are not the usual ones, in whatever order."""
    slots = []
    for number, (own, most) in enumerate(zip(arch.choice, usual, strict=True)):
        if set(own) != set(most):
            slots.append(number)
    return tuple(slots)


def one(story: Story, client: ClientArchitecture) -> Safe:
    name = story.called(client.client)
    summary = joined(
        tag("b", name),
        f" – {in_words(client.arch.to_plain())} ",
        tag("span", difference(client), class_="pill"),
    )
    drawn = picture(client, str(client.client), name)
    return opened(f"cell-{client.client}", summary, drawn, printed=True)


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
    """The cells below one another, and the same in text.

    Of a space without a drawing, the text alone.
    """
    if not client.graphs:
        return in_text(client)
    try:
        return carefully(lambda: in_cells(client, key, name))
    except FedloomError:
        return in_text(replace(client, graphs=(), failed=True))


def in_text(client: ClientArchitecture) -> Safe:
    text = tag("pre", slot_by_slot(client.arch), class_="cells", tabindex=0)
    failure = None
    if client.failed:
        failure = note("It is told in words: its space's drawing failed.")
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
    y = 12.0
    parts = []
    for layout in layouts:
        _, height = layout.size
        parts.append(words(MARGIN, y + 10, layout.graph.title, "heading"))
        y += HEADING
        inside = Safe(cell(layout, marked(client, layout.graph)))
        place = f"translate({MARGIN:g} {y + height / 2:g})"
        parts.append(tag("g", inside, transform=place))
        y += height + MARGIN
    operations = in_words(client.arch.to_plain())
    about = f"{operations}."
    if client.is_compared:
        about = f"{operations}; {len(client.differs)} edges differ from what most clients have."
    kind = "fl-cell"
    if not client.is_compared and width <= MOST_SHRUNK:
        kind = "fl-cell fits"
    return svg(f"cells-{key}", f"cells of {name}", about, (width, y), parts, kind=kind)


def marked(client: ClientArchitecture, graph: Graph) -> set[tuple[int, int]]:
    """The edges of this graph that differ."""
    return {(link.source, link.target) for link in graph.links if link.slot in client.differs}


def missing_edges(client: ClientArchitecture) -> Safe | None:
    """Edges that differ by not being there have nothing to mark; they are named."""
    slots = space_of(client.arch.space).slots
    missing = []
    for number in client.differs:
        if not is_alive(client.arch, number):
            missing.append(slots[number].name)
    if not missing:
        return None
    what = "edges" if client.graphs else "slots"
    return note(f"Most clients have these {what}, this one has not: {', '.join(missing)}.")


def is_alive(arch: Arch, number: int) -> bool:
    """Whether the slot has an operation other than none."""
    options = space_of(arch.space).slots[number].options
    return any(options[op] != NONE for op in arch.choice[number])
