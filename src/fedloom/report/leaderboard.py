"""What `fedloom auto` found, for the terminal: the leaderboard, its decisions, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedloom.metrics.metric import Metric
from fedloom.records.auto import AutoResult, LeaderboardRow
from fedloom.records.decision import Decision
from fedloom.report.tables import amount, plain_table
from fedloom.types import Json

ABOUT = (
    "From best to last by validation, on a part of each client's samples that no contestant "
    "trained on; test figures decide nothing. In brackets: 95 % intervals over clients (Student's "
    "t); vs control: each client with itself."
)
MOST_LISTED = 8  # figures of a series; of a longer one its ends are shown
ENDS = 3
COUNTS = "Counts are of validation samples: sums over clients, or means."


def leaderboard_table(found: AutoResult, metric: Metric, about: str) -> Table:
    """A line a contestant, the winner in bold."""
    columns = [
        "method",
        "valid.",
        f"test{metric.unit}",
        "vs control",
        "worst",
        "pooled",
        "MACs\nparams",
        "trained\nbytes",
    ]
    table = plain_table(about, f"{ABOUT} MACs are of one sample.{of_mixed(found, metric)}", columns)
    for row in found.leaderboard:
        style = "bold" if row.chosen else None
        table.add_row(*leaderboard_cells(row, metric), style=style)
    return table


def leaderboard_cells(row: LeaderboardRow, metric: Metric) -> list[str]:
    name = row.name.replace(",", ",\n  ")
    if row.chosen:
        name = f"{name}\n  (use this)"
    if row.fits is False:
        name = f"{name}\n  (over the limit)"
    return [
        name,
        metric.text(row.validation),
        f"{metric.text(row.test.mean)}\n{interval_text(row.test.interval, metric)}",
        to_control_text(row, metric),
        metric.text(row.test.worst),
        metric.text(row.test.pooled),
        f"{amount(row.macs)}\n{amount(row.params)}",
        f"{amount(row.training_macs)}\n{amount(row.bytes)}B",
    ]


def interval_text(interval: Sequence[float] | None, metric: Metric, sign: str = "") -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"[{metric.text(low, sign)}, {metric.text(high, sign)}]"


def to_control_text(row: LeaderboardRow, metric: Metric) -> str:
    if row.to_control is None:
        return ""
    mean = metric.text(row.to_control.mean, "+")
    return f"{mean}\n{interval_text(row.to_control.interval, metric, '+')}"


def of_mixed(found: AutoResult, metric: Metric) -> str:
    """What clients come to that use another contestant's model than the common one."""
    if found.mixed is None:
        return ""
    number = len(found.others)
    whom = "1 client has" if number == 1 else f"{number} clients have"
    figure = f"{metric.text(found.mixed.mean)}{metric.unit}"
    return (
        f" {whom} another model, by validation samples right only by one of the two: "
        f"with each client's own choice the mean test figure is {figure}."
    )


def decisions_table(decisions: Sequence[Decision]) -> Table:
    table = plain_table("what was decided", COUNTS, [])
    table.add_column("decision", overflow="fold")
    table.add_column("chosen", overflow="fold")
    table.add_column("counts", overflow="fold")
    for decision in decisions:
        table.add_row(decision.decision, decision.chosen, "\n".join(count_lines(decision.counts)))
    return table


def count_lines(counts: Json) -> list[str]:
    """A line an option."""
    if isinstance(counts, dict):
        return [f"{name}: {count_text(value)}" for name, value in counts.items()]
    if isinstance(counts, list):
        return [count_text(value) for value in counts]
    return [count_text(counts)]


def count_text(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count_text(part)}" for name, part in value.items())
    if isinstance(value, list) and len(value) > MOST_LISTED:
        first = ", ".join(map(count_text, value[:ENDS]))
        last = ", ".join(map(count_text, value[-ENDS:]))
        return f"{first}, … {last} ({len(value)} of them)"
    if isinstance(value, list):
        return ", ".join(map(count_text, value))
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def next_steps(folder: Path, winner: Path, found: AutoResult) -> list[str]:
    """Where the report is, and how to use the model."""
    lines = [f"report: {folder / 'report.html'}", "use this model:"]
    lines += [f"  {command}" for command in use_commands(winner, found)]
    return lines


def use_commands(winner: Path, found: AutoResult) -> list[str]:
    """To export the winner's model and to ask it, of client 0; then those of other contestants."""
    run = shlex.quote(str(winner))
    client = 0
    for choice in found.clients:
        if choice.chosen == found.winner.name:
            client = choice.client
            break
    commands = [
        f"fedloom export {run} --client {client} --format onnx",
        f"fedloom predict {run} --client {client} --data NEW",
    ]
    folders = {row.name: Path(path) for row, path in zip(found.methods, found.runs, strict=True)}
    for choice in found.others:
        other = shlex.quote(str(winner.parent / folders[choice.chosen].name))
        commands.append(f"fedloom export {other} --client {choice.client} --format onnx")
    return commands
