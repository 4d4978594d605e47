"""Networks with a base that all clients share and a personal part: the base is drawn once.

Where every sample takes its own path, each edge shows the operation that most test samples take:
in the base over all clients, in a personal part over the client's own samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedloom.errors import FedloomError
from fedloom.records.routes import ClientRoutes
from fedloom.report.architectures import carefully
from fedloom.report.html import Safe, joined
from fedloom.report.parts import collapsible, note
from fedloom.report.sections.cells import (
    ClientArchitecture,
    architecture_list,
    architecture_of,
    compared,
    picture,
)
from fedloom.report.story import Story
from fedloom.spaces import space_of
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Space
from fedloom.types import Arch


def two_stacks(story: Story, searched: Sequence[ClientArchitecture]) -> Safe | None:
    """Draw the base once and each client's personal part; None: no network has personal parts.

    `searched` are clients whose network has one path; without any, samples take their own paths.
    """
    clients = list(searched)
    about = None
    if not clients:
        clients = most_taken(story)
        about = note("Each edge shows the operation that most test samples take.")
    if not clients or not all(has_personal_part(client) for client in clients):
        return None
    base = replace(clients[0], graphs=graphs_of(clients[0], personal=False), is_compared=False)
    title = "The base, which all clients share"
    drawn_once = collapsible(
        "cell-base", title, picture(base, "base", title), show=True, printed=True
    )
    personal = []
    for client in clients:
        personal.append(replace(client, graphs=graphs_of(client, personal=True)))
    return joined(about, drawn_once, architecture_list(story, compared(personal)))


def has_personal_part(client: ClientArchitecture) -> bool:
    return bool(client.graphs and space_of(client.arch.space).personal)


def graphs_of(client: ClientArchitecture, *, personal: bool) -> tuple[Graph, ...]:
    """Return the graphs of the personal cells, or of the base's cells."""
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


# Networks in which each sample takes its own path


def most_taken(story: Story) -> list[ClientArchitecture]:
    """Return the operations that most samples take, for every client whose paths are known."""
    if story.result is None or story.result.supernet is None:
        return []
    space = story.result.supernet.space
    try:
        return carefully(lambda: architectures_of(space, story.routes))
    except FedloomError:  # files were edited, or the space's code failed
        return []


def architectures_of(
    space_name: str, routes: Mapping[int, ClientRoutes]
) -> list[ClientArchitecture]:
    space = space_of(space_name)
    over_all_clients = mean_shares(list(routes.values()))
    clients = []
    for client, client_routes in routes.items():
        choice = []
        for number, edge in enumerate(client_routes.edges):
            shares = over_all_clients[number]
            if is_personal_slot(space, number):
                shares = edge.share
            choice.append((largest(shares),))
        clients.append(architecture_of(client, Arch(space_name, tuple(choice)).to_plain()))
    return clients


def mean_shares(clients: Sequence[ClientRoutes]) -> list[list[float]]:
    """Return the mean shares by edge and operation; every client counts the same."""
    totals: list[list[float]] = []
    for client in clients:
        for number, edge in enumerate(client.edges):
            if number == len(totals):
                totals.append([0.0] * len(edge.share))
            for op, share in enumerate(edge.share):
                totals[number][op] += share / len(clients)
    return totals


def largest(shares: Sequence[float]) -> int:
    """Return the place of the largest share; of equal ones the first."""
    return max(range(len(shares)), key=lambda place: shares[place])
