"""How numbers are written in tables and sentences, and how figures are called there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import Metric

# Figures that are shown beside the metric: as a column's heading, as an explanation below a table
# (EXPLAINED), and as a name in a sentence (NAMED).
SHORT = {"balanced_accuracy": "bal.", "auc": "AUC", "accuracy": "acc. %", "mae": "MAE"}
EXPLAINED = {
    "balanced_accuracy": "balanced accuracy, in which every class counts the same",
    "auc": "area under the ROC curve, in percent",
    "mae": "mean absolute error, in the label's own units",
}
NAMED = {
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "accuracy": "accuracy",
    "mae": "MAE",
}
BY_FORMULA = "by formula"  # the network's MACs times samples, where sites do not report MACs
UNITS = {1e12: " T", 1e9: " G", 1e6: " M", 1e3: " k"}


def percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}"


def amount(value: float | None) -> str:
    """Write a count with a unit prefix: 1234567 → 1.23 M."""
    if value is None:
        return "–"
    for size, unit in UNITS.items():
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}"


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: `1 round`, `2 rounds`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Sent(Protocol):
    """Bytes that were sent, in a whole run or in the rounds so far."""

    @property
    def down(self) -> int: ...
    @property
    def up(self) -> int: ...
    @property
    def lan_down(self) -> int: ...
    @property
    def lan_up(self) -> int: ...


def both_ways(sent: Sent) -> str:
    """Write the bytes sent to clients and to the server.

    In a clustered topology, bytes that stayed inside clusters are added.
    """
    text = f"{amount(sent.down)}B down, {amount(sent.up)}B up"
    inside = sent.lan_down + sent.lan_up
    if inside:
        text += f", {amount(inside)}B inside clusters"
    return text


def direction(metric: Metric) -> str:
    """Return " (lower is better)" where that holds, else ""."""
    if not metric.lower_is_better:
        return ""
    return " (lower is better)"


def named_figures(figures: Mapping[str, float | None]) -> list[str]:
    """Return `balanced accuracy 85.1` for each figure that is known."""
    parts = []
    for name, figure in figures.items():
        if figure is not None:
            parts.append(f"{NAMED[name]} {percent(figure)}")
    return parts


def named_percents(figures: Mapping[str, float | None]) -> list[str]:
    """Return `balanced accuracy 85.1 %` for each figure that is known."""
    return [f"{text} %" for text in named_figures(figures)]


def percents(figures: Mapping[str, float | None], names: Iterable[str]) -> list[str]:
    """Write the figures with these names; one that is not known is a dash."""
    return [percent(figures.get(name)) for name in names]


def figure_with(figure: str, beside: Sequence[float | None]) -> str:
    """Append figures in which every class counts the same, in parentheses."""
    return in_parentheses(figure, list(map(percent, without_none(beside))))


def in_parentheses(figure: str, beside: Sequence[str], between: str = " ") -> str:
    """Append figures to another one, as in `81.0 (75.2, 88.1)`."""
    if not beside:
        return figure
    list_of_figures = f",{between}".join(beside)
    return f"{figure}{between}({list_of_figures})"
