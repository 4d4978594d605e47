"""Figures for papers, drawn by matplotlib: one column wide, readable in grey, without ornament.

Each function takes plain values and returns a figure; `plots.py` collects the values. Colours are
Okabe and Ito's, which colour-blind people can tell apart; markers differ too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, MaxNLocator

from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Difference
from fedloom.records.gain import GainMatrix
from fedloom.records.result import ClientResult

COLUMN = 3.4  # inches: the width of one column of a paper
PAGE = 7.0  # inches: the width of both columns
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")
INK = "#222222"
FAINT = "#bbbbbb"
MOST_MARKED = 30  # rounds; a longer curve has no markers
MOST_NAMED = 40  # rows, such as clients; more rows have no names
MOST_NAMED_COLUMNS = 20
MOST_WRITTEN = 12  # rows or columns of a heat map whose cells show their numbers
LONGEST_METHOD = 28  # characters of a method's name
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 300,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "fedloom",
    "text.parse_math": False,  # a $ in a name is just a character
}


def style() -> AbstractContextManager[None]:
    """Return a context in which figures have our style."""
    context: AbstractContextManager[None]
    # matplotlib's type for the argument wants every key to be one of a Literal.
    context = matplotlib.rc_context(STYLE)  # type: ignore[arg-type]
    return context


def arranged(figure: Figure) -> Figure:
    """Lay out a figure once, for all files that it is saved in, and return it.

    Otherwise each file would compute the layout again, which takes as long as drawing.
    """
    engine = figure.get_layout_engine()
    assert engine is not None  # `STYLE` asks for one
    engine.execute(figure)
    figure.set_layout_engine("none")
    return figure


def axis_name(metric: Metric) -> str:
    if not metric.unit:
        return metric.title
    return f"{metric.title} ({metric.unit.strip()})"


@dataclass(frozen=True)
class Curve:
    """A method's evaluations by round: their mean over seeds, and the range of the seeds."""

    name: str
    rounds: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class StageBegin(NamedTuple):
    """The round in which a stage, or a phase of one, begins."""

    round: float
    name: str


def convergence(
    curves: Sequence[Curve],
    metric: Metric,
    stages: Sequence[StageBegin],
) -> Figure:
    """Draw the metric over the rounds."""
    fig = Figure(figsize=(COLUMN, 2.4))
    ax = fig.subplots()
    for number, curve in enumerate(curves):
        draw_curve(ax, curve, number, metric)
    if len(stages) > 1:
        for stage in stages:
            mark_stage(ax, stage)
    ax.set(xlabel="round", ylabel=axis_name(metric))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(curves) > 1:
        ax.legend()
    return fig


