"""Models whose samples take paths of their own: which operations are taken, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.records.result import ClientResult
from fedloom.records.routes import ClientRoutes
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe, joined
from fedloom.report.parts import figure, grid, note, opened, scrolled, section, table
from fedloom.report.sections.clients import name_of
from fedloom.report.story import Story
from fedloom.report.tables import amount, percent

MOST_CLIENTS = 8  # that are drawn
MOST_CLASSES = 20  # that are drawn for a client
# Notes in the rows of a search whose samples take drawn paths, and what they are called.
NOTED = {"tau": "temperature", "entropy": "entropy, nats", "free": "edges without convolution"}


def routes(story: Story) -> Safe:
    """Without paths of their own, whether the search has chosen is all there is to tell."""
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
        rest = "architectures/client-*.routes.json has the others."
        left_out = note(f"The first {len(drawn)} of {len(story.routes)} clients are drawn; {rest}")
    costs = spread(story, routed)
    return section("routes", "Paths of samples", costs, grid(*figures), left_out, chosen(story))


def has_context(story: Story) -> bool:
    """Whether samplers look at each sample; else a network has one path for all."""
    if story.result is None or story.result.supernet is None:
        return False
    return story.result.supernet.sampler_params > 0


def spread(story: Story, routed: list[ClientResult]) -> Safe | None:
    """Costs over a client's test samples, and its most common path."""
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
        "most",
        "cheapest class",
        "dearest class",
        "right %",
        "shuffled %",
        "top %",
    ]
    about = note(
        "Over the client's test samples: how many different paths they take, MACs (mean, standard "
        "deviation, most), and the share on the most common path. Shuffled: accuracy with every "
        "sample on the path of another one; if that is as good, the paths' dependence on samples "
        "does nothing."
    )
    words = ("cheapest class", "dearest class")
    return joined(table(head, lines, label="paths of samples", words=words), about)


def extreme_classes(taken: ClientRoutes | None) -> tuple[str, str]:
    """The classes whose samples cost least and most on average, with their costs."""
    if taken is None:
        return "–", "–"
    costs = costs_by_class(taken)
    if not costs:  # an edited file
        return "–", "–"
    cheapest = min(costs, key=lambda label: costs[label])
    dearest = max(costs, key=lambda label: costs[label])
    return (
        f"{cheapest} ({amount(round(costs[cheapest]))})",
        f"{dearest} ({amount(round(costs[dearest]))})",
    )


def shares_of(story: Story, result: ClientResult, taken: ClientRoutes) -> Safe:
    """The operations that a client's test samples take: all samples, then class by class."""
    client = result.client
    everybody = [edge.share for edge in taken.edges]
    whole = heat_map(f"routes-{client}", f"the samples of client {client}", taken, everybody)
    caption = "Percent of the client's test samples that take each operation of an edge."
    numbers = Safe(f"{by_class(taken)}{common_paths(result)}{heat_maps_by_class(client, taken)}")
    return figure(f"routes-{client}", name_of(story, result), whole, caption, numbers)


def heat_maps_by_class(client: int, taken: ClientRoutes) -> Safe:
    drawings = []
    for number, label in enumerate(labels_in(taken)[:MOST_CLASSES]):
        shares = [edge.share_by_class[label] for edge in taken.edges]
        key = f"routes-{client}-class-{number}"
        drawing = heat_map(key, f"samples of class {label}", taken, shares)
        drawings.append(opened(key, f"Class {label}", scrolled(drawing, f"class {label}")))
    return joined(drawings)


def heat_map(
    key: str, whose: str, taken: ClientRoutes, shares_by_edge: Sequence[Sequence[float]]
) -> Safe:
    """Edges × operations."""
    names: list[str] = []
    for edge in taken.edges:
        names += [op for op in edge.ops if op not in names]
    shares: list[list[float | None]] = []
    texts = []
    for edge, row in zip(taken.edges, shares_by_edge, strict=True):
        share_of = dict(zip(edge.ops, row, strict=True))
        shares.append([share_of.get(name) for name in names])
        texts.append([share_in_words(share_of.get(name)) for name in names])
    heat = Heat(
        key=key,
        title=f"operations that {whose} take",
        about=f"{len(taken.edges)} edges, {len(names)} operations",
        rows=[edge.slot for edge in taken.edges],
        columns=names,
        shares=shares,
        texts=texts,
        row_name="edge",
        column_name="operation",
    )
    return heat.draw()


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


def by_class(taken: ClientRoutes) -> Safe:
    """What a sample of each class costs on average, and what it takes most often."""
    lines: list[list[Child]] = []
    for label, cost in costs_by_class(taken).items():
        most_taken = []
        for edge in taken.edges:
            shares = edge.share_by_class[label]
            place = max(range(len(shares)), key=lambda number: shares[number])
            most_taken.append(f"{edge.ops[place]} {100 * shares[place]:.0f} %")
        lines.append([label, amount(round(cost)), ", ".join(most_taken)])
    head = ["class", "MACs, mean", "most taken, edge by edge"]
    return table(head, lines, label="paths by class", words=("class", "most taken, edge by edge"))


def labels_in(taken: ClientRoutes) -> list[str]:
    """The classes that the client has test samples of."""
    labels: list[str] = []
    for edge in taken.edges:
        labels += [label for label in edge.share_by_class if label not in labels]
    return labels


def costs_by_class(taken: ClientRoutes) -> dict[str, float]:
    """Mean MACs of a sample."""
    costs = {}
    for label in labels_in(taken):
        cost = float(taken.fixed_macs)
        for edge in taken.edges:
            for share, macs in zip(edge.share_by_class[label], edge.macs, strict=True):
                cost += share * macs
        costs[label] = cost
    return costs


def chosen(story: Story) -> Safe | None:
    """Temperature and entropy over the rounds: whether the search has chosen."""
    rows = [row for row in story.rows if all(is_number(row, name) for name in NOTED)]
    if not rows:
        return None
    lines = []
    for number, (name, shown_name) in enumerate(NOTED.items()):
        points = [(row.round, row.notes[name]) for row in rows]
        lines.append(Line(shown_name, points, number))
    drawing = Chart(
        key="choice",
        title="temperature, entropy and edges without convolution over the rounds",
        about=f"The entropy ends at {rows[-1].notes['entropy']:.3f} nats.",
        y_name="temperature, nats, share",
        y_text=lambda value: f"{value:.2g}",
        lines=lines,
        floor=0.0,
    )
    caption = (
        "The entropy of the operations' probabilities, mean over edges: at its largest the search "
        "has chosen nothing. Beside it, the share of edges whose most likely operation has no "
        "convolution, and the temperature at which operations are drawn."
    )
    head = ["round", "temperature", "entropy, nats", "without convolution %"]
    numbers = table(head, [line_of(row) for row in rows], label="temperature and entropy")
    return figure("choice", "What the search has chosen", drawing.draw(), caption, numbers)


def is_number(row: MetricsRow, name: str) -> bool:
    """Notes are a method's own, and a file may hold anything."""
    return isinstance(row.notes.get(name), int | float)


def line_of(row: MetricsRow) -> list[Child]:
    return [
        str(row.round),
        f"{row.notes['tau']:.3f}",
        f"{row.notes['entropy']:.3f}",
        percent(row.notes["free"]),
    ]
