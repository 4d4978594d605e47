"""Which clients took part in which round, and what became of those whose reply was not used.

It is computed from a row's ledger when the row is read: a page keeps this instead of the ledgers,
which are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.config.models import Experiment
from fedloom.federation.server.availability import Schedule, schedule_in, schedule_of
from fedloom.records.rows import LedgerLine, MetricsRow
from fedloom.report.figures.strip import Outcome

# How reasons that the simulated clock gives begin.
LEFT = "left:"
LATE = "late:"


@dataclass(frozen=True)
class Lost:
    """A client whose reply was not used in a round."""

    outcome: Outcome
    reason: str
    wasted_bytes: int = 0  # counted for clients that left or were late
    wasted_macs: int = 0


@dataclass(frozen=True)
class RoundAttendance:
    """What became of each client in one round."""

    round: int
    asked_clients: frozenset[int]  # they were asked to work
    lost: Mapping[int, Lost]  # by client

    def outcome(self, client: int) -> Outcome | None:
        """Return what became of a client; None: it was not asked."""
        if client in self.lost:
            return self.lost[client].outcome
        if client in self.asked_clients:
            return "took part"
        return None


def attendance_of(row: MetricsRow, deadline: float | None) -> RoundAttendance:
    """Read a round's attendance from its row of metrics.jsonl.

    `deadline` is the number of simulated seconds after which a cluster's mean is late.
    """
    lines: dict[int, list[LedgerLine]] = {}
    for line in row.ledger:
        if line.hop >= 0:
            lines.setdefault(line.client, []).append(line)
    lost = {}
    for refusal in row.refused:
        # Means of earlier hops were used: only the hop in which it was refused is lost.
        last_lines = lines.get(refusal.client, [])[-1:]
        lost[refusal.client] = lost_by(refusal.reason, last_lines)
    for cluster in row.clusters:
        if deadline is None or cluster.seconds <= deadline:
            continue
        reason = f"late: its cluster takes {cluster.seconds:.6g} simulated seconds"
        for client in cluster.members:
            if client not in lost:
                lost[client] = lost_by(reason, lines.get(client, []))
    return RoundAttendance(row.round, frozenset(lines), lost)


def lost_by(reason: str, lines: list[LedgerLine]) -> Lost:
    """Classify a refusal by its reason; `lines` are the ledger lines of the lost work."""
    wasted_bytes = 0
    wasted_macs = 0
    for line in lines:
        wasted_bytes += line.down + line.up
        wasted_macs += line.macs or 0
    if reason.startswith(LEFT):
        return Lost("left", reason, wasted_bytes, wasted_macs)
    if reason.startswith(LATE):
        return Lost("late", reason, wasted_bytes, wasted_macs)
    return Lost("refused", reason)


def schedule_by(config: Experiment | None, clients: int) -> Schedule | None:
    """Return when clients were available; None: they always were, or it is not known."""
    if config is None or not clients:
        return None
    clock = config.clock
    return schedule_in(clock.availability, schedule_of(clock), clients, config.seed)
