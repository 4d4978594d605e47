"""The architecture of every client, or of every tier of devices, drawn as graphs.

Edges that differ from what most clients have are marked. An architecture whose space has no
drawing, or whose drawing fails, is written as text, slot by slot.
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
from fedloom.report.parts import collapsible, note, scrollable
from fedloom.report.story import Story
from fedloom.spaces import space_of
from fedloom.spaces.drawing import HEADING, MARGIN, as_text, cell, graphs_of, slot_by_slot
from fedloom.spaces.layout import Graph, Layout
from fedloom.spaces.space import NONE
from fedloom.types import Arch, Json

MOST_DRAWN = 40  # clients; the table of clients describes the others in words
MOST_SHRUNK = 1300  # pixels: a tier's drawing that is no wider is shrunk to fit the screen
MOST_FIXED = 5  # names of fixed networks in one sentence

Operations = tuple[tuple[int, ...], ...]  # the chosen operations of every slot


@dataclass(frozen=True)
class ClientArchitecture:
    """One client's architecture, and the slots in which it differs from most clients'."""

    client: int
    arch: Arch
    differs: tuple[int, ...]
    graphs: tuple[Graph, ...]  # empty: its space has no drawing
    failed: bool = False  # whether the space's drawing raised an error
    is_compared: bool = True  # with those of other clients; a tier's is not

    @property
    def unit(self) -> str:
        """What a reader sees of a slot: an edge of the drawing, if there is one."""
        if self.graphs:
            return "edge"
        return "slot"


def tier_architectures(tiers: Sequence[TierResult]) -> list[Safe]:
    """Show the network of every tier, which all its clients have.

    A network that an earlier tier has too is closed at first.
    """
    entries = []
    first_of: dict[str, int] = {}  # the first tier that has each network
    for tier in tiers:
        network = json.dumps(tier.architecture, sort_keys=True)
        first = first_of.setdefault(network, tier.tier)
        pill = f"{tier.clients:,} clients"
        if tier.clients == 1:
            pill = "1 client"
        if first != tier.tier:
            pill += f", as tier {first}"
        summary = joined(
            tag("b", f"tier {tier.tier}"),
            f" – {in_words(tier.architecture)} ",
            tag("span", pill, class_="pill"),
        )
        if isinstance(tier.architecture, str):  # a fixed network: its name says enough
            entries.append(tag("p", summary))
            continue
        key = f"cell-tier-{tier.tier}"
        is_new = first == tier.tier
        entries.append(collapsible(key, summary, tier_picture(tier), show=is_new, printed=True))
    return entries


def tier_picture(tier: TierResult) -> Safe:
    """Show a tier's network as a drawing and as text."""
    try:
        architecture = carefully(lambda: architecture_of(tier.tier, tier.architecture))
    except FedloomError:  # its space's code failed, or the file was edited
        return note(f"It cannot be drawn here; architectures/tier-{tier.tier}.json has it.")
    not_compared = replace(architecture, is_compared=False)
    return picture(not_compared, f"tier-{tier.tier}", f"tier {tier.tier}")


def single_architecture(story: Story, clients: Sequence[ClientArchitecture]) -> Safe:
    """Show the architecture that all clients have."""
    owners = story.client_name(clients[0].client)
    if len(clients) > 1:
        owners = f"all {len(clients):,} clients have it"
    drawn = picture(clients[0], "all", "the architecture")
    return collapsible("cell-all", f"One architecture: {owners}", drawn, show=True, printed=True)


def architecture_list(story: Story, clients: Sequence[ClientArchitecture]) -> Safe:
    """Show the architectures of the first clients, each in an entry that can be opened."""
    shown = clients[:MOST_DRAWN]
    sentences = ["Open a client to see its architecture."]
    if any(client.graphs for client in clients):
        mark = "A dashed frame marks an edge whose operations differ from those of most clients."
        sentences.append(mark)
    not_shown = len(clients) - len(shown)
    if not_shown:
        described = f"the table above describes {not_shown:,} more in words"
        sentences.append(f"The first {len(shown)} are shown; {described}.")
    entries = [client_entry(story, client) for client in shown]
    return joined(note(" ".join(sentences)), entries)


def why_nothing_is_drawn(story: Story) -> Safe | None:
    """Say why no architecture is shown."""
    if any(client.routes is not None for client in story.clients):
        return note("Every sample takes its own path: see Paths of samples.")
    names = set()
    for client in story.clients:
        if isinstance(client.architecture, str):
            names.add(client.architecture)
    if names:
        networks = " or ".join(sorted(names)[:MOST_FIXED])
        return note(f"Nothing was searched: every client has {networks}, a fixed network.")
    if story.result is not None and story.federated:
        return note("Clients of a federation do not report their architectures.")
    return None


def undrawable_note(story: Story, drawable: int) -> Safe | None:
    """Say how many searched architectures are of a space that is not available here."""
    searched = sum(client.is_searched for client in story.clients)
    if searched == drawable:
        return None
    count = f"{searched - drawable:,} of {searched:,} architectures"
    reason = f"{count} are of a space that cannot be opened here"
    return note(f"{reason}; architectures/*.json has them.")


