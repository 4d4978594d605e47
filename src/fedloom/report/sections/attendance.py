"""Which clients took part in which round, whose replies were lost and why, and the waste."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedloom.federation.server.availability import Schedule
from fedloom.records.rows import Span
from fedloom.report.attendance import Lost, schedule_by
from fedloom.report.figures.strip import Outcome, Strip
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import amount
from fedloom.report.parts import Tile, figure, section, table, tiles
from fedloom.report.story import Story

MOST_ROUNDS = 80  # that are drawn: the last ones
MOST_CLIENTS = 100  # that are drawn: those lost most often
WHY = "latest reason"
MEANINGS: Mapping[Outcome, str] = {
    "took part": "took part: its reply was used",
    "left": "left during its work",
    "late": "came too late",
    "refused": "its reply was refused",
    "absent": "absent when the round began",
}


@dataclass
class Record:
    """In how many rounds a client had each outcome, and what its lost work wasted."""

    took_part: int = 0
    left: int = 0
    late: int = 0
    refused: int = 0
    wasted_bytes: int = 0
    wasted_macs: int = 0
    last_reason: str = ""

    @property
    def lost(self) -> int:
        return self.left + self.late + self.refused

    @property
    def rounds_asked(self) -> int:
        return self.took_part + self.lost

    def add(self, lost: Lost | None) -> None:
        """Count one more round in which the client was asked; None: its reply was used."""
        if lost is None:
            self.took_part += 1
            return
        if lost.outcome == "left":
            self.left += 1
        elif lost.outcome == "late":
            self.late += 1
        else:
            self.refused += 1
        self.wasted_bytes += lost.wasted_bytes
        self.wasted_macs += lost.wasted_macs
        self.last_reason = lost.reason


def attendance(story: Story) -> Safe:
    heading = "Who took part"
    records = records_of(story)
    rounds = len(story.attendance)
    if all(record.took_part == rounds for record in records.values()):
        return section("attendance", heading)
    return section("attendance", heading, sums(story, records), strip(story, records))


def records_of(story: Story) -> dict[int, Record]:
    """Return the records by client, of all clients in the split and all that were asked."""
    records: dict[int, Record] = {}
    for client in range(len(story.samples)):
        records[client] = Record()
    for attended in story.attendance:
        for client in {*attended.asked_clients, *attended.lost}:
            records.setdefault(client, Record()).add(attended.lost.get(client))
    return dict(sorted(records.items()))


def sums(story: Story, records: Mapping[int, Record]) -> Safe:
    """Return the tiles. The waste is the clock's sum, which includes that of aggregators."""
    totals = story.rows[-1].totals
    whole = Record()
    for record in records.values():
        whole.took_part += record.took_part
        whole.left += record.left
        whole.late += record.late
        whole.refused += record.refused
    asked = whole.rounds_asked
    shown = [
        Tile("asked", f"{asked:,}", "clients, added up over the rounds"),
        Tile("took part", f"{whole.took_part:,}", share_text(whole.took_part, asked)),
        Tile("left", f"{whole.left:,}", share_text(whole.left, asked)),
        Tile("late", f"{whole.late:,}", share_text(whole.late, asked)),
    ]
    if whole.refused:
        shown.append(Tile("refused", f"{whole.refused:,}", "for other reasons"))
    if totals.wasted_bytes or totals.wasted_macs:
        wasted = f"and {amount(totals.wasted_macs)}MACs"
        shown.append(Tile("wasted", f"{amount(totals.wasted_bytes)}B", wasted))
    if totals.replaced:
        shown.append(Tile("replaced", f"{totals.replaced:,}", "aggregators that were gone"))
    return tiles(*shown)


def share_text(part: int, whole: int) -> str:
    if not whole:
        return ""
    return f"{100 * part / whole:.0f} % of them"


