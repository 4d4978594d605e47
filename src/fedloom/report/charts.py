"""Figures for papers, drawn by matplotlib: one column wide, readable in grey, no ornament.

Each function takes plain values and gives a figure; `plots.py` finds the values. Colours are Okabe and Ito's, which
colour-blind people tell apart; markers differ too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from fedloom.metrics.metric import Metric
from fedloom.records.comparison import Difference
from fedloom.records.gain import GainMatrix
from fedloom.records.result import ClientResult

COLUMN, PAGE = 3.4, 7.0  # inches: one column of a paper, both
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")
INK, FAINT = "#222222", "#bbbbbb"
MOST_NAMED = 40  # clients with a line of their own
MOST_WRITTEN = 12  # rows or columns of a heat-map whose cells hold their number
STYLE = {
    "font.size": 8, "axes.labelsize": 8, "axes.titlesize": 8, "legend.fontsize": 7, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "savefig.dpi": 300,
    "figure.constrained_layout.use": True, "svg.hashsalt": "fedloom",
    "text.parse_math": False,  # a name with a $ in it is a name
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    found: AbstractContextManager[None] = matplotlib.rc_context(STYLE)  # type: ignore[arg-type]  # its keys are a Literal
    return found


@dataclass(frozen=True)
class Curve:
    """A method's evaluations: a line, and where there are seeds, what they span."""

    name: str
    rounds: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def convergence(curves: Sequence[Curve], metric: Metric, stages: Sequence[tuple[float, str]]) -> Figure:
    """The metric over the rounds; `stages` are where each begins, and its name."""
    fig = Figure(figsize=(COLUMN, 2.4))
    ax = fig.subplots()
    for number, curve in enumerate(curves):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // 2 % len(DASHES)]
        marker = MARKERS[number % len(MARKERS)] if len(curve.rounds) <= 30 else ""
        mean, low, high = (metric.scale * np.asarray(part) for part in (curve.mean, curve.low, curve.high))
        ax.plot(curve.rounds, mean, dash, color=colour, marker=marker, label=curve.name)
        if np.any(low < high):
            ax.fill_between(curve.rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    for begin, name in stages if len(stages) > 1 else ():
        ax.axvline(begin - 0.5, color=FAINT, linewidth=0.6, zorder=0)
        ax.text(begin - 0.4, 1.01, name, transform=ax.get_xaxis_transform(), fontsize=6, color="#555555", va="bottom")
    ax.set(xlabel="round", ylabel=of(metric))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(curves) > 1:
        ax.legend()
    return fig


def of(metric: Metric) -> str:
    return f"{metric.name}{f' ({metric.unit.strip()})' if metric.unit else ''}"


def clients(results: Sequence[ClientResult], metric: Metric, mean: float | None) -> Figure:
    """Every client's figure on its own test data, with its interval; hollow: the shared model there."""
    known = sorted((client for client in results if client.figure is not None), key=lambda client: client.client)
    named = len(known) <= MOST_NAMED
    if not named:
        known = sorted(known, key=figure_of)
    fig = Figure(figsize=(COLUMN, 0.8 + 0.16 * (len(known) if named else MOST_NAMED)))
    ax = fig.subplots()
    at, values = np.arange(len(known)), np.array([figure_of(client) for client in known])
    ends = np.array([client.interval or [figure_of(client)] * 2 for client in known])
    ax.hlines(at, *(metric.scale * ends.T), color=COLOURS[0], linewidth=1.0 if named else 0.4, alpha=0.6)
    ax.plot(metric.scale * values, at, "o" if named else ".", color=COLOURS[0], label="own network")
    shared = [client.shared_figure for client in known]
    if any(figure is not None for figure in shared) and shared != values.tolist():
        x = [np.nan if figure is None else metric.scale * figure for figure in shared]
        ax.plot(
            x, at, "D", markerfacecolor="none", color=COLOURS[1], markersize=3,
            label="shared network",
        )  # fmt: skip
    if mean is not None:
        ax.axvline(metric.scale * mean, color=INK, linewidth=0.7, linestyle=":", label="mean")
    ax.set(xlabel=of(metric), ylabel="client" if named else f"{len(known)} clients, by their figure")
    ax.set_yticks(at if named else [], [str(client.client) for client in known] if named else [])
    ax.set_ylim(len(known) - 0.5, -0.5)  # the first on top
    fig.legend(loc="outside upper center", ncols=3)
    return fig


def figure_of(client: ClientResult) -> float:
    """Of a client that has one."""
    assert client.figure is not None
    return client.figure


def cost(groups: Mapping[str, Sequence[ClientResult]], metric: Metric) -> Figure:
    """A client a dot: its figure against the parameters and the MACs of its network."""
    fig = Figure(figsize=(PAGE, 2.5))
    by_params, by_macs = fig.subplots(1, 2, sharey=True)
    known = {name: [client for client in clients if client.figure is not None] for name, clients in groups.items()}
    against(by_params, {name: sized(clients, "params") for name, clients in known.items()}, metric)
    against(by_macs, {name: sized(clients, "macs") for name, clients in known.items()}, metric)
    by_params.set_xlabel("parameters of a client's network")
    by_macs.set_xlabel("MACs of a client's network")
    by_params.set_ylabel(of(metric))
    if len(groups) > 1:
        handles, labels = by_params.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=min(4, len(groups)))
    return fig


def sized(clients: Sequence[ClientResult], size: Literal["params", "macs"]) -> list[tuple[float, float]]:
    """(size, figure) of those that tell."""
    points = []
    for client in clients:
        value = client.params if size == "params" else client.macs
        if value is not None:
            points.append((float(value), figure_of(client)))
    return points


