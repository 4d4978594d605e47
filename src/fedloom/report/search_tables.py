"""The result of `fedloom search`, for the terminal and for the card of an exported network."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from fedloom.metrics.metric import Metric
from fedloom.records.searches import SearchAnswer, TunedPath
from fedloom.report.numbers import amount, figure_with, named_percents, percent
from fedloom.report.tables import plain_table

NOT_KNOWN = "balanced accuracy not known (clients scored it, or an earlier version did)"


def front_table(run: Path, answer: SearchAnswer) -> Table:
    """Return a table with one row per path of the front; a star marks the chosen path."""
    limits = []
    for unit, most in answer.limit.items():
        limits.append(f"{unit} ≤ {most:,.10g}")
    columns = ("", "MACs", "loss", "acc. %", "path")
    table = plain_table(f"{run}: {', '.join(limits)}", caption(answer), columns)
    for number, point in enumerate(answer.front, start=1):
        mark = f"{number}"
        if point.path == answer.path:
            mark = f"{number} *"
        accuracy = figure_with(percent(point.accuracy), [point.balanced_accuracy, point.auc])
        figures = [amount(point.macs), f"{point.loss:.4f}", accuracy]
        table.add_row(mark, *figures, " ".join(point.path))
    return table


def caption(answer: SearchAnswer) -> str:
    scored_before = f"{answer.from_scores} paths within the limit had a score"
    counts = f"{scored_before}, {answer.scored} were scored now"
    if answer.data is not None:
        counts = f"{counts}, on {answer.data.samples:,} samples of {answer.data.name}"
    names = []
    if any(point.balanced_accuracy is not None for point in answer.front):
        names.append("balanced accuracy")
    if any(point.auc is not None for point in answer.front):
        names.append("AUC")
    if not names:
        return f"{counts}."
    return f"{counts}. In parentheses: {' and '.join(names)}."


def score_in_words(answer: SearchAnswer, metric: Metric) -> str:
    """Write the path's figures with the supernet's weights."""
    parts = [f"loss {answer.loss:.4f}", f"accuracy {percent(answer.accuracy)} %"]
    if metric.counts_answers:
        beside = {"balanced_accuracy": answer.balanced_accuracy, "auc": answer.auc}
        parts += named_percents(beside) or [NOT_KNOWN]
    return ", ".join(parts)


def tuned_in_words(tuned: TunedPath, metric: Metric) -> str:
    """Write the path's figures after tuning, mean over all clients."""
    mean = f"{metric.title} {metric.text(tuned.figures.mean)}{metric.unit}"
    beside = {"balanced_accuracy": tuned.balanced_accuracy, "auc": tuned.auc}
    figures = ", ".join([mean, *named_percents(beside)])
    rounds = f"after {tuned.rounds} rounds of {tuned.clients} clients"
    return f"{rounds}, mean over all clients: {figures}"
