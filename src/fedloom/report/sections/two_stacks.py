"""Networks of a base that all clients share and a personal part: the base is drawn once.

Where every sample takes a path of its own, each edge shows the operation that most test samples
take: of the base over all clients, of a personal part over the client's own samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedloom.errors import FedloomError
from fedloom.records.routes import ClientRoutes
from fedloom.report.architectures import carefully
from fedloom.report.html import Safe, joined
from fedloom.report.parts import note, opened
from fedloom.report.sections.cells import (
    ClientArchitecture,
    all_of_them,
    architecture_of,
    compared,
    picture,
)
from fedloom.report.story import Story
from fedloom.spaces import space_of
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Space
from fedloom.types import Arch


def two_stacks(story: Story, cut: Sequence[ClientArchitecture]) -> Safe | None:
    """`cut`: clients with one path each. None: no network here has a personal part."""
    clients = list(cut)
    about = None
    if not clients:
        clients = most_taken(story)
        about = note("Each edge shows the operation that most test samples take.")
    if not clients or not all(has_personal_part(client) for client in clients):
        return None
    base = replace(clients[0], graphs=graphs_of(clients[0], personal=False), is_compared=False)
    whose = "The base, which all clients share"
    drawn_once = opened("cell-base", whose, picture(base, "base", whose), show=True, printed=True)
    personal = []
    for client in clients:
        personal.append(replace(client, graphs=graphs_of(client, personal=True)))
    return joined(about, drawn_once, all_of_them(story, compared(personal)))


def has_personal_part(client: ClientArchitecture) -> bool:
    return bool(client.graphs and space_of(client.arch.space).personal)


def graphs_of(client: ClientArchitecture, *, personal: bool) -> tuple[Graph, ...]:
    """The cells of one of its two stacks."""
    space = space_of(client.arch.space)
    graphs = []
    for graph in client.graphs:
        slots = [link.slot for link in graph.links if link.slot is not None]
        is_personal = any(is_personal_slot(space, slot) for slot in slots)
        if is_personal == personal:
            graphs.append(graph)
    return tuple(graphs)


def is_personal_slot(space: Space, number: int) -> bool:
    return space.slots[number].name.startswith(space.personal)


# Of samples that take paths of their own


def most_taken(story: Story) -> list[ClientArchitecture]:
    """Of every client whose paths are known, the operations that most of its samples take."""
    if story.result is None or story.result.supernet is None:
        return []
    space = story.result.supernet.space
    try:
        return carefully(lambda: architectures_of(space, story.routes))
    except FedloomError:  # files that were edited, or a space that does not answer
        return []


def architectures_of(
    space_name: str, routes: Mapping[int, ClientRoutes]
) -> list[ClientArchitecture]:
    space = space_of(space_name)
    of_everybody = mean_shares(list(routes.values()))
    clients = []
    for client, taken in routes.items():
        choice = []
        for number, edge in enumerate(taken.edges):
            shares = of_everybody[number]
            if is_personal_slot(space, number):
                shares = edge.share
            choice.append((largest(shares),))
        clients.append(architecture_of(client, Arch(space_name, tuple(choice)).to_plain()))
    return clients


def mean_shares(clients: Sequence[ClientRoutes]) -> list[list[float]]:
    """By edge and operation, over all clients; every client counts the same."""
    totals: list[list[float]] = []
    for client in clients:
        for number, edge in enumerate(client.edges):
            if number == len(totals):
                totals.append([0.0] * len(edge.share))
            for op, share in enumerate(edge.share):
                totals[number][op] += share / len(clients)
    return totals


def largest(shares: Sequence[float]) -> int:
    """Its place; of equal ones the first."""
    return max(range(len(shares)), key=lambda place: shares[place])