def client_architectures(story: Story) -> list[ClientArchitecture]:
    """Return the searched architectures whose space is available, compared with each other."""
    clients: list[ClientArchitecture] = []
    for client in story.clients:
        if not client.is_searched:
            continue
        try:
            read = partial(architecture_of, client.client, client.architecture)
            clients.append(carefully(read))
        except FedloomError:  # its space's code failed, or the file was edited
            continue
    return compared(clients)


def compared(clients: Sequence[ClientArchitecture]) -> list[ClientArchitecture]:
    """Note for each architecture the slots in which it differs from what most clients have."""
    usual_by_space = most_common([client.arch for client in clients])
    with_differences = []
    for client in clients:
        slots = differing_slots(client.arch, usual_by_space[client.arch.space])
        with_differences.append(replace(client, differs=slots))
    return with_differences


def architecture_of(client: int, architecture: Json) -> ClientArchitecture:
    arch = Arch.from_plain(architecture)
    space_of(arch.space).check(arch)
    slot_by_slot(arch)  # it must work, because everything here falls back to it
    try:
        graphs = carefully(lambda: tuple(graphs_of(arch) or ()))
    except FedloomError:
        return ClientArchitecture(client, arch, differs=(), graphs=(), failed=True)
    return ClientArchitecture(client, arch, differs=(), graphs=graphs)


def most_common(archs: Sequence[Arch]) -> dict[str, Operations]:
    """Return, by space, each slot's most frequent operations; of equals, the first met."""
    by_space: dict[str, list[Operations]] = {}
    for arch in archs:
        by_space.setdefault(arch.space, []).append(arch.choice)
    usual_by_space = {}
    for space, choices in by_space.items():
        slots = zip(*choices, strict=True)  # for each slot, what every client has in it
        usual_by_space[space] = tuple(map(most_frequent, slots))
    return usual_by_space


def most_frequent(choices: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    ((choice, _),) = Counter(choices).most_common(1)
    return choice


def differing_slots(arch: Arch, usual: Operations) -> tuple[int, ...]:
    """Return the slots whose operations, in any order, are not the usual ones."""
    slots = []
    for number, (own, most) in enumerate(zip(arch.choice, usual, strict=True)):
        if set(own) != set(most):
            slots.append(number)
    return tuple(slots)


def client_entry(story: Story, client: ClientArchitecture) -> Safe:
    name = story.client_name(client.client)
    summary = joined(
        tag("b", name),
        f" – {in_words(client.arch.to_plain())} ",
        tag("span", difference(client), class_="pill"),
    )
    drawn = picture(client, str(client.client), name)
    return collapsible(f"cell-{client.client}", summary, drawn, printed=True)


def difference(client: ClientArchitecture) -> str:
    """Say in how many edges, or slots if nothing is drawn, it differs from most clients."""
    count = len(client.differs)
    if not count:
        return "as most clients"
    if count == 1:
        return f"1 {client.unit} differs"
    return f"{count} {client.unit}s differ"


def picture(client: ClientArchitecture, key: str, name: str) -> Safe:
    """Show the cells one below the other, and the same as text.

    For a space without a drawing, there is only the text.
    """
    if not client.graphs:
        return as_text_only(client)
    try:
        return carefully(lambda: as_drawing(client, key, name))
    except FedloomError:
        return as_text_only(replace(client, graphs=(), failed=True))


def as_text_only(client: ClientArchitecture) -> Safe:
    text = tag("pre", slot_by_slot(client.arch), class_="cells", tabindex=0)
    failure = None
    if client.failed:
        failure = note("It is shown as text because its space's drawing failed.")
    return joined(text, failure, missing_edges(client))


def as_drawing(client: ClientArchitecture, key: str, name: str) -> Safe:
    text = tag("pre", as_text(client.arch), class_="cells", tabindex=0)
    return joined(
        scrollable(drawing(client, key, name), f"cells of {name}"),
        collapsible(f"cell-{key}-text", "As text", text, missing_edges(client)),
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
    """Return the edges of this graph that differ from most clients'."""
    edges = set()
    for link in graph.links:
        if link.slot in client.differs:
            edges.add((link.source, link.target))
    return edges


def missing_edges(client: ClientArchitecture) -> Safe | None:
    """Name the edges that most clients have and this one lacks: they cannot be marked."""
    slots = space_of(client.arch.space).slots
    missing = []
    for number in client.differs:
        if not is_alive(client.arch, number):
            missing.append(slots[number].name)
    if not missing:
        return None
    names = ", ".join(missing)
    return note(f"Most clients have these {client.unit}s, this one does not: {names}.")


def is_alive(arch: Arch, number: int) -> bool:
    """Whether the slot has an operation other than none."""
    options = space_of(arch.space).slots[number].options
    return any(options[op] != NONE for op in arch.choice[number])
