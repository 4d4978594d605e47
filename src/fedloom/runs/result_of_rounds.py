"""What a run's result tells about its rounds, from the rows of metrics.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedloom.evaluate.summary import most
from fedloom.federation.protocol.method import Stage
from fedloom.records.result import StageEnd
from fedloom.records.result_parts import Capped, LostState, Phase, Uphill
from fedloom.records.rows import Evaluation, MetricsRow
from fedloom.types import Json


def work_of_clients(rows: Iterable[MetricsRow]) -> dict[int, Work]:
    """What each client's work took.

    Descriptions and evaluations, whose hop is below 0 in the ledger, do not count as work.
    """
    seconds: dict[int, list[float]] = {}
    memory: dict[int, list[int]] = {}
    for row in rows:
        for line in row.ledger:
            if line.hop < 0:
                continue
            if line.seconds is not None:
                seconds.setdefault(line.client, []).append(line.seconds)
            if line.memory is not None:
                memory.setdefault(line.client, []).append(line.memory)
    work = {}
    for client, parts in seconds.items():
        work[client] = Work(round(sum(parts), 3), most(memory.get(client, [])))
    return work


@dataclass(frozen=True)
class Work:
    """What a client's work took, over all rounds."""

    seconds: float | None = None
    memory: int | None = None  # its process's peak in bytes


def stage_ends(names: Sequence[str], rows: Iterable[MetricsRow]) -> list[StageEnd]:
    """The final figures of each of these stages, by its last evaluation."""
    rounds: Counter[str] = Counter()
    evaluations: dict[str, Evaluation] = {}
    for row in rows:
        rounds[row.stage] += 1
        if row.evaluation is not None:
            evaluations[row.stage] = row.evaluation
    ends = []
    for name in names:
        if name in evaluations:
            evaluation = evaluations[name]
            end = StageEnd(
                stage=name,
                rounds=rounds[name],
                part=evaluation.part,
                figure=evaluation.value,
                shared=evaluation.shared,
            )
            ends.append(end.replace(**evaluation.beside, **evaluation.shared_beside))
    return ends


def in_phases(stages: Sequence[Stage], rows: Iterable[MetricsRow]) -> list[Phase]:
    """The rounds of each phase of a schedule, and its share of the budget in the paper."""
    paper_shares: dict[str, float] = {}
    for stage in stages:
        paper_shares.update(stage.method.phases)
    counts = Counter(row.phase for row in rows if "phase" in row.notes)
    phases = []
    for name, rounds in counts.items():
        phases.append(Phase(phase=name, rounds=rounds, paper=paper_shares.get(name)))
    return phases


def lost_states(rows: Iterable[MetricsRow]) -> list[LostState]:
    """Which clients had lost their private state in which round, and what was done about it."""
    events = []
    for row in rows:
        for client in row.fresh:
            events.append(LostState(client=client, round=row.round, how="fresh"))
        for refusal in row.refused:
            if refusal.reason.startswith("lost: "):
                events.append(LostState(client=refusal.client, round=row.round, how="refused"))
    return events


def capped(rows: Iterable[MetricsRow]) -> dict[str, Capped]:
    """The clients whose weight --max-weight-share lowered.

    Each has the number of such rounds, and the largest share that it claimed.
    """
    clients: dict[str, Capped] = {}
    for row in rows:
        for client, share in row.capped.items():
            before = clients.get(str(client))
            if before is None:
                clients[str(client)] = Capped(rounds=1, share=share)
            else:
                clients[str(client)] = Capped(
                    rounds=before.rounds + 1,
                    share=max(share, before.share),
                )
    return clients


def uphill(rows: Iterable[MetricsRow], options: Mapping[str, Json]) -> Uphill | None:
    """In how many rounds a client's η₁‖g‖² was above 1, and the largest value.

    None: in no round, or the run does not use the outer product, for which 1 is the bound.
    """
    if options.get("hessian", "outer") != "outer":
        return None
    bends = []
    for row in rows:
        bend = row.notes.get("bend")
        if bend is not None and bend > 1:
            bends.append(bend)
    if not bends:
        return None
    return Uphill(rounds=len(bends), largest=max(bends))
