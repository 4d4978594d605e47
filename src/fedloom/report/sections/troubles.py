"""What went wrong in rounds: refused replies, worker processes that died, capped weights."""

from __future__ import annotations

from fedloom.records.rows import WorkerDeath
from fedloom.report.html import Safe, joined
from fedloom.report.parts import note, table
from fedloom.report.sections.convergence import MOST_ROWS
from fedloom.report.story import Story

MOST_NAMED = 10  # clients in one sentence


def refusals(story: Story) -> Safe | None:
    """List the replies that were refused, with the reasons."""
    cells = []
    for row in story.rows:
        for refusal in row.refused:
            cells.append([str(row.round), story.client_name(refusal.client), refusal.reason])
    if not cells:
        return None
    total = note(f"{len(cells)} replies were refused; the rounds went on without them.")
    head = ["round", "client", "why"]
    rows = table(head, cells[:MOST_ROWS], words=("client", "why"), label="refused replies")
    return joined(total, rows)


def deaths(story: Story) -> Safe | None:
    """List the worker processes that died during their work, and how they ended."""
    cells = []
    for row in story.rows:
        for death in row.all_deaths:
            cells.append([str(row.round), story.client_name(death.client), ended_by(death)])
    if not cells:
        return None
    processes = "1 worker process"
    if len(cells) > 1:
        processes = f"{len(cells):,} worker processes"
    consequence = "The work of a process that dies is given to another one, once."
    total = note(f"{processes} died while working. {consequence}")
    head = ["round", "client", "ended by"]
    rows = table(head, cells[:MOST_ROWS], words=("client", "ended by"), label="dead processes")
    return joined(total, rows)


def ended_by(death: WorkerDeath) -> str:
    if death.signal is not None:
        return death.signal
    if death.exit is None:
        return "it went silent"
    return f"exit code {death.exit}"


def caps(story: Story) -> Safe | None:
    """Name the clients whose weight --max-weight-share lowered, and the share they claimed."""
    claims: dict[int, list[float]] = {}  # by client, one share for each capped round
    for row in story.rows:
        for client, share in row.capped.items():
            claims.setdefault(client, []).append(share)
    if not claims:
        return None
    largest_first = sorted(claims, key=lambda client: -max(claims[client]))
    named = []
    for client in largest_first[:MOST_NAMED]:
        times = "1 round"
        if len(claims[client]) > 1:
            times = f"{len(claims[client]):,} rounds"
        share = max(claims[client])
        named.append(f"{story.client_name(client)} in {times} (it claimed {share:.0%})")
    clients = ", ".join(named)
    if len(claims) > len(named):
        clients += f", and {len(claims) - len(named):,} more"
    return note(f"Weights were capped by --max-weight-share: {clients}.")
