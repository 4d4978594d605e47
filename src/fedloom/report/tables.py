"""Tables of the terminal in general, and those that list runs, options and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic.fields import FieldInfo
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.metrics.metric import METRICS
from fedloom.records.folder import RunSummary
from fedloom.report.numbers import amount, percent

WORDS = ("method", "architecture", "run", "operation")  # columns that hold words


def plain_table(title: str, caption: str, columns: Sequence[str]) -> Table:
    """Return an empty table without frames, because it must fit into 80 columns."""
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for name in columns:
        if name == "method":
            table.add_column(name, overflow="fold", min_width=12)
        elif name in WORDS:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True, overflow="fold")
    return table


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """Return a table of the folders of runs and comparisons."""
    caption = ""
    if not runs:
        caption = "none yet"
    columns = ["run", "state", "rounds", "result", "bal.", "on disk"]
    has_auc = any(run.auc is not None for run in runs)
    if has_auc:
        columns.insert(-1, "AUC")
    table = plain_table("", caption, columns)
    for run in runs:
        result = "–"
        if run.metric is not None:
            metric = METRICS[run.metric]
            result = f"{metric.title} {metric.text(run.mean)}{metric.unit}"
        rounds = str(run.rounds or "")
        beside = [percent(run.balanced_accuracy)]
        if has_auc:
            beside.append(percent(run.auc))
        on_disk = f"{amount(run.bytes)}B"
        table.add_row(run.run, state_of(run), rounds, result, *beside, on_disk)
    return table


def state_of(run: RunSummary) -> str:
    if run.kind == "run":
        return run.state
    if run.kind == "compare":
        return f"{run.state} comparison"
    return "damaged"


def options_table(fields: Mapping[str, FieldInfo]) -> Table:
    """Return a table of a method's options and those of its search space, with their defaults."""
    table = frameless_table()
    for name, field in fields.items():
        option = f"--{name.replace('_', '-')}"
        table.add_row(option, default_of(field), field.description or "")
    return table


def default_of(field: FieldInfo) -> str:
    value = ""
    if field.default is not None:
        value = str(field.default)
    choices = get_args(field.annotation)
    if not choices or not all(isinstance(choice, str) for choice in choices):
        return value
    return f"{value} ({'|'.join(choices)})"


def names_table(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and their explanations."""
    table = frameless_table()
    for name, about in rows:
        table.add_row(name, about)
    return table


def frameless_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), show_header=False)
