"""Models in which each sample takes its own path: the operations on the paths, and their cost."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.records.result import ClientResult
from fedloom.records.routes import ClientRoutes
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, joined
from fedloom.report.numbers import amount, percent
from fedloom.report.parts import collapsible, figure, grid, note, scrollable, section, table
from fedloom.report.sections.clients import name_of
from fedloom.report.story import Story

MOST_CLIENTS = 8  # that are drawn
MOST_CLASSES = 20  # that are drawn for a client
# Notes in the rows of a search in which samples take random paths, and their names in the chart.
NOTED = {"tau": "temperature", "entropy": "entropy, nats", "free": "edges without convolution"}


def routes(story: Story) -> Safe:
    """Show the paths of samples, and whether the search has settled on operations.

    Without samplers there is one path for all samples, so only the latter is shown.
    """
    if not has_context(story):
        return section("routes", "Paths of samples", chosen(story))
    routed = [client for client in story.clients if client.routes is not None]
    drawn = list(story.routes)[:MOST_CLIENTS]
    figures = []
    for client in routed:
        if client.client in drawn:
            figures.append(shares_of(story, client, story.routes[client.client]))
    left_out = None
    if len(story.routes) > len(drawn):
        shown = f"The first {len(drawn)} of {len(story.routes)} clients are drawn"
        left_out = note(f"{shown}; architectures/client-*.routes.json has the others.")
    costs = spread(story, routed)
    return section("routes", "Paths of samples", costs, grid(*figures), left_out, chosen(story))


def has_context(story: Story) -> bool:
    """Whether samplers choose a path for each sample; else a network has one path for all."""
    if story.result is None or story.result.supernet is None:
        return False
    return story.result.supernet.sampler_params > 0


def spread(story: Story, routed: list[ClientResult]) -> Safe | None:
    """Return a table of the costs over each client's test samples."""
    if not routed:
        return None
    lines: list[list[Child]] = []
    for client in routed:
        assert client.routes is not None
        cheapest, dearest = extreme_classes(story.routes.get(client.client))
        lines.append(
            [
                name_of(story, client),
                f"{client.routes.distinct} of {client.routes.samples}",
                f"{amount(client.macs)} ± {amount(client.macs_std)}",
                amount(client.macs_max),
                cheapest,
                dearest,
                percent(client.figure),
                percent(client.shuffled_accuracy),
                f"{100 * client.routes.top[0].share:.0f}",
            ]
        )
    head = [
        "client",
        "paths",
        "MACs",
        "max. MACs",
        "cheapest class",
        "dearest class",
        "accuracy %",
        "shuffled %",
        "top %",
    ]
    about = note(
        "Over the client's test samples: how many different paths they take, MACs (mean, standard "
        "deviation, maximum), accuracy, and the share on the most common path (top). Shuffled: "
        "accuracy with every sample on the path of another one; if that is as good, the choice of "
        "paths by sample has no effect."
    )
    words = ("cheapest class", "dearest class")
    return joined(table(head, lines, label="paths of samples", words=words), about)


def extreme_classes(client_routes: ClientRoutes | None) -> tuple[str, str]:
    """Return the classes whose samples cost least and most on average, with their costs."""
    if client_routes is None:
        return "–", "–"
    costs = costs_by_class(client_routes)
    if not costs:  # an edited file
        return "–", "–"
    cheapest = min(costs, key=lambda label: costs[label])
    dearest = max(costs, key=lambda label: costs[label])
    return (
        f"{cheapest} ({amount(round(costs[cheapest]))})",
        f"{dearest} ({amount(round(costs[dearest]))})",
    )


def shares_of(story: Story, result: ClientResult, client_routes: ClientRoutes) -> Safe:
    """Draw the operations that a client's test samples take: all samples, then by class."""
    client = result.client
    of_all_samples = [edge.share for edge in client_routes.edges]
    whole = heat_map(
        f"routes-{client}", f"the samples of client {client}", client_routes, of_all_samples
    )
    caption = "Percent of the client's test samples that take each operation of an edge."
    numbers = joined(
        by_class(client_routes),
        common_paths(result),
        heat_maps_by_class(client, client_routes),
    )
    return figure(f"routes-{client}", name_of(story, result), whole, caption, numbers)


def heat_maps_by_class(client: int, client_routes: ClientRoutes) -> Safe:
    drawings = []
    for number, label in enumerate(labels_in(client_routes)[:MOST_CLASSES]):
        shares = [edge.share_by_class[label] for edge in client_routes.edges]
        key = f"routes-{client}-class-{number}"
        drawing = heat_map(key, f"samples of class {label}", client_routes, shares)
        drawings.append(collapsible(key, f"Class {label}", scrollable(drawing, f"class {label}")))
    return joined(drawings)


