"""A split drawn as a self-contained SVG.

There is one row per client and one column per class. The darker a cell, the more samples of the
class the client has. A bar beside the row shows how many samples the client has in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

import numpy as np

from fedloom.data.showing.picture import Picture
from fedloom.svg import printable, text

# All in pixels.
MARGIN = 24.0  # around everything
LINE = 18.0  # the height of a line of text
CHAR = 7.3  # the width of a character
ROW = 18.0  # the height of a client's row, at most
CELL = 22.0  # the width of a class's column, at most
TALL = 720.0  # the height of all rows, at most
BROAD = 660.0  # the width of all columns, at most
BARS = 160.0  # the length of the longest bar
GAP = 16.0  # between the columns and the bars
READABLE = 10.0  # smaller rows and columns have no names

MOST = 360  # clients that are drawn; if there are more, they are picked evenly
LEVELS = 10  # of shade
NAMESPACE = "http://www.w3.org/2000/svg"
LONGEST = 14  # characters of a name


@dataclass(frozen=True)
class Frame:
    """The layout of the drawing, in pixels."""

    row: float  # height of a client's row
    cell: float  # width of a class's column
    names: Sequence[str]  # of the clients that are drawn; empty if they do not fit
    labels: Sequence[str]  # of the classes; empty if they do not fit

    @property
    def slanted(self) -> bool:
        return any(len(label) * CHAR > self.cell for label in self.labels)

    @property
    def left(self) -> float:
        if not self.names:
            return MARGIN
        return MARGIN + (max(map(len, self.names)) * CHAR + 10)

    @property
    def top(self) -> float:
        labels = LINE
        if self.slanted:
            labels = max(map(len, self.labels)) * CHAR * 0.87 + 8
        return MARGIN + 2 * LINE + 8 + labels

    def row_top(self, number: int) -> float:
        return self.top + number * self.row

    def row_middle(self, number: int) -> float:
        return self.top + (number + 0.5) * self.row


def frame_of(picture: Picture, chosen: np.ndarray) -> Frame:
    row = min(ROW, max(2.0, TALL / len(chosen)))
    cell = min(CELL, BROAD / len(picture.labels))
    names: list[str] = []
    if row >= READABLE:
        names = [row_name(picture, int(client)) for client in chosen]
    labels: list[str] = []
    if cell >= READABLE:
        labels = [short(label) for label in picture.labels]
    return Frame(row, cell, names, labels)


def as_svg(picture: Picture) -> str:
    """Draws a split. The SVG brings its own colours, for light and dark backgrounds."""
    chosen = drawn_clients(len(picture.split))
    frame = frame_of(picture, chosen)
    right = frame.left + len(picture.labels) * frame.cell
    heading = title(picture)
    note = summary(picture, len(chosen))
    text_width = max(len(heading) * CHAR * 14 / 12, len(note) * CHAR)  # the title has 14 pixels
    width = max(right + GAP + BARS + 6 * CHAR, MARGIN + text_width) + MARGIN
    height = frame.row_top(len(chosen)) + MARGIN
    label = quoteattr(heading)
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    parts = [
        f'<svg xmlns="{NAMESPACE}" class="fl-split" role="img" aria-label={label} {size}>',
        f"<style>{STYLE}</style>",
        '<rect class="ground" width="100%" height="100%" rx="8"/>',
        text(MARGIN, MARGIN, heading, "title"),
        text(MARGIN, MARGIN + LINE, note, "note"),
        *headings(frame),
        *row_names(frame),
        *heat(picture.counts[chosen], frame),
        *bars(picture, chosen, frame, right + GAP),
        "</svg>\n",
    ]
    return "\n".join(parts)


def drawn_clients(clients: int) -> np.ndarray:
    """Returns the clients to draw: all, or the most that are drawn, picked evenly."""
    picked = np.linspace(0, clients - 1, min(clients, MOST))
    return np.unique(picked.round().astype(int))


def title(picture: Picture) -> str:
    return printable(f"{picture.split.data}, {picture.split.partition}, seed {picture.split.seed}")


def summary(picture: Picture, shown: int) -> str:
    clients = f"{len(picture.split)} clients"
    if shown < len(picture.split):
        clients = f"{clients} ({shown} shown)"
    samples = f"{picture.sizes.min()} to {picture.sizes.max()} samples (test part darker)"
    distance = f"mean label distance {picture.distances.mean():.2f}"
    return f"{clients}, {samples}, {distance}"


def row_name(picture: Picture, client: int) -> str:
    changes = " ".join(picture.change_texts(client).values())
    origin = short(picture.origin(client))
    return " ".join(filter(None, (str(client), origin, changes)))


def short(name: str) -> str:
    name = printable(name.replace("\n", "↵").replace("\t", "⇥"))
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 1]}…"


def headings(frame: Frame) -> Iterator[str]:
    """Draws the names of the classes above their columns."""
    for number, label in enumerate(frame.labels):
        x = frame.left + (number + 0.5) * frame.cell
        if frame.slanted:
            place = f"translate({x - 2:g} {frame.top - 6:g}) rotate(-60)"
            yield f'<g transform="{place}">{text(0, 0, label, "slant")}</g>'
        else:
            yield text(x, frame.top - 9, label, "label")


def row_names(frame: Frame) -> Iterator[str]:
    """Draws the names of the clients in front of their rows."""
    for number, name in enumerate(frame.names):
        yield text(frame.left - 8, frame.row_middle(number), name, "name")


def heat(counts: np.ndarray, frame: Frame) -> Iterator[str]:
    """Draws the cells, one path per shade. The largest count has the darkest shade."""
    levels = -(-counts * LEVELS // counts.max())  # rounded up: a class with any sample has a shade
    gap = 1.0 if min(frame.row, frame.cell) >= 6 else 0.0
    box = f"h{frame.cell - gap:g}v{frame.row - gap:g}h{gap - frame.cell:g}z"
    for level in range(1, LEVELS + 1):
        cells = []
        for client, label in np.argwhere(levels == level):
            x = frame.left + label * frame.cell
            cells.append(f"M{x:g} {frame.row_top(client):g}{box}")
        if cells:
            path = "".join(cells)
            yield f'<path class="cell" fill-opacity="{level / LEVELS:g}" d="{path}"/>'


def bars(picture: Picture, chosen: np.ndarray, frame: Frame, left: float) -> Iterator[str]:
    """Draws one bar per client: its test part, then the rest, and the number of samples."""
    sizes = picture.sizes[chosen]
    scale = BARS / sizes.max()
    tests = picture.split.tests[chosen] * scale
    yield bars_of("test", left, np.zeros(len(chosen)), tests, frame)
    yield bars_of("rest", left, tests, sizes * scale, frame)
    if frame.names:
        for number, size in enumerate(sizes):
            x = left + size * scale + 5
            yield text(x, frame.row_middle(number) - 0.5, str(size), "number")


def bars_of(kind: str, left: float, begins: np.ndarray, ends: np.ndarray, frame: Frame) -> str:
    """Draws one bar per client, from its begin to its end, as a single path."""
    gap = 4.0 if frame.names else min(1.0, frame.row / 4)
    height = frame.row - gap
    bars = []
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        y = frame.row_top(number) + (gap - 1) / 2
        bars.append(f"M{left + begin:g} {y:g}h{end - begin:g}v{height:g}h{begin - end:g}z")
    return f'<path class="{kind}" d="{"".join(bars)}"/>'


def colours(ground: str, ink: str, cell: str, rest: str, test: str) -> str:
    return (
        f".fl-split .ground{{fill:{ground}}}.fl-split text{{fill:{ink}}}"
        f".fl-split .cell{{fill:{cell}}}"
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
