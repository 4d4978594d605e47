"""A split as a self-contained SVG: clients below each other, a shade a class, and how many samples each has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

import numpy as np

from fedloom.data.showing.picture import Picture
from fedloom.svg import printable, text

MARGIN, LINE, CHAR = 24.0, 18.0, 7.3  # around everything; a line of text; a character
ROW, CELL, TALL, BROAD, BARS = 18.0, 22.0, 720.0, 660.0, 160.0  # a client, a class; most of all; the longest bar
MOST = 360  # clients that are drawn; of more, so many are picked evenly
LEVELS = 10  # of shade
LONGEST = 14  # characters of a name
READABLE = 10.0  # pixels; names of smaller rows and columns are left out


@dataclass(frozen=True)
class Frame:
    """Where everything stands, in pixels."""

    row: float  # height of a client
    cell: float  # width of a class
    names: Sequence[str]  # of the clients that are drawn; empty where they do not fit
    labels: Sequence[str]  # of the classes; empty where they do not fit

    @property
    def slanted(self) -> bool:
        return any(len(label) * CHAR > self.cell for label in self.labels)

    @property
    def left(self) -> float:
        return MARGIN + (max(map(len, self.names)) * CHAR + 10 if self.names else 0.0)

    @property
    def top(self) -> float:
        labels = max(map(len, self.labels)) * CHAR * 0.87 + 8 if self.slanted else LINE
        return MARGIN + 2 * LINE + 8 + labels


def frame_of(picture: Picture, chosen: np.ndarray) -> Frame:
    row, cell = min(ROW, max(2.0, TALL / len(chosen))), min(CELL, BROAD / len(picture.source.labels))
    names = [row_name(picture, int(client)) for client in chosen] if row >= READABLE else []
    labels = [short(label) for label in picture.source.labels] if cell >= READABLE else []
    return Frame(row, cell, names, labels)


def as_svg(picture: Picture) -> str:
    """It brings its own colours, for light and for dark."""
    chosen = np.unique(np.linspace(0, len(picture.split) - 1, min(len(picture.split), MOST)).round().astype(int))
    frame = frame_of(picture, chosen)
    right = frame.left + len(picture.source.labels) * frame.cell
    lines = [title(picture), about(picture, len(chosen))]
    written = max(len(lines[0]) * CHAR * 14 / 12, len(lines[1]) * CHAR)  # the title is of 14 pixels
    width = max(right + 16 + BARS + 6 * CHAR, MARGIN + written) + MARGIN
    height = frame.top + len(chosen) * frame.row + MARGIN
    parts = [
        text(MARGIN, MARGIN, lines[0], "title"),
        text(MARGIN, MARGIN + LINE, lines[1], "note"),
        *headings(frame),
        *(text(frame.left - 8, frame.top + (k + 0.5) * frame.row, name, "name") for k, name in enumerate(frame.names)),
        *heat(picture.counts[chosen], frame),
        *bars(picture, chosen, frame, right + 16),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fl-split" role="img" aria-label={quoteattr(lines[0])} '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">\n<style>{STYLE}</style>\n'
        '<rect class="ground" width="100%" height="100%" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def title(picture: Picture) -> str:
    return printable(f"{picture.split.data}, {picture.split.partition}, seed {picture.split.seed}")


def about(picture: Picture, shown: int) -> str:
    clients, some = len(picture.split), "" if shown == len(picture.split) else f" ({shown} shown)"
    return (
        f"{clients} clients{some}, {picture.sizes.min()} to {picture.sizes.max()} samples (test part darker), "
        f"labels {picture.distances.mean():.2f} away from everybody's"
    )


def row_name(picture: Picture, client: int) -> str:
    amounts = " ".join(f"{amount:+.3g}" for amount in picture.amounts(client).values())
    origin = short(picture.origin(client))
    return " ".join(filter(None, (str(client), origin, amounts)))


def short(name: str) -> str:
    name = printable(name.replace("\n", "↵").replace("\t", "⇥"))
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def headings(frame: Frame) -> Iterator[str]:
    """The classes' names above their columns."""
    for number, label in enumerate(frame.labels):
        x = frame.left + (number + 0.5) * frame.cell
        if frame.slanted:
            yield f'<g transform="translate({x - 2:g} {frame.top - 6:g}) rotate(-60)">{text(0, 0, label, "slant")}</g>'
        else:
            yield text(x, frame.top - 9, label, "label")


def heat(counts: np.ndarray, frame: Frame) -> Iterator[str]:
    """One path a shade: the cells whose count is about this part of the largest."""
    levels = -(-counts * LEVELS // counts.max())
    gap = 1.0 if min(frame.row, frame.cell) >= 6 else 0.0
    box = f"h{frame.cell - gap:g}v{frame.row - gap:g}h{gap - frame.cell:g}z"
    for level in range(1, LEVELS + 1):
        places = ((frame.left + c * frame.cell, frame.top + k * frame.row) for k, c in np.argwhere(levels == level))
        cells = "".join(f"M{x:g} {y:g}{box}" for x, y in places)
        if cells:
            yield f'<path class="cell" fill-opacity="{level / LEVELS:g}" d="{cells}"/>'


def bars(picture: Picture, chosen: np.ndarray, frame: Frame, left: float) -> Iterator[str]:
    """A bar a client: its test part, then the rest, and how many samples that is."""
    scale, gap = BARS / picture.sizes[chosen].max(), 4.0 if frame.names else min(1.0, frame.row / 4)
    for kind, begins, ends in (
        ("test", np.zeros(len(chosen)), picture.split.tests[chosen] * scale),
        ("rest", picture.split.tests[chosen] * scale, picture.sizes[chosen] * scale),
    ):
        bars = (
            f"M{left + begin:g} {frame.top + k * frame.row + (gap - 1) / 2:g}"
            f"h{end - begin:g}v{frame.row - gap:g}h{begin - end:g}z"
            for k, (begin, end) in enumerate(zip(begins, ends, strict=True))
        )
        yield f'<path class="{kind}" d="{"".join(bars)}"/>'
    if frame.names:
        for k, size in enumerate(picture.sizes[chosen]):
            yield text(left + size * scale + 5, frame.top + (k + 0.5) * frame.row - 0.5, str(size), "number")


def colours(ground: str, ink: str, cell: str, rest: str, test: str) -> str:
    return (
        f".fl-split .ground{{fill:{ground}}}.fl-split text{{fill:{ink}}}.fl-split .cell{{fill:{cell}}}"
        f".fl-split .rest{{fill:{rest}}}.fl-split .test{{fill:{test}}}"
    )


LIGHT = colours("#ffffff", "#1f2328", "#0969da", "#b6d7b9", "#4ac26b")
DARK = colours("#0d1117", "#e6edf3", "#58a6ff", "#1f5130", "#2ea043")
STYLE = (
    ".fl-split text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".fl-split .label{text-anchor:middle}.fl-split .name{text-anchor:end}"
    ".fl-split .title{font-size:14px;font-weight:bold}"
    f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}"
)
