"""A split as a table in the terminal.

It has one line per client; if there are many clients, it shows quantiles over all of them instead.
"""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.data.showing.picture import Picture
from fedloom.svg import printable

MOST = 30  # with more clients, the table has no lines of single clients
WIDE = 24  # characters for all classes; if there are more classes, several share one
SHADES = " ░▒▓█"


def table(picture: Picture) -> Table:
    split = picture.split
    lines = Table(
        title=printable(f"{split.data}, {split.partition}, seed {split.seed}"),
        caption=caption(picture),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    if len(split) <= MOST:
        add_clients(lines, picture)
    else:
        add_summary(lines, picture)
    return lines


def caption(picture: Picture) -> str:
    split = picture.split
    samples = f"{picture.sizes.sum()} samples"
    if len(split.server):
        samples = f"{samples}, {len(split.server)} samples at the server"
    measure = "total variation between a client's labels and those of all clients"
    mean = f"{picture.distances.mean():.2f} on average"
    amounts = f"{len(split)} clients, {samples}; split {split.hash[:12]}."
    return f"{amounts} distance: {measure}, {mean}; 0 is equal, 1 disjoint."


def add_clients(lines: Table, picture: Picture) -> None:
    """Adds one line per client, with its classes as a shaded strip."""
    grouped = picture.source.groups is not None
    shades = shades_of(picture)
    most = int(shades.max())
    lines.add_column("client", justify="right", no_wrap=True)
    if grouped:
        lines.add_column(picture.source.grouping, justify="left", no_wrap=True)
    changes = list(picture.change_texts(0))
    for name in ("samples", "test", "classes", "distance", *changes):
        lines.add_column(name, justify="right", no_wrap=True)
    lines.add_column(class_heading(picture), justify="left", no_wrap=True)
    for client in range(len(picture.split)):
        cells = [str(client)]
        if grouped:
            cells.append(printable(picture.origin(client)))
        cells.append(str(picture.sizes[client]))
        cells.append(str(picture.split.tests[client]))
        cells.append(str(picture.classes[client]))
        cells.append(f"{picture.distances[client]:.2f}")
        cells += picture.change_texts(client).values()
        cells.append(strip(shades[client], most))
        lines.add_row(*cells)


def shades_of(picture: Picture) -> np.ndarray:
    """Returns the counts [client, column]; if there are many classes, several share a column."""
    classes = picture.counts.shape[1]
    begins = np.unique(np.linspace(0, classes, WIDE, endpoint=False).astype(int))
    return np.add.reduceat(picture.counts, begins, axis=1)


def strip(counts: np.ndarray, most: int) -> str:
    """Draws one client's classes as characters. A class with any sample has a shade."""
    wide = 2 if len(counts) <= WIDE // 2 else 1
    strongest = len(SHADES) - 1
    shades = []
    for count in counts:
        level = -(-int(count) * strongest // most)  # rounded up
        shades.append(SHADES[level] * wide)
    return "".join(shades)


def class_heading(picture: Picture) -> str:
    labels = picture.labels
    if len(labels) > WIDE // 2 or any(len(label) > 2 for label in labels):
        return f"{len(labels)} classes"
    return "".join(printable(label).ljust(2) for label in labels)


def add_summary(lines: Table, picture: Picture) -> None:
    """Adds the quartiles, the smallest and the largest value of every figure over all clients."""
    lines.add_column("per client", justify="left")
    for name in ("least", "first quartile", "median", "third quartile", "most"):
        lines.add_column(name, justify="right")
    figures = {
        "samples": picture.sizes,
        "test": picture.split.tests,
        "classes": picture.classes,
        "distance": picture.distances,
    }
    for name, values in figures.items():
        quantiles = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
        lines.add_row(name, *(formatted(value) for value in quantiles))


def formatted(value: float) -> str:
    if value < 1000:
        return f"{value:.4g}"
    return f"{value:.0f}"