def draw_curve(ax: Axes, curve: Curve, number: int, metric: Metric) -> None:
    colour = COLOURS[number % len(COLOURS)]
    dash = DASHES[number // 2 % len(DASHES)]
    marker = ""
    if len(curve.rounds) <= MOST_MARKED:
        marker = MARKERS[number % len(MARKERS)]
    mean = metric.scale * np.asarray(curve.mean)
    low = metric.scale * np.asarray(curve.low)
    high = metric.scale * np.asarray(curve.high)
    ax.plot(curve.rounds, mean, dash, color=colour, marker=marker, label=curve.name)
    if np.any(low < high):
        ax.fill_between(curve.rounds, low, high, color=colour, alpha=0.18, linewidth=0)


def mark_stage(ax: Axes, stage: StageBegin) -> None:
    ax.axvline(stage.round - 0.5, color=FAINT, linewidth=0.6, zorder=0)
    ax.text(
        stage.round - 0.4,
        1.01,
        stage.name,
        transform=ax.get_xaxis_transform(),
        fontsize=6,
        color="#555555",
        va="bottom",
    )


def clients(results: Sequence[ClientResult], metric: Metric, mean: float | None) -> Figure:
    """Draw every client's figure on its own test data, with its interval.

    A hollow mark is the shared model at the same client. Many clients are sorted by their figure
    and have no names.
    """
    drawn = with_figure(results)
    are_named = len(drawn) <= MOST_NAMED
    if are_named:
        drawn.sort(key=lambda client: client.client)
    else:
        drawn.sort(key=lambda client: (figure_of(client), client.client))
    rows = np.arange(len(drawn))
    values = np.array([figure_of(client) for client in drawn])
    low, high = metric.scale * np.array([ends_of(client) for client in drawn]).T
    fig = Figure(figsize=(COLUMN, 0.8 + 0.16 * min(len(drawn), MOST_NAMED)))
    ax = fig.subplots()
    line_width = 0.4
    dot = "."
    if are_named:
        line_width = 1.0
        dot = "o"
    ax.hlines(rows, low, high, color=COLOURS[0], linewidth=line_width, alpha=0.6)
    ax.plot(metric.scale * values, rows, dot, color=COLOURS[0], label="own network")
    draw_shared(ax, drawn, metric)
    if mean is not None:
        ax.axvline(metric.scale * mean, color=INK, linewidth=0.7, linestyle=":", label="mean")
    ax.set_xlabel(axis_name(metric))
    if are_named:
        ax.set_ylabel("client")
        ax.set_yticks(rows, [str(client.client) for client in drawn])
    else:
        ax.set_ylabel(f"{len(drawn)} clients, by their figure")
        ax.set_yticks([])
    ax.set_ylim(len(drawn) - 0.5, -0.5)  # the first on top
    fig.legend(loc="outside upper center", ncols=3)
    return fig


def draw_shared(ax: Axes, drawn: Sequence[ClientResult], metric: Metric) -> None:
    """Mark the shared model's figures, unless all are missing or equal to the clients' own."""
    shared = [client.shared_figure for client in drawn]
    own = [client.figure for client in drawn]
    if shared == own or all(figure is None for figure in shared):
        return
    values = []
    for figure in shared:
        if figure is None:
            values.append(np.nan)
        else:
            values.append(metric.scale * figure)
    ax.plot(
        values,
        np.arange(len(values)),
        "D",
        markerfacecolor="none",
        color=COLOURS[1],
        markersize=3,
        label="shared network",
    )


def with_figure(results: Sequence[ClientResult]) -> list[ClientResult]:
    return [client for client in results if client.figure is not None]


def figure_of(client: ClientResult) -> float:
    """Return the figure of a client that has one."""
    assert client.figure is not None
    return client.figure


def ends_of(client: ClientResult) -> Sequence[float]:
    """Return the ends of a client's interval; without an interval, its figure twice."""
    if client.interval:
        return client.interval
    return [figure_of(client), figure_of(client)]


Size = Literal["params", "macs"]


class Point(NamedTuple):
    size: float
    figure: float


def cost(groups: Mapping[str, Sequence[ClientResult]], metric: Metric) -> Figure:
    """Draw one dot per client: its figure against the parameters and MACs of its network."""
    fig = Figure(figsize=(PAGE, 2.5))
    by_params, by_macs = fig.subplots(1, 2, sharey=True)
    against(by_params, groups, "params", metric)
    against(by_macs, groups, "macs", metric)
    by_params.set_xlabel("parameters of a client's network")
    by_macs.set_xlabel("MACs of a client's network")
    by_params.set_ylabel(axis_name(metric))
    if len(groups) > 1:
        handles, labels = by_params.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=min(4, len(groups)))
    return fig


def against(
    ax: Axes,
    groups: Mapping[str, Sequence[ClientResult]],
    size: Size,
    metric: Metric,
) -> None:
    sizes: list[float] = []
    for number, (name, results) in enumerate(groups.items()):
        points = points_of(results, size)
        x = [point.size for point in points]
        y = [metric.scale * point.figure for point in points]
        sizes += x
        ax.scatter(
            x,
            y,
            s=14,
            alpha=0.7,
            linewidths=0,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            label=name,
        )
    if sizes and max(sizes) > 8 * max(1, min(sizes)):
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(EngFormatter())
    ax.grid(color="#eeeeee", linewidth=0.6)
    ax.set_axisbelow(True)


def points_of(results: Sequence[ClientResult], size: Size) -> list[Point]:
    """Return the points of the clients whose figure and size are known."""
    points = []
    for client in with_figure(results):
        value = client.macs
        if size == "params":
            value = client.params
        if value is not None:
            points.append(Point(float(value), figure_of(client)))
    return points