def strip(story: Story, records: Mapping[int, Record]) -> Safe:
    """Draw one row per client and one column per round.

    Of too many clients, those that were lost most often are shown.
    """
    shown = sorted(records)
    if len(shown) > MOST_CLIENTS:
        most_lost = sorted(shown, key=lambda client: (-records[client].lost, client))
        shown = sorted(most_lost[:MOST_CLIENTS])
    schedule = schedule_by(story.config, len(story.samples))
    cells = [outcomes_of(story, client, schedule) for client in shown]
    rounds = [str(row.round) for row in story.rows[-MOST_ROUNDS:]]
    present: set[Outcome | None] = set()
    for outcomes in cells:
        present.update(outcomes)
    drawing = Strip(
        key="attendance",
        title="what became of every client in every round",
        description=f"{len(shown)} clients, {len(rounds)} rounds.",
        rows=[story.client_name(client) for client in shown],
        columns=rounds,
        cells=[outcomes[-MOST_ROUNDS:] for outcomes in cells],
        meanings=meanings_of(present),
    )
    absences = [outcomes.count("absent") for outcomes in cells]
    fallback = listing(story, shown, records, absences)
    about = caption(story, len(rounds), len(shown), len(records))
    return figure("attendance", "Clients and rounds", drawing.draw(), about, fallback)


def meanings_of(present: Collection[Outcome | None]) -> dict[Outcome, str]:
    """Return the meanings of the outcomes that occur."""
    meanings = {}
    for outcome, meaning in MEANINGS.items():
        if outcome in present:
            meanings[outcome] = meaning
    return meanings


def outcomes_of(
    story: Story,
    client: int,
    schedule: Schedule | None,
) -> list[Outcome | None]:
    """Return what became of one client in every round."""
    outcomes = []
    for row, attended in zip(story.rows, story.attendance, strict=True):
        outcome = attended.outcome(client)
        if outcome is None and is_absent(client, schedule, row.simulated):
            outcome = "absent"
        outcomes.append(outcome)
    return outcomes


def is_absent(client: int, schedule: Schedule | None, span: Span | None) -> bool:
    """Whether the client was not available when the round began."""
    if schedule is None or span is None or client >= len(schedule.of_client):
        return False
    return not schedule.is_there(client, span.begin)


def caption(story: Story, rounds: int, shown: int, clients: int) -> str:
    sentences = [
        "One row per client, one column per round; an empty cell: the client was not asked."
    ]
    if rounds < len(story.rows):
        sentences.append(f"The last {rounds} of {len(story.rows):,} rounds are shown.")
    if shown < clients:
        sentences.append(f"The {shown} of {clients:,} clients that were lost most often.")
    totals = story.rows[-1].totals
    if totals.dropped or totals.late:
        sentences.append(
            "The simulated clock decides which clients left or were late. What they had computed "
            "and the bytes of the lost hop are wasted, but still count as spent."
        )
    if totals.replaced:
        sentences.append("What members sent twice because an aggregator was gone is wasted too.")
    sentences.append("The table has every client's sums and the latest reason for a loss.")
    return " ".join(sentences)


def listing(
    story: Story,
    shown: Sequence[int],
    records: Mapping[int, Record],
    absences: Sequence[int],
) -> Safe:
    rows: list[list[Child]] = []
    for client, absent_rounds in zip(shown, absences, strict=True):
        record = records[client]
        counts = [record.rounds_asked, record.took_part, record.left, record.late, record.refused]
        wasted = [wasted_text(record.wasted_bytes, "B"), wasted_text(record.wasted_macs, "")]
        cells = [*map(str, counts), str(absent_rounds), *wasted, record.last_reason or "–"]
        rows.append([story.client_name(client), *cells])
    head = ["client", "asked", "took part", "left", "late", "refused", "absent"]
    head += ["wasted bytes", "wasted MACs", WHY]
    return table(head, rows, words=(WHY,), label="who took part")


def wasted_text(wasted: int, unit: str) -> str:
    if not wasted:
        return "–"
    return f"{amount(wasted)}{unit}"
