"""The result of `fedloom auto` for the terminal: leaderboard, decisions, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedloom.metrics.metric import Metric
from fedloom.records.auto import AutoResult, LeaderboardRow
from fedloom.records.decision import Decision
from fedloom.report.numbers import amount
from fedloom.report.tables import plain_table
from fedloom.types import Json

ABOUT = (
    "Sorted from best to worst by validation, on a part of each client's samples that no "
    "contestant trained on; test figures decide nothing. In brackets: 95 % intervals over clients "
    "(Student's t); vs control: paired by client."
)
WIDEST_NAME = 20  # characters of a name in one line; the other columns need 60 of 80
MOST_LISTED = 8  # values of a list that are written out; of a longer list, only both ends are
ENDS = 3  # values at each end
COUNTS = "Counts are of validation samples: sums over clients, or means."


def leaderboard_table(result: AutoResult, metric: Metric, title: str) -> Table:
    """Return a table with one row per contestant, the winner in bold."""
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
    caption = f"{ABOUT} MACs are per sample.{mixed_sentence(result, metric)}"
    table = plain_table(title, caption, columns)
    names = []
    for row in result.leaderboard:
        style = None
        if row.chosen:
            style = "bold"
        name, *figures = leaderboard_cells(row, metric)
        table.add_row(name, *figures, style=style)
        names += name.splitlines()
    # The width is given, not only the least one. Otherwise rich shrinks the names before it breaks
    # an interval, then gives them their least width back and cuts off the last columns.
    table.columns[0].width = min(WIDEST_NAME, max(map(len, names)))
    for column in table.columns[2:4]:  # intervals break at their comma, names do not break
        column.no_wrap = False
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


def mixed_sentence(result: AutoResult, metric: Metric) -> str:
    """Write the mean figure if some clients use another contestant's model than the winner's."""
    if result.mixed is None:
        return ""
    number = len(result.clients_with_another_model)
    clients_use = f"{number} clients use"
    if number == 1:
        clients_use = "1 client uses"
    figure = f"{metric.text(result.mixed.mean)}{metric.unit}"
    return (
        f" {clients_use} another contestant's model, decided by the validation samples that only "
        "one of the two models classifies correctly: with each client's own choice the mean test "
        f"figure is {figure}."
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
    """Write a decision's counts, one line per option."""
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


def next_steps(folder: Path, winner: Path, result: AutoResult) -> list[str]:
    """Say where the report is, and how to use the model."""
    lines = [f"report: {folder / 'report.html'}", "use this model:"]
    lines += [f"  {command}" for command in use_commands(winner, result)]
    return lines


def use_commands(winner: Path, result: AutoResult) -> list[str]:
    """Return the commands that export the winner's model and predict with it.

    They use the first client that has the winner's model. An export for each client with another
    contestant's model follows.
    """
    run = shlex.quote(str(winner))
    client = 0
    for choice in result.clients:
        if choice.chosen == result.winner.name:
            client = choice.client
            break
    commands = [
        f"fedloom export {run} --client {client} --format onnx",
        f"fedloom predict {run} --client {client} --data NEW",
    ]
    folder_names = {}
    for row, path in zip(result.methods, result.runs, strict=True):
        folder_names[row.name] = Path(path).name
    for choice in result.clients_with_another_model:
        other_run = shlex.quote(str(winner.parent / folder_names[choice.chosen]))
        commands.append(f"fedloom export {other_run} --client {choice.client} --format onnx")
    return commands