def split(counts: np.ndarray, labels: Sequence[str], names: Sequence[str]) -> Figure:
    """Draw which client has which classes: a darker cell is a larger share of the client."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    height = min(6.0, 0.9 + 0.17 * len(counts))
    fig = Figure(figsize=(COLUMN, max(1.6, height)))
    ax = fig.subplots()
    image = ax.imshow(
        100 * shares,
        cmap="Blues",
        vmin=0,
        vmax=100,
        aspect="auto",
        interpolation="nearest",
    )
    if len(counts) <= MOST_WRITTEN and len(labels) <= MOST_WRITTEN:
        write_cells(ax, counts, 100 * shares > 55, count_text)
    name_ticks(ax, names, labels)
    ax.set(xlabel="class", ylabel="client")
    fig.colorbar(image, ax=ax, label="share of the client (%)")
    return fig


def count_text(count: float) -> str:
    """Write a count; 0 is left blank."""
    if not count:
        return ""
    return str(int(count))


def gain(measured: GainMatrix, metric: Metric) -> Figure:
    """Draw p_ij: client j's network after fine-tuning on client i's data.

    A client's own network is framed.
    """
    matrix = metric.scale * np.array(measured.matrix, dtype=float)  # None becomes NaN
    return networks_on_data(
        measured.clients,
        matrix,
        axis_name(metric),
        lower_is_better=metric.lower_is_better,
    )


def gain_beside(
    clients: Sequence[int],
    figures: Sequence[Sequence[float | None]],
    name: str,
) -> Figure:
    """Draw the same networks by balanced accuracy or AUC."""
    matrix = 100 * np.array(figures, dtype=float)
    return networks_on_data(clients, matrix, f"{name} (%)", lower_is_better=False)


def networks_on_data(
    clients: Sequence[int],
    matrix: np.ndarray,
    label: str,
    *,
    lower_is_better: bool,
) -> Figure:
    names = [str(client) for client in clients]
    side = min(PAGE, max(2.4, 1.2 + 0.3 * len(names)))
    fig = Figure(figsize=(side + 0.5, side))
    ax = fig.subplots()
    colours = "Blues"
    if lower_is_better:
        colours = "Blues_r"
    image = ax.imshow(matrix, cmap=colours, interpolation="nearest")
    if len(names) <= MOST_WRITTEN:
        low, high = image.get_clim()
        middle = low + 0.6 * (high - low)
        dark = matrix > middle
        if lower_is_better:
            dark = matrix < middle
        write_cells(ax, matrix, dark, gain_text)
    for own in range(len(names)):
        corner = (own - 0.5, own - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[1]))
    name_ticks(ax, names, names)
    ax.set(xlabel="network of client j", ylabel="data of client i")
    fig.colorbar(image, ax=ax, label=label, shrink=0.8)
    return fig


def gain_text(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.3g}"


def name_ticks(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Name rows and columns where the names fit.

    Elsewhere matplotlib's numbers stay, which count from 0 as clients and classes do.
    """
    if len(rows) <= MOST_NAMED:
        ax.set_yticks(range(len(rows)), [short(name) for name in rows])
    if len(columns) <= MOST_NAMED_COLUMNS:
        rotation = 0
        if len(columns) > 4 and any(len(name) > 2 for name in columns):
            rotation = 90
        texts = [short(name) for name in columns]
        ax.set_xticks(range(len(columns)), texts, rotation=rotation)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def short(name: str, most: int = 14) -> str:
    if len(name) <= most:
        return name
    return f"{name[: most - 1]}…"


def write_cells(
    ax: Axes,
    cells: np.ndarray,
    dark: np.ndarray,
    text: Callable[[float], str],
) -> None:
    """Write every cell's number on it: white on a dark shade, black on a light one."""
    for (row, column), value in np.ndenumerate(cells):
        ink = INK
        if dark[row, column]:
            ink = "white"
        ax.text(column, row, text(value), ha="center", va="center", fontsize=5.5, color=ink)


def methods(
    seeds: Mapping[str, Sequence[float]],
    differences: Mapping[str, Difference | None],
    metric: Metric,
) -> Figure:
    """Draw every seed of each method and their mean.

    Beside them is the difference to the first method, paired by seed, with its interval.
    """
    names = list(seeds)
    gaps = [differences.get(name) for name in names]
    height = 0.9 + 0.28 * len(names)
    if all(gap is None for gap in gaps):
        fig = Figure(figsize=(COLUMN, height))
        draw_seeds(fig.subplots(), seeds, metric)
        return fig
    fig = Figure(figsize=(PAGE, height))
    left, right = fig.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    draw_seeds(left, seeds, metric)
    draw_differences(right, gaps, metric, short(names[0], LONGEST_METHOD))
    return fig


def draw_seeds(ax: Axes, seeds: Mapping[str, Sequence[float]], metric: Metric) -> None:
    """Draw one row per method, with one dot per seed and a line at their mean."""
    for at, figures in enumerate(seeds.values()):
        values = metric.scale * np.asarray(figures)
        colour = COLOURS[at % len(COLOURS)]
        ax.plot(
            values,
            np.full(len(values), at),
            "o",
            color=colour,
            alpha=0.4,
            markersize=3,
            markeredgewidth=0,
        )
        if len(values):
            ax.plot(values.mean(), at, "|", color=colour, markersize=11, markeredgewidth=1.8)
    names = [short(name, LONGEST_METHOD) for name in seeds]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    better = "higher is better"
    if metric.lower_is_better:
        better = "lower is better"
    ax.set_xlabel(f"{axis_name(metric)}, mean over clients\n({better})")


def draw_differences(
    ax: Axes,
    gaps: Sequence[Difference | None],
    metric: Metric,
    first: str,
) -> None:
    about_lines = "no interval: one seed, or no spread"
    for at, gap in enumerate(gaps):
        if gap is None:
            continue
        colour = COLOURS[at % len(COLOURS)]
        if gap.interval is not None:
            about_lines = "95 % interval"
            low, high = gap.interval
            ax.hlines(at, metric.scale * low, metric.scale * high, color=colour, linewidth=1.4)
        ax.plot(metric.scale * gap.mean, at, MARKERS[at % len(MARKERS)], color=colour)
    ax.axvline(0, color=INK, linewidth=0.7, linestyle=":")
    ax.set_xlabel(f"difference to {first}\n({about_lines})")
    ax.tick_params(left=False)
