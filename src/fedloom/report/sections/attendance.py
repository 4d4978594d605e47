"""Who took part in which round, who did not bring a reply and why, and what that wasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.federation.server.availability import Schedule
from fedloom.report.attendance import RoundAttendance, away_by
from fedloom.report.figures.strip import Outcome, Strip
from fedloom.report.html import Child, Safe
from fedloom.report.parts import Tile, figure, note, section, table, tiles
from fedloom.report.story import Story
from fedloom.report.tables import amount

MOST_ROUNDS = 80  # the last ones, in the drawing
MOST_CLIENTS = 100  # with a row in the drawing
MOST_LISTED = 1000  # in the table
MEANINGS: Mapping[Outcome, str] = {
    "took part": "took part: its reply was used",
    "left": "left during its work",
    "late": "came too late",
    "refused": "its reply was refused",
    "away": "away when the round began",
}


@dataclass
class Record:
    """One client over all rounds."""

    asked: int = 0  # rounds
    took_part: int = 0
    left: int = 0
    late: int = 0
    refused: int = 0
    away: int = 0
    wasted_bytes: int = 0
    wasted_macs: int = 0
    last_reason: str = ""

    @property
    def lost(self) -> int:
        return self.left + self.late + self.refused


def attendance(story: Story) -> Safe:
    heading = "Who took part"
    clients = known_clients(story)
    if not clients or not story.attendance:
        return section("attendance", heading)
    schedule = away_by(story.config, len(story.samples))
    cells = cells_of(story, clients, schedule)
    records = records_of(story.attendance, clients, cells)
    if all(record.took_part == len(story.attendance) for record in records.values()):
        return section("attendance", heading)
    return section(
        "attendance",
        heading,
        sums(story, records),
        strip(story, records, cells),
        listing(story, records),
        note(
            "Those who left or were late are so by the simulated clock. What they computed until "
            "then, and the bytes of the hop that was lost, are wasted, and are spent all the same. "
            "Traffic and time, below, has the reason of every refusal."
        ),
    )


def known_clients(story: Story) -> list[int]:
    """All of the split, and whoever was asked."""
    clients = set(range(len(story.samples)))
    for attended in story.attendance:
        clients.update(attended.asked)
        clients.update(attended.lost)
    return sorted(clients)


Cells = dict[int, list[Outcome | None]]  # by client, one a round


def cells_of(story: Story, clients: Sequence[int], schedule: Schedule | None) -> Cells:
    cells: Cells = {client: [] for client in clients}
    for row, attended in zip(story.rows, story.attendance, strict=True):
        asked = set(attended.asked)
        for client in clients:
            outcome: Outcome | None = None
            if client in attended.lost:
                outcome = attended.lost[client].outcome
            elif client in asked:
                outcome = "took part"
            elif schedule is not None and row.simulated is not None:
                if client < len(schedule.of_client):
                    there = schedule.is_there(client, row.simulated.begin)
                    outcome = None if there else "away"
            cells[client].append(outcome)
    return cells


def records_of(
    rounds: Sequence[RoundAttendance],
    clients: Sequence[int],
    cells: Cells,
) -> dict[int, Record]:
    records = {}
    for client in clients:
        outcomes = cells[client]
        record = Record(
            took_part=outcomes.count("took part"),
            left=outcomes.count("left"),
            late=outcomes.count("late"),
            refused=outcomes.count("refused"),
            away=outcomes.count("away"),
        )
        record.asked = record.took_part + record.lost
        records[client] = record
    for attended in rounds:
        for client, lost in attended.lost.items():
            record = records[client]
            record.wasted_bytes += lost.wasted_bytes
            record.wasted_macs += lost.wasted_macs
            record.last_reason = lost.reason
    return records


def sums(story: Story, records: Mapping[int, Record]) -> Safe:
    totals = story.rows[-1].totals
    asked = sum(record.asked for record in records.values())
    took_part = sum(record.took_part for record in records.values())
    left = sum(record.left for record in records.values())
    late = sum(record.late for record in records.values())
    refused = sum(record.refused for record in records.values())
    shown = [
        Tile("asked", f"{asked:,}", "clients, added up over the rounds"),
        Tile("took part", f"{took_part:,}", share_text(took_part, asked)),
        Tile("left", f"{left:,}", share_text(left, asked)),
        Tile("late", f"{late:,}", share_text(late, asked)),
    ]
    if refused:
        shown.append(Tile("refused", f"{refused:,}", "for other reasons"))
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


def strip(story: Story, records: Mapping[int, Record], cells: Cells) -> Safe:
    """A row a client, a column a round; of too many clients, those that were lost most often."""
    shown = sorted(records)
    if len(shown) > MOST_CLIENTS:
        most_lost = sorted(shown, key=lambda client: (-records[client].lost, client))
        shown = sorted(most_lost[:MOST_CLIENTS])
    rounds = [str(row.round) for row in story.rows[-MOST_ROUNDS:]]
    rows = [cells[client][-MOST_ROUNDS:] for client in shown]
    present: set[Outcome | None] = set()
    for outcomes in rows:
        present.update(outcomes)
    meanings = {outcome: text for outcome, text in MEANINGS.items() if outcome in present}
    drawing = Strip(
        key="attendance",
        title="what became of every client in every round",
        about=f"{len(shown)} clients, {len(rounds)} rounds.",
        rows=[story.called(client) for client in shown],
        columns=rounds,
        cells=rows,
        meanings=meanings,
    )
    sentences = ["A row a client, a column a round; where nothing is drawn it was not asked."]
    if len(rounds) < len(story.rows):
        sentences.append(f"The last {len(rounds)} of {len(story.rows):,} rounds.")
    if len(shown) < len(records):
        sentences.append(f"The {len(shown)} of {len(records):,} clients that were lost most often.")
    return figure("attendance", "Clients and rounds", drawing.draw(), " ".join(sentences))


def listing(story: Story, records: Mapping[int, Record]) -> Safe:
    has_away = any(record.away for record in records.values())
    rows: list[list[Child]] = []
    for client in sorted(records)[:MOST_LISTED]:
        record = records[client]
        counts = [record.asked, record.took_part, record.left, record.late, record.refused]
        if has_away:
            counts.append(record.away)
        wasted = [wasted_text(record.wasted_bytes, "B"), wasted_text(record.wasted_macs, "")]
        cells = [*map(str, counts), *wasted, record.last_reason or "–"]
        rows.append([story.called(client), *cells])
    head = ["client", "asked", "took part", "left", "late", "refused"]
    if has_away:
        head.append("away")
    head += ["wasted bytes", "wasted MACs", "why, the last time"]
    return table(head, rows, words=("why, the last time",), label="who took part")


def wasted_text(wasted: int, unit: str) -> str:
    if not wasted:
        return "–"
    return f"{amount(wasted)}{unit}"
