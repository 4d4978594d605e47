"""The sections of `fedloom auto`: the leaderboard, how to use the model, and the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedloom.metrics.metric import Metric
from fedloom.records.auto import AutoResult, LeaderboardRow
from fedloom.report.figures.intervals import Intervals, Item
from fedloom.report.groups import Versus
from fedloom.report.html import Child, Safe, joined, tag
from fedloom.report.leaderboard import (
    ABOUT,
    COUNTS,
    count_lines,
    interval_text,
    mixed_sentence,
    use_commands,
)
from fedloom.report.numbers import amount, percent
from fedloom.report.parts import code, figure, grid, note, scrollable, section, table

WORDS = ("chosen", "counts")  # columns of words
UNBOUNDED = (float("-inf"), float("inf"))
LINKS = {"leaderboard": "Leaderboard", "use": "Use this model", "decisions": "Decisions"}


def sections_of_auto(versus: Versus) -> dict[str, Safe]:
    """Return the sections that follow the headline; they are hidden until the contest ends."""
    return {
        "leaderboard": board(versus),
        "use": use(versus),
        "decisions": decisions(versus),
    }


def board(versus: Versus) -> Safe:
    auto_result = versus.auto_result
    if auto_result is None:
        return section("leaderboard", "Leaderboard")
    metric = versus.metric
    figures = grid(means(auto_result, metric), differences(auto_result, metric))
    small_print = note(f"{ABOUT} MACs are per sample.{mixed_sentence(auto_result, metric)}")
    return section("leaderboard", "Leaderboard", ranked(auto_result, metric), small_print, figures)


@dataclass(frozen=True)
class Cell:
    """A cell's content, and the number that its column is sorted by."""

    shown: Child
    value: float | None  # None is sorted last


def ranked(auto_result: AutoResult, metric: Metric) -> Safe:
    """Return a table that readers can sort by any column and filter; the winner is in bold."""
    heads = [
        "contestant",
        f"validation{metric.unit}",
        f"test{metric.unit}",
        "vs control",
        "worst",
        "pooled",
        "MACs",
        "params",
        "training MACs",
        "bytes",
    ]
    columns = []
    for number, name in enumerate(heads):
        kind = None
        if number > 0:  # the first column has the names of contestants
            kind = "number"
        columns.append(tag("th", name, scope="col", class_=kind))
    body = []
    for row in auto_result.leaderboard:
        cells = []
        for name, cell in zip(heads[1:], cells_of(row, metric), strict=True):
            shown = tag("span", cell.shown)
            cells.append(tag("td", shown, class_="number", data_value=cell.value, data_name=name))
        kind = None
        if row.chosen:
            kind = "best"
        body.append(tag("tr", tag("th", name_of(row), scope="row"), cells, class_=kind))
    whole = tag("table", tag("thead", tag("tr", columns)), tag("tbody", body), data_sorted=True)
    return scrollable(whole, "leaderboard")


def name_of(row: LeaderboardRow) -> Child:
    if row.chosen:
        return joined(row.name, tag("br"), tag("span", "use this", class_="pill"))
    if row.fits is False:
        return joined(row.name, tag("br"), tag("span", "over the limit", class_="pill"))
    return row.name


def cells_of(row: LeaderboardRow, metric: Metric) -> list[Cell]:
    gap = None
    gap_interval = None
    if row.to_control is not None:
        gap = row.to_control.mean
        gap_interval = row.to_control.interval
    test = row.test
    return [
        Cell(metric.text(row.validation), row.validation),
        Cell(with_interval(metric.text(test.mean), test.interval, metric), test.mean),
        Cell(with_interval(metric.text(gap, "+"), gap_interval, metric, "+"), gap),
        Cell(metric.text(test.worst), test.worst),
        Cell(metric.text(test.pooled), test.pooled),
        Cell(amount(row.macs), row.macs),
        Cell(amount(row.params), row.params),
        Cell(amount(row.training_macs), row.training_macs),
        Cell(f"{amount(row.bytes)}B", row.bytes),
    ]


def with_interval(
    figure: str,
    interval: Sequence[float] | None,
    metric: Metric,
    sign: str = "",
) -> Child:
    """Return a figure with its interval below it."""
    if interval is None:
        return figure
    return joined(figure, tag("br"), tag("small", interval_text(interval, metric, sign)))


