"""Models whose samples take paths of their own: which operations are taken, and what that costs."""

from __future__ import annotations

from fedloom.records.result import ClientResult
from fedloom.records.routes import ClientRoutes
from fedloom.records.rows import MetricsRow
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.story import Story
from fedloom.report.tables import amount, percent

MOST_CLIENTS = 8  # that are drawn
NOTED = ("tau", "entropy", "free")  # in rows of a search whose samples take drawn paths


def routes(story: Story) -> Safe:
    """Hidden where all samples take the same path."""
    routed = [client for client in story.clients if client.routes is not None]
    drawn = list(story.routes)[:MOST_CLIENTS]
    figures = []
    for client in routed:
        if client.client in drawn:
            figures.append(shares_of(client, story.routes[client.client]))
    left_out = None
    if len(story.routes) > len(drawn):
        rest = "architectures/client-*.routes.json has the others."
        left_out = note(f"The first {len(drawn)} of {len(story.routes)} clients are drawn; {rest}")
    drawings = grid(*figures)
    return section("routes", "Paths of samples", spread(routed), drawings, left_out, chosen(story))


def spread(routed: list[ClientResult]) -> Safe | None:
    """Costs over a client's test samples, and its most common path."""
    if not routed:
        return None
    lines: list[list[Child]] = []
    for client in routed:
        assert client.routes is not None
        lines.append(
            [
                str(client.client),
                f"{client.routes.distinct} of {client.routes.samples}",
                amount(client.macs),
                amount(client.macs_std),
                amount(client.macs_max),
                percent(client.figure),
                percent(client.shuffled_accuracy),
                f"{100 * client.routes.top[0].share:.0f}",
            ]
        )
    head = [
        "client",
        "paths of samples",
        "MACs, mean",
        "std",
        "dearest",
        "accuracy %",
        "on others' paths %",
        "on the most common path %",
    ]
    return table(head, lines, label="paths of samples")


def shares_of(result: ClientResult, taken: ClientRoutes) -> Safe:
    """Edges × operations: the share of the client's test samples that take each."""
    client = result.client
    names: list[str] = []
    for edge in taken.edges:
        names += [op for op in edge.ops if op not in names]
    shares: list[list[float | None]] = []
    texts = []
    for edge in taken.edges:
        share_of = dict(zip(edge.ops, edge.share, strict=True))
        shares.append([share_of.get(name) for name in names])
        texts.append([share_in_words(share_of.get(name)) for name in names])
    drawing = Heat(
        key=f"routes-{client}",
        title=f"operations that the samples of client {client} take",
        about=f"{len(taken.edges)} edges, {len(names)} operations",
        rows=[edge.slot for edge in taken.edges],
        columns=names,
        shares=shares,
        texts=texts,
        row_name="edge",
        column_name="operation",
    )
    caption = "Percent of the client's test samples that take each operation of an edge."
    heading = f"Client {client}"
    numbers = Safe(f"{by_class(taken)}{common_paths(result)}")
    return figure(f"routes-{client}", heading, drawing.draw(), caption, numbers)


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
    """The same for the samples of each class, and what a sample of it costs on these edges."""
    labels: list[str] = []
    for edge in taken.edges:
        labels += [label for label in edge.share_by_class if label not in labels]
    lines: list[list[Child]] = []
    for label in labels:
        cost = float(taken.fixed_macs)
        most_taken = []
        for edge in taken.edges:
            shares = edge.share_by_class[label]
            cost += sum(share * macs for share, macs in zip(shares, edge.macs, strict=True))
            place = max(range(len(shares)), key=lambda number: shares[number])
            most_taken.append(f"{edge.ops[place]} {100 * shares[place]:.0f} %")
        lines.append([label, amount(round(cost)), ", ".join(most_taken)])
    head = ["class", "MACs, mean", "most taken, edge by edge"]
    return table(head, lines, label="paths by class", words=("class", "most taken, edge by edge"))


def chosen(story: Story) -> Safe | None:
    """Temperature and entropy, round by round: whether the search has chosen."""
    rows = [row for row in story.rows if all(is_number(row, name) for name in NOTED)]
    if not rows:
        return None
    head = ["round", "temperature", "entropy, nats", "without convolution %"]
    lines = [line_of(row) for row in rows]
    about = note(
        "The entropy of the operations' probabilities, mean over edges: at its largest the search "
        "has chosen nothing. Beside it, edges whose most likely operation has no convolution."
    )
    return Safe(f"{about}{table(head, lines, label='temperature and entropy')}")


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
