"""What a search adds: when which slot was decided, and what each client's own architecture is worth to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.records.gain import GainMatrix
from fedloom.report.figures.heat import Heat
from fedloom.report.html import Child, Safe
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.story import Story
from fedloom.types import Json

MOST_COLUMNS = 40  # rounds, or spans of them
MOST_LISTED = 2000  # decisions in the table


@dataclass(frozen=True)
class Decision:
    """What one client kept of an edge."""

    round: int
    client: int
    slot: str
    kept: tuple[str, ...]  # operations; none: the edge is gone


def search(story: Story) -> Safe:
    return section("search", "The search", grid(decided(story), gain(story)))


def decisions(story: Story) -> list[Decision]:
    """As the observer of a simulation noted them."""
    noted = []
    for row in story.rows:
        for client, facts in row.observed.items():
            for decision in decisions_in(facts):
                noted.append(Decision(row.round, client, decision["slot"], tuple(decision["kept"])))
    return noted


def decisions_in(facts: Json) -> list[Json]:
    """What a method's observer noted is its own affair; only what looks like a decision is shown."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("decisions"), list):
        return []
    return [noted for noted in facts["decisions"] if is_decision(noted)]


def is_decision(noted: Json) -> bool:
    if not isinstance(noted, Mapping) or not isinstance(noted.get("slot"), str):
        return False
    kept = noted.get("kept")
    return isinstance(kept, list) and all(isinstance(op, str) for op in kept)


def decided(story: Story) -> Safe | None:
    """Slots × rounds: at how many clients each was decided when; pruning decides a slot once more."""
    made = decisions(story)
    if not made:
        return None
    clients = {decision.client for decision in made}
    about = (
        f"At how many of {len(clients)} clients a slot was decided in a round. In a "
        "federation a client keeps this to itself; here the simulation's observer noted it."
    )
    rows: list[list[Child]] = []
    for decision in sorted(made, key=lambda decision: (decision.client, decision.round))[:MOST_LISTED]:
        kept = " + ".join(decision.kept) or "nothing: it is gone"
        rows.append([story.called(decision.client), str(decision.round), decision.slot, kept])
    fallback = table(["client", "round", "slot", "kept"], rows, words=("slot", "kept"), label="decisions")
    return figure("decided", "When slots were decided", counted(made).draw(), about, fallback)


def counted(made: Sequence[Decision]) -> Heat:
    """A column a round, or a span of rounds where there are many."""
    slots = sorted({decision.slot for decision in made}, key=slot_order)
    first = min(decision.round for decision in made)
    last = max(decision.round for decision in made)
    span = -(-(last - first + 1) // MOST_COLUMNS)
    begins = list(range(first, last + 1, span))
    counts = Counter((decision.slot, (decision.round - first) // span) for decision in made)
    most = max(counts.values())
    columns = [str(begin) if span == 1 else f"{begin}–{begin + span - 1}" for begin in begins]
    shares: list[list[float | None]] = []
    texts = []
    for slot in slots:
        row = [counts[slot, number] for number in range(len(begins))]
        shares.append([count / most for count in row])
        texts.append([str(count or "") for count in row])
    return Heat(
        "decided", "slots decided over the rounds", f"Rounds {first} to {last}.", slots, columns, shares, texts,
        "slot", "round",
    )  # fmt: skip


def slot_order(slot: str) -> tuple[str, list[int], str]:
    """`normal.0-2` before `normal.0-10`, by the node they lead to."""
    cell, _, edge = slot.rpartition(".")
    ends = [int(part) for part in edge.split("-") if part.isdecimal()]
    return cell, ends[::-1], slot


def gain(story: Story) -> Safe | None:
    """The matrix p_ij, if `fedloom gain` was asked for it."""
    measured = story.gain
    if measured is None:
        return None
    metric = story.metric
    start = "its weights" if measured.start == "inherit" else "fresh weights"
    about = (
        f"{metric.name.capitalize()}{metric.unit} of client j's network on client i's test data, from {start}, after "
        f"{measured.epochs} epochs on i's training data. Framed: its own. Gain (Eq. 6 of SPIDER), how far the own is "
        f"ahead of the others': {text(story, measured.gain)} on average. One seed: no interval."
    )
    rows: list[list[Child]] = []
    for client, figures, own_gain in zip(measured.clients, measured.matrix, measured.gains, strict=True):
        cells = [metric.text(figure) for figure in figures]
        rows.append([story.called(client), *cells, text(story, own_gain)])
    head = ["data of", *(f"architecture of {client}" for client in measured.clients), "gain"]
    fallback = table(head, rows, label="gain matrix")
    drawn = matrix(story, measured).draw()
    return figure("gain", "Does an architecture fit its own client best?", drawn, about, fallback)


def matrix(story: Story, measured: GainMatrix) -> Heat:
    metric = story.metric
    known = [figure for figures in measured.matrix for figure in figures if figure is not None]
    low = min(known, default=0.0)
    high = max(known, default=1.0)
    shades: list[list[float | None]] = []
    for figures in measured.matrix:
        shades.append([shade(figure, low, high, metric.lower_is_better) for figure in figures])
    return Heat(
        "gain", "client j's architecture on client i's data", f"Mean gain {text(story, measured.gain)}.",
        [story.called(client) for client in measured.clients], [str(client) for client in measured.clients],
        shades, [[metric.text(figure) for figure in figures] for figures in measured.matrix],
        "data of", "architecture of", framed=lambda row, column: row == column,
    )  # fmt: skip


def shade(figure: float | None, low: float, high: float, lower_is_better: bool) -> float | None:
    """From 0, the worst of all, to 1; None: there is no figure."""
    if figure is None:
        return None
    place = 1.0 if high == low else (figure - low) / (high - low)
    return max(0.02, 1 - place if lower_is_better else place)


def text(story: Story, value: float | None) -> str:
    return "–" if value is None else story.metric.text(value, "+") + story.metric.unit