def means(auto_result: AutoResult, metric: Metric) -> Safe:
    items = []
    for row in auto_result.leaderboard:
        if row.test.mean is not None:
            items.append(Item(row.name, row.test.mean, pair_of(row.test.interval)))
    heading = f"Test {metric.name}"
    drawing = Intervals(
        key="board",
        title=heading,
        description="One row per contestant, from best to worst by validation.",
        items=items,
        name=f"{metric.name}{metric.unit}",
        text=metric.text,
        bounds=metric.bounds,
    )
    about = "Mean over clients; lines: its 95 % interval over clients (Student's t)."
    return figure("board", heading, drawing.draw(), about)


def differences(auto_result: AutoResult, metric: Metric) -> Safe | None:
    items = []
    control = ""
    for row in auto_result.leaderboard:
        if row.to_control is None:
            control = row.name
            continue
        items.append(Item(row.name, row.to_control.mean, pair_of(row.to_control.interval)))
    if not items:
        return None
    heading = f"Difference to {control}"
    drawing = Intervals(
        key="to-control",
        title=heading,
        description="One row per contestant.",
        items=items,
        name=metric.difference_title,
        text=lambda value: metric.text(value, "+"),
        bounds=UNBOUNDED,
        holds_zero=True,
    )
    about = (
        "Paired by client, mean over clients; lines: 95 % interval. If a line contains 0, the "
        "difference may be due to chance."
    )
    return figure("to-control", heading, drawing.draw(), about)


def pair_of(interval: Sequence[float] | None) -> tuple[float, float] | None:
    if interval is None:
        return None
    low, high = interval
    return low, high


def use(versus: Versus) -> Safe:
    auto_result = versus.auto_result
    if auto_result is None or versus.path is None:
        return section("use", "Use this model")
    names = [row.name for row in auto_result.methods]
    winner = versus.path / Path(auto_result.runs[names.index(auto_result.winner.name)]).name
    commands = use_commands(winner, auto_result)
    about = note(
        "The first command exports the model of one client into a folder that needs no fedloom; "
        "the second one predicts new samples: NEW is data like those of the run, or an .npz "
        "file that holds only x. --client K chooses another client's model, --shared "
        "the shared model."
    )
    exceptions = exceptions_table(auto_result)
    return section("use", "Use this model", code("\n".join(commands)), about, exceptions)


def exceptions_table(auto_result: AutoResult) -> Safe | None:
    """Return a table of the clients for which another contestant's model is clearly better."""
    rows: list[list[Child]] = []
    for client in auto_result.clients_with_another_model:
        counts = [str(client.only_chosen), str(client.only_common), str(client.samples)]
        rows.append([f"client {client.client}", client.chosen, *counts])
    if not rows:
        return None
    head = ["client", "contestant", "only it is right", "only the winner is right", "samples"]
    return table(head, rows, label="clients with another model", words=("contestant",))


def decisions(versus: Versus) -> Safe:
    """List every decision with the counts behind it, and where the budget went."""
    auto_result = versus.auto_result
    if auto_result is None:
        return section("decisions", "Decisions")
    rows: list[list[Child]] = []
    for decision in auto_result.decisions:
        lines: list[Child] = []
        for line in count_lines(decision.counts):
            lines += [line, tag("br")]
        rows.append([decision.decision, decision.chosen, lines[:-1]])
    all_decisions = table(["decision", "chosen", "counts"], rows, label="decisions", words=WORDS)
    about = note(COUNTS)
    shares: list[list[Child]] = []
    for step, share in auto_result.spent.share.items():
        shares.append([step, f"{percent(share)} %"])
    spent = table(["step", "share of the budget"], shares, label="what was spent")
    budget = note(f"Budget: {auto_result.note}. {totals(auto_result)}")
    return section("decisions", "Decisions", all_decisions, about, spent, budget)


def totals(auto_result: AutoResult) -> str:
    spent = auto_result.spent
    return (
        f"All runs together: {amount(spent.macs)}MACs, {amount(spent.bytes)}B and "
        f"{spent.rounds} rounds of training."
    )
