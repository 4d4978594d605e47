"""The terminal's table of what methods spent until they reached a target."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fedloom.records.comparison import MethodRow
from fedloom.report.numbers import amount, duration
from fedloom.report.tables import plain_table

COLUMNS = ("method", "simulated", "WAN", "LAN", "MACs", "rounds")


def targets_of_methods(methods: Sequence[MethodRow], target: float) -> Table:
    metric = methods[0].judged_by
    title = f"to {metric.title} {metric.text(target)}{metric.unit} on validation data"
    caption = (
        "What had been spent when the mean validation figure over clients first reached the "
        "target, mean over seeds. Time is simulated from counted MACs, bytes and the table of "
        "devices."
    )
    table = plain_table(title, caption, COLUMNS)
    for row in methods:
        table.add_row(row.name, *cells(row))
    return table


def cells(row: MethodRow) -> list[str]:
    reached = row.target
    if reached is None:
        by_whom = ""
        if row.target_reached:
            by_whom = f" by {row.runs - row.target_reached} of {row.runs} runs"
        return [f"not reached{by_whom}", "–", "–", "–", "–"]
    return [
        duration(reached.seconds),
        f"{amount(reached.wan)}B",
        f"{amount(reached.bytes - reached.wan)}B",
        amount(reached.macs),
        f"{reached.rounds:g}",
    ]