def heat_map(
    key: str, whose: str, client_routes: ClientRoutes, shares_by_edge: Sequence[Sequence[float]]
) -> Safe:
    """Draw edges × operations."""
    names = operation_names(client_routes)
    shares: list[list[float | None]] = []
    texts = []
    for edge, edge_shares in zip(client_routes.edges, shares_by_edge, strict=True):
        share_of = dict(zip(edge.ops, edge_shares, strict=True))
        row = [share_of.get(name) for name in names]
        shares.append(row)
        texts.append(list(map(share_in_words, row)))
    heat = Heat(
        key=key,
        title=f"operations that {whose} take",
        description=f"{len(client_routes.edges)} edges, {len(names)} operations",
        rows=[edge.slot for edge in client_routes.edges],
        columns=names,
        shares=shares,
        texts=texts,
        row_name="edge",
        column_name="operation",
    )
    return heat.draw()


def operation_names(client_routes: ClientRoutes) -> list[str]:
    """Return the operations of all edges, in the order in which they are first met."""
    names: dict[str, None] = {}
    for edge in client_routes.edges:
        names.update(dict.fromkeys(edge.ops))
    return list(names)


def common_paths(result: ClientResult) -> Safe:
    assert result.routes is not None
    lines: list[list[Child]] = []
    for common in result.routes.top:
        lines.append([f"{100 * common.share:.1f}", ", ".join(common.path)])
    head = ["samples %", "the most common paths, edge by edge"]
    return table(head, lines, label="most common paths", words=(head[1],))


def share_in_words(share: float | None) -> str:
    if share is None or round(100 * share) == 0:
        return ""
    return f"{100 * share:.0f}"


def by_class(client_routes: ClientRoutes) -> Safe:
    """Return a table of each class's mean cost and its most frequent operations."""
    lines: list[list[Child]] = []
    for label, cost in costs_by_class(client_routes).items():
        most_taken = []
        for edge in client_routes.edges:
            shares = edge.share_by_class[label]
            place = max(range(len(shares)), key=lambda number: shares[number])
            most_taken.append(f"{edge.ops[place]} {100 * shares[place]:.0f} %")
        lines.append([label, amount(round(cost)), ", ".join(most_taken)])
    head = ["class", "MACs, mean", "most taken, edge by edge"]
    return table(head, lines, label="paths by class", words=("class", "most taken, edge by edge"))


def labels_in(client_routes: ClientRoutes) -> list[str]:
    """Return the classes of which the client has test samples."""
    labels: dict[str, None] = {}
    for edge in client_routes.edges:
        labels.update(dict.fromkeys(edge.share_by_class))
    return list(labels)


def costs_by_class(client_routes: ClientRoutes) -> dict[str, float]:
    """Return the mean MACs per sample, by class."""
    costs = {}
    for label in labels_in(client_routes):
        cost = float(client_routes.fixed_macs)
        for edge in client_routes.edges:
            for share, macs in zip(edge.share_by_class[label], edge.macs, strict=True):
                cost += share * macs
        costs[label] = cost
    return costs


def chosen(story: Story) -> Safe | None:
    """Draw temperature and entropy over the rounds: they show whether the search has settled."""
    rows = [row for row in story.rows if has_notes(row)]
    if not rows:
        return None
    lines = []
    for number, (name, shown_name) in enumerate(NOTED.items()):
        points = [(row.round, row.notes[name]) for row in rows]
        lines.append(Line(shown_name, points, number))
    drawing = Chart(
        key="choice",
        title="temperature, entropy and edges without convolution over the rounds",
        description=f"The entropy ends at {rows[-1].notes['entropy']:.3f} nats.",
        y_name="temperature, nats, share",
        y_text=lambda value: f"{value:.2g}",
        lines=lines,
        floor=0.0,
    )
    caption = (
        "The entropy of the operations' probabilities, mean over edges: at its maximum the search "
        "has not chosen anything. Beside it are the share of edges whose most likely operation has "
        "no convolution, and the temperature at which operations are sampled."
    )
    head = ["round", "temperature", "entropy, nats", "without convolution %"]
    numbers = table(head, [line_of(row) for row in rows], label="temperature and entropy")
    return figure("choice", "What the search has chosen", drawing.draw(), caption, numbers)


def has_notes(row: MetricsRow) -> bool:
    """Whether all notes are numbers: methods note what they like, and files may be edited."""
    return all(isinstance(row.notes.get(name), int | float) for name in NOTED)


def line_of(row: MetricsRow) -> list[Child]:
    return [
        str(row.round),
        f"{row.notes['tau']:.3f}",
        f"{row.notes['entropy']:.3f}",
        percent(row.notes["free"]),
    ]