def against(ax: Axes, groups: Mapping[str, Sequence[tuple[float, float]]], metric: Metric) -> None:
    sizes: list[float] = []
    for number, (name, points) in enumerate(groups.items()):
        x = [size for size, _ in points]
        sizes += x
        ax.scatter(
            x, [metric.scale * figure for _, figure in points], s=14, alpha=0.7, linewidths=0,
            color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], label=name,
        )  # fmt: skip
    if sizes and max(sizes) > 8 * max(1, min(sizes)):
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(EngFormatter())
    ax.grid(color="#eeeeee", linewidth=0.6)
    ax.set_axisbelow(True)


def split(counts: np.ndarray, labels: Sequence[str], names: Sequence[str]) -> Figure:
    """Who has which classes: a client's share of each, dark is much."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    height = min(6.0, 0.9 + 0.17 * len(counts))
    fig = Figure(figsize=(COLUMN, max(1.6, height)))
    ax = fig.subplots()
    image = ax.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    if len(counts) <= MOST_WRITTEN and len(labels) <= MOST_WRITTEN:
        written(ax, counts, 100 * shares, 55, lambda value: str(int(value)) if value else "")
    ticks(ax, names, labels)
    ax.set(xlabel="class", ylabel="client")
    fig.colorbar(image, ax=ax, label="share of the client (%)")
    return fig


def gain(measured: GainMatrix, metric: Metric) -> Figure:
    """p_ij: client j's network after fine-tuning on client i's data; framed: its own."""
    matrix = metric.scale * np.array(measured.matrix, dtype=float)  # None becomes NaN
    names = [str(client) for client in measured.clients]
    side = min(PAGE, max(2.4, 1.2 + 0.3 * len(names)))
    fig = Figure(figsize=(side + 0.5, side))
    ax = fig.subplots()
    image = ax.imshow(matrix, cmap="Blues_r" if metric.lower_is_better else "Blues", interpolation="nearest")
    if len(names) <= MOST_WRITTEN:
        low, high = image.get_clim()
        dark = low + 0.6 * (high - low)
        written(ax, matrix, matrix, dark, lambda value: "–" if np.isnan(value) else f"{value:.3g}")
    for own in range(len(names)):
        ax.add_patch(matplotlib.patches.Rectangle((own - 0.5, own - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1]))
    ticks(ax, names, names)
    ax.set(xlabel="network of client j", ylabel="data of client i")
    fig.colorbar(image, ax=ax, label=of(metric), shrink=0.8)
    return fig


def ticks(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names where they fit; else matplotlib's own numbers, which count from 0 as clients and classes do."""
    if len(rows) <= MOST_NAMED:
        ax.set_yticks(range(len(rows)), [short(name) for name in rows])
    if len(columns) <= 20:
        long = any(len(name) > 2 for name in columns) and len(columns) > 4
        ax.set_xticks(range(len(columns)), [short(name) for name in columns], rotation=90 if long else 0)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def short(name: str, most: int = 14) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def written(ax: Axes, cells: np.ndarray, shades: np.ndarray, dark: float, text: Any) -> None:
    """Every cell's number on it, in the ink that shows."""
    for (row, column), value in np.ndenumerate(cells):
        ink = "white" if shades[row, column] > dark else INK
        if ax.images[0].get_cmap().name.endswith("_r"):
            ink = "white" if shades[row, column] < dark else INK
        ax.text(column, row, text(value), ha="center", va="center", fontsize=5.5, color=ink)


def methods(
    seeds: Mapping[str, Sequence[float]], differences: Mapping[str, Difference | None], metric: Metric
) -> Figure:
    """Every seed and their mean; beside them the difference to the first method, paired by seed, with its interval."""
    names = list(seeds)
    gaps = [differences.get(name) for name in names]
    paired = any(gap is not None for gap in gaps)
    fig = Figure(figsize=(PAGE if paired else COLUMN, 0.9 + 0.28 * len(names)))
    axes = fig.subplots(1, 2 if paired else 1, sharey=True, squeeze=False, width_ratios=(3, 2) if paired else None)[0]
    for at, name in enumerate(names):
        seeds_of(axes[0], at, metric.scale * np.asarray(seeds[name]))
    axes[0].set_yticks(range(len(names)), [short(name, 28) for name in names])
    axes[0].set_ylim(len(names) - 0.5, -0.5)  # the first on top
    better = "lower is better" if metric.lower_is_better else "higher is better"
    axes[0].set_xlabel(f"{of(metric)}, mean over clients\n({better})")
    if paired:
        draw_differences(axes[1], gaps, metric, short(names[0], 28))
    return fig


def seeds_of(ax: Axes, at: int, values: np.ndarray) -> None:
    colour = COLOURS[at % len(COLOURS)]
    ax.plot(values, np.full(len(values), at), "o", color=colour, alpha=0.4, markersize=3, markeredgewidth=0)
    if len(values):
        ax.plot(values.mean(), at, "|", color=colour, markersize=11, markeredgewidth=1.8)


def draw_differences(ax: Axes, gaps: Sequence[Difference | None], metric: Metric, first: str) -> None:
    intervals = False
    for at, gap in enumerate(gaps):
        if gap is None:
            continue
        colour = COLOURS[at % len(COLOURS)]
        if gap.low is not None and gap.high is not None:
            intervals = True
            ax.hlines(at, metric.scale * gap.low, metric.scale * gap.high, color=colour, linewidth=1.4)
        ax.plot(metric.scale * gap.mean, at, MARKERS[at % len(MARKERS)], color=colour)
    ax.axvline(0, color=INK, linewidth=0.7, linestyle=":")
    ax.set_xlabel(f"difference to {first}\n({'95 % interval' if intervals else 'one seed: no interval'})")
    ax.tick_params(left=False)
