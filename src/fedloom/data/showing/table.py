"""A split as a table in the terminal.

It has a line a client, or the spread of all where there are many.
"""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.data.showing.picture import Picture
from fedloom.svg import printable

MOST = 30  # clients that get a line of their own
WIDE = 24  # characters for all classes; several share one if there are more
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
        samples = f"{samples}, {len(split.server)} samples with the server"
    measure = "total variation between a client's labels and everybody's"
    mean = f"{picture.distances.mean():.2f} on average"
    amounts = f"{len(split)} clients, {samples}; split {split.hash[:12]}."
    return f"{amounts} away: {measure}, {mean}; 0 is alike, 1 disjoint."


def add_clients(lines: Table, picture: Picture) -> None:
    """A line a client, its classes as a shaded strip."""
    grouped = picture.source.groups is not None
    shades = shades_of(picture)
    most = int(shades.max())
    lines.add_column("client", justify="right", no_wrap=True)
    if grouped:
        lines.add_column(picture.source.grouping, justify="left", no_wrap=True)
    changes = list(picture.change_texts(0))
    for name in ("samples", "test", "classes", "away", *changes):
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
    """[client, column]: the counts, classes joined where there are too many for a line."""
    classes = picture.counts.shape[1]
    begins = np.unique(np.linspace(0, classes, WIDE, endpoint=False).astype(int))
    return np.add.reduceat(picture.counts, begins, axis=1)


def strip(counts: np.ndarray, most: int) -> str:
    """A class that is there at all has a shade."""
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
    """The five numbers of Tukey for every figure."""
    lines.add_column("a client's", justify="left")
    for name in ("least", "quarter", "median", "three quarters", "most"):
        lines.add_column(name, justify="right")
    figures = {
        "samples": picture.sizes,
        "test": picture.split.tests,
        "classes": picture.classes,
        "away": picture.distances,
    }
    for name, values in figures.items():
        five = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
        lines.add_row(name, *(shown(value) for value in five))


def shown(value: float) -> str:
    if value < 1000:
        return f"{value:.4g}"
    return f"{value:.0f}"
