"""Sentences on what went wrong in a run and was dealt with.

Readers of the run's figures must know about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedloom.records.result import RunResult
from fedloom.records.result_parts import LostState, StepBack

MOST_NAMED = 5  # clients, or rounds of one client


def incidents(result: RunResult) -> list[str]:
    """Return the incidents of a run; files of earlier versions do not record any."""
    sentences = [step_back_sentence(step) for step in result.taken_back]
    if result.versions is not None and result.versions.took_part:
        versions = ", ".join(result.versions.took_part)
        promise = "equal bits are promised within one version"
        sentences.append(f"Several versions of fedloom took part ({versions}): {promise}.")
    return sentences + lost_state_sentences(result.lost_states)


def lost_state_sentences(losses: Sequence[LostState]) -> list[str]:
    """Return a sentence on clients that got a fresh state, and one on those left out."""
    sentences = []
    for how in ("fresh", "refused"):
        events = [loss for loss in losses if loss.how == how]
        if events:
            sentences.append(lost_state_sentence(events, how))
    return sentences


def step_back_sentence(step: StepBack) -> str:
    back = f"was taken back to round {step.to} (resume --from)"
    return f"The run had reached round {step.since} and {back}."


def lost_state_sentence(events: Sequence[LostState], how: str) -> str:
    """Say who lost a state, in which rounds, and what followed: `how` is "fresh" or "refused"."""
    rounds: dict[int, list[int]] = {}  # by client
    for event in events:
        rounds.setdefault(event.client, []).append(event.round)
    if len(rounds) == 1:
        ((client, rounds_of_client),) = rounds.items()
        return lost_state_of_one(client, rounds_of_client, how)
    clients = []
    for client, rounds_of_client in sorted(rounds.items()):
        clients.append(f"{client} ({in_rounds(rounds_of_client)})")
    consequence = "continued with fresh ones"
    if how == "refused":
        all_rounds = [event.round for event in events]
        consequence = f"were left out of {those_rounds(all_rounds)}"
    return f"Clients {listed(clients)} lost their own states and {consequence}."


def lost_state_of_one(client: int, rounds: Sequence[int], how: str) -> str:
    consequence = "continued with a fresh one"
    if how == "refused":
        consequence = f"was left out of {those_rounds(rounds)}"
    return f"Client {client} lost its own state ({in_rounds(rounds)}) and {consequence}."


def in_rounds(numbers: Sequence[int]) -> str:
    """`round 3`, `rounds 7 and 8`."""
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    names = list(map(str, numbers))
    return f"rounds {listed(names)}"


def those_rounds(numbers: Iterable[int]) -> str:
    if len(set(numbers)) == 1:
        return "that round"
    return "those rounds"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c, d, e and 7 more`."""
    shown = list(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown.append(f"{len(names) - MOST_NAMED} more")
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
