"""The section on the search.

It shows when slots were decided and what each client gains from its own architecture; for tiers
of devices, what was scored and which operations were trained.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedloom.evaluate.summary import without_none
from fedloom.records.decision import NotedDecision, decisions_in
from fedloom.records.gain import GainMatrix
from fedloom.records.result import RunResult
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import percent
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.fronts import fronts, operations, scoring
from fedloom.report.sections.subspaces import allotment, final_group
from fedloom.report.story import Story

Matrix = list[list[float | None]]
PALE = "a pale cell is no better than always giving the same answer"
MOST_COLUMNS = 40  # rounds, or spans of them
MOST_LISTED = 2000  # decisions in the table


def search(story: Story) -> Safe:
    of_clients = (decisions_figure(story), gain(story), balanced_gain(story), auc_gain(story))
    figures = grid(*of_clients, *fronts(story), operations(story))
    group = final_group(story)
    return section("search", "The search", scoring(story), group, allotment(story), figures)


@dataclass(frozen=True)
class Observation:
    """A decision of one client, as the observer of a simulation saw it."""

    round: int
    client: int
    decision: NotedDecision

    @property
    def slot(self) -> str:
        return self.decision.slot


def decisions_figure(story: Story) -> Safe | None:
    """Draw slots × rounds: at how many clients each slot was decided in each round.

    A slot that is pruned later is decided twice.
    """
    observations = list(observations_in(story))
    if not observations:
        return None
    clients = {observation.client for observation in observations}
    about = (
        f"At how many of {len(clients)} clients a slot was decided in a round. In a federation "
        "a client keeps this to itself; here the simulation's observer noted it."
    )
    observations.sort(key=lambda observation: (observation.client, observation.round))
    rows: list[list[Child]] = []
    for observation in observations[:MOST_LISTED]:
        client_name = story.client_name(observation.client)
        operations = " + ".join(observation.decision.kept) or "nothing: the slot is removed"
        rows.append([client_name, str(observation.round), observation.slot, operations])
    head = ["client", "round", "slot", "kept"]
    fallback = table(head, rows, words=("slot", "kept"), label="decisions")
    drawing = over_rounds(observations).draw()
    return figure("decided", "When slots were decided", drawing, about, fallback)


def observations_in(story: Story) -> Iterator[Observation]:
    for row in story.rows:
        for client, facts in row.observed.items():
            for decision in decisions_in(facts):
                yield Observation(row.round, client, decision)


def over_rounds(observations: Sequence[Observation]) -> Heat:
    """Return a heat map with one column per round, or per span of rounds if there are many."""
    rounds = [observation.round for observation in observations]
    first = min(rounds)
    last = max(rounds)
    span = math.ceil((last - first + 1) / MOST_COLUMNS)
    columns = []
    for begin in range(first, last + 1, span):
        columns.append(span_name(begin, span))
    counts: Counter[tuple[str, int]] = Counter()  # by slot and column
    for observation in observations:
        column = (observation.round - first) // span
        counts[observation.slot, column] += 1
    most = max(counts.values())
    slots = sorted({observation.slot for observation in observations}, key=slot_order)
    shares: list[list[float | None]] = []
    texts = []
    for slot in slots:
        slot_shares: list[float | None] = []
        slot_texts = []
        for column in range(len(columns)):
            count = counts[slot, column]
            slot_shares.append(count / most)
            slot_texts.append(str(count or ""))
        shares.append(slot_shares)
        texts.append(slot_texts)
    return Heat(
        key="decided",
        title="slots decided over the rounds",
        description=f"Rounds {first} to {last}.",
        rows=slots,
        columns=columns,
        shares=shares,
        texts=texts,
        row_name="slot",
        column_name="round",
    )


def span_name(begin: int, rounds: int) -> str:
    if rounds == 1:
        return str(begin)
    return f"{begin}–{begin + rounds - 1}"


def slot_order(slot: str) -> tuple[str, list[int], str]:
    """Sort slots by the node they lead to, so that `normal.0-2` comes before `normal.0-10`."""
    cell, _, edge = slot.rpartition(".")
    nodes = []
    for part in edge.split("-"):
        if part.isdecimal():
            nodes.append(int(part))
    nodes.reverse()
    return cell, nodes, slot


def gain(story: Story) -> Safe | None:
    """Draw the matrix p_ij, if `fedloom gain` has measured it."""
    measured = story.gain
    if measured is None:
        return None
    rows: list[list[Child]] = []
    for number, client in enumerate(measured.clients):
        cells = [story.metric.text(value) for value in measured.matrix[number]]
        own_gain = gain_text(story, measured.gains[number])
        rows.append([story.client_name(client), *cells, own_gain])
    architectures = [f"architecture of {client}" for client in measured.clients]
    fallback = table(["data of", *architectures, "gain"], rows, label="gain matrix")
    heading = "Does an architecture fit its own client best?"
    drawing = matrix(story, measured).draw()
    return figure("gain", heading, drawing, gain_caption(story, measured), fallback)


def balanced_gain(story: Story) -> Safe | None:
    """Draw the same networks by balanced accuracy, if it was measured."""
    if story.gain is None or story.gain.balanced_accuracy is None:
        return None
    return gain_beside(
        story,
        story.gain,
        "gain-balanced",
        "balanced accuracy",
        story.gain.balanced_accuracy,
        shades_above_chance(story.gain.balanced_accuracy, story.result),
    )


def auc_gain(story: Story) -> Safe | None:
    """Draw the same networks by AUC, if there are two classes."""
    if story.gain is None or story.gain.auc is None:
        return None
    shares = shades_above_half(story.gain.auc)
    return gain_beside(story, story.gain, "gain-auc", "AUC", story.gain.auc, shares)


def gain_beside(
    story: Story, measured: GainMatrix, key: str, name: str, figures: Matrix, shares: Matrix
) -> Safe:
    """Draw the matrix of the same networks by a figure other than the metric."""
    names = [story.client_name(client) for client in measured.clients]
    columns = [str(client) for client in measured.clients]
    texts = []
    cells: list[list[Child]] = []
    for client_name, row in zip(names, figures, strict=True):
        row_texts = list(map(percent, row))
        texts.append(row_texts)
        cells.append([client_name, *row_texts])
    heading = f"The same networks by {name}"
    drawing = Heat(
        key=key,
        title=f"{name} of client j's architecture on client i's data",
        description="Every class counts the same.",
        rows=names,
        columns=columns,
        shares=shares,
        texts=texts,
        row_name="data of",
        column_name="architecture of",
        framed=lambda row, column: row == column,
    )
    architectures = [f"architecture of {client}" for client in measured.clients]
    fallback = table(["data of", *architectures], cells, label=heading)
    caption = f"In percent, every class counts the same; {PALE}. Framed: a client's own network."
    return figure(key, heading, drawing.draw(), caption, fallback)


def gain_caption(story: Story, measured: GainMatrix) -> str:
    metric = story.metric
    start = "fresh weights"
    if measured.start == "inherit":
        start = "its weights"
    return (
        f"{metric.heading}{metric.unit} of client j's network on client i's test data, "
        f"from {start}, after {measured.epochs} epochs on i's training data. Framed: a client's "
        "own network. Gain (Eq. 6 of SPIDER), how far a client's own network is ahead of the "
        f"others': {gain_text(story, measured.gain)} on average. One seed: no interval."
    )


def gain_text(story: Story, value: float | None) -> str:
    if value is None:
        return "–"
    return story.metric.text(value, "+") + story.metric.unit


def matrix(story: Story, measured: GainMatrix) -> Heat:
    metric = story.metric
    return Heat(
        key="gain",
        title="client j's architecture on client i's data",
        description=f"Mean gain {gain_text(story, measured.gain)}.",
        rows=[story.client_name(client) for client in measured.clients],
        columns=[str(client) for client in measured.clients],
        shares=shades(measured.matrix, metric.lower_is_better),
        texts=[list(map(metric.text, figures)) for figures in measured.matrix],
        row_name="data of",
        column_name="architecture of",
        framed=lambda row, column: row == column,
    )


def shades(
    matrix: Sequence[Sequence[float | None]],
    lower_is_better: bool,
) -> list[list[float | None]]:
    """Return shades from nearly 0, the worst figure, to 1; None where there is no figure."""
    values: list[float] = []
    for figures in matrix:
        values += without_none(figures)
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    return shades_between(low, high, matrix, lower_is_better=lower_is_better)


def shades_above_chance(matrix: Matrix, result: RunResult | None) -> Matrix:
    """Return shades of balanced accuracies: a constant answer is pale, a perfect one dark."""
    classes = None
    if result is not None:
        classes = result.number_of_classes
    chance = 1 / (classes or 2)  # 2: the fewest
    return shades_between(chance, 1.0, matrix)


def shades_above_half(matrix: Matrix) -> Matrix:
    """Return shades of AUCs: a constant answer, whose AUC is one half, is pale."""
    return shades_between(0.5, 1.0, matrix)


def shades_between(
    low: float,
    high: float,
    matrix: Sequence[Sequence[float | None]],
    *,
    lower_is_better: bool = False,
) -> Matrix:
    rows: Matrix = []
    for figures in matrix:
        rows.append([shade(figure, low, high, lower_is_better) for figure in figures])
    return rows


def shade(figure: float | None, low: float, high: float, lower_is_better: bool) -> float | None:
    if figure is None:
        return None
    place = 1.0
    if high != low:
        place = (figure - low) / (high - low)
    if lower_is_better:
        place = 1 - place
    return max(0.02, place)
