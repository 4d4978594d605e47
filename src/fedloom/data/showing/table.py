"""A split as a table in the terminal: a line a client, or the spread of all where there are many."""

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
    held = f", {len(split.server)} samples with the server" if len(split.server) else ""
    caption = (
        f"{len(split)} clients, {picture.sizes.sum()} samples{held}; split {split.hash[:12]}. away: total variation "
        f"between a client's labels and everybody's, {picture.distances.mean():.2f} on average; 0 is alike, 1 disjoint."
    )
    made = Table(
        title=printable(f"{split.data}, {split.partition}, seed {split.seed}"), caption=caption, title_justify="left",
        caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    return client_lines(made, picture) if len(split) <= MOST else summary_lines(made, picture)


def client_lines(made: Table, picture: Picture) -> Table:
    """A line a client, its classes as a shaded strip."""
    grouped = picture.source.groups is not None
    changes = [change.name for change in picture.rule.changes]
    most = int(shades_of(picture).max())
    named = [picture.source.grouping] if grouped else []
    for name in ("client", *named, "samples", "test", "classes", "away", *changes, class_heading(picture)):
        made.add_column(name, justify="left" if name in (*named, class_heading(picture)) else "right", no_wrap=True)
    for client in range(len(picture.split)):
        made.add_row(
            str(client), *([printable(picture.origin(client))] if grouped else []), str(picture.sizes[client]),
            str(picture.split.tests[client]), str(picture.classes[client]), f"{picture.distances[client]:.2f}",
            *(f"{amount:+.3g}" for amount in picture.amounts(client).values()),
            strip(shades_of(picture)[client], most),
        )  # fmt: skip
    return made


def shades_of(picture: Picture) -> np.ndarray:
    """[client, column]: the counts, classes joined where there are too many for a line."""
    begin = np.unique(np.linspace(0, picture.counts.shape[1], WIDE, endpoint=False).astype(int))
    return np.add.reduceat(picture.counts, begin, axis=1)


def strip(counts: np.ndarray, most: int) -> str:
    """A class that is there at all has a shade."""
    wide = 2 if len(counts) <= WIDE // 2 else 1
    return "".join(SHADES[-(-int(count) * (len(SHADES) - 1) // most)] * wide for count in counts)


def class_heading(picture: Picture) -> str:
    labels = picture.source.labels
    short = len(labels) <= WIDE // 2 and all(len(label) <= 2 for label in labels)
    return "".join(printable(label).ljust(2) for label in labels) if short else f"{len(labels)} classes"


def summary_lines(made: Table, picture: Picture) -> Table:
    """The five numbers of Tukey for every figure."""
    figures = {
        "samples": picture.sizes, "test": picture.split.tests, "classes": picture.classes, "away": picture.distances,
    }  # fmt: skip
    for name in ("a client's", "least", "quarter", "median", "three quarters", "most"):
        made.add_column(name, justify="left" if name == "a client's" else "right")
    for name, values in figures.items():
        five = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
        made.add_row(name, *(f"{value:.4g}" if value < 1000 else f"{value:.0f}" for value in five))
    return made
