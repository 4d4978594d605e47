"""`--dry-run`: estimates minutes, MACs, bytes and memory of a run, stage by stage.

The costs of evaluation are estimated separately.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.records.plan import Plan, grid_points
from fedloom.report.numbers import amount, counted, duration
from fedloom.runs.comparison import matched_width
from fedloom.runs.expected_work import loop_topology
from fedloom.runs.experiment import check
from fedloom.runs.loop_settings import worker_count
from fedloom.runs.notices import notices_of
from fedloom.runs.planning import ROUNDS, experiment
from fedloom.runs.preparing import Prepared, prepare
from fedloom.runs.rehearsal import Rehearsal, Rehearsed
from fedloom.runs.rehearsal_costs import Cost, StageCost, sum_of
from fedloom.threads import one_thread
from fedloom.types import Json

EXACT = 1.005  # an upper bound is shown only if it is more than this times the estimate


@dataclass(frozen=True)
class Estimate:
    stages: list[StageCost]
    evaluations: int
    evaluation: Cost
    memory: int  # in bytes, of this process and all workers at their peak
    params: int  # of the network that the rehearsing client ended with
    notices: tuple[str, ...] = ()  # what users should know before the run begins
    macs_a_sample: int | None = None  # of the same network

    @property
    def training(self) -> Cost:
        return sum_of([stage.cost for stage in self.stages])

    @property
    def rounds(self) -> int:
        return sum(stage.rounds for stage in self.stages)

    @property
    def clients_a_round(self) -> int:
        return max(stage.clients_a_round for stage in self.stages)

    def to_json(self) -> Json:
        stages = []
        for stage in self.stages:
            row: dict[str, Json] = {"stage": stage.name, "rounds": stage.rounds}
            if stage.generations is not None:
                row["generations"] = stage.generations
            row |= {"clients_a_round": stage.clients_a_round, **plain(stage.cost)}
            if stage.phases:
                row["phases"] = phases_of(stage)
            stages.append(row)
        return {
            "dry_run": True,
            **plain(self.training),
            "memory": self.memory,
            "rounds": self.rounds,
            "clients_a_round": self.clients_a_round,
            "stages": stages,
            "evaluation": {"times": self.evaluations, **plain(self.evaluation)},
            "notices": list(self.notices),
        }

    def table(self) -> None:
        """Print the estimate as sentences."""
        for notice in self.notices:
            print(f"note: {notice}")
        print(self.sentence())
        for stage in self.stages:
            if len(self.stages) > 1:
                print(f"  {stage.name}: {stage_sentence(stage)}")
            for phase in stage.phases:
                rounds = counted(phase.rounds, "round")
                print(f"  {phase.name}: {rounds}, {cost_sentence(phase.cost)}")
        times = "once" if self.evaluations == 1 else f"{self.evaluations} times"
        print(f"evaluation comes on top, {times}: {cost_sentence(self.evaluation)}")
        if is_bounded(self.training) or is_bounded(self.evaluation):
            text = "which network a search will find is not known"
            print(f"{text}: the bounds are those of its largest network")

    def sentence(self) -> str:
        """The cost of training, over all stages."""
        rounds = f"{counted(self.rounds, 'round')} of {self.clients_a_round} clients"
        cost = self.training
        memory = f"{amount(self.memory)}B of memory at the peak"
        seconds = f"about {duration(cost.seconds)} of training for {rounds}"
        return f"{seconds}, {spent_sentence(cost)}, {memory} (by the work of one client)"


@dataclass(frozen=True)
class PlanEstimate:
    """The estimates of several runs that are carried out one after the other."""

    runs: dict[str, Estimate]  # by the method's name
    budget: str | None = None  # of each run of a contest, in words

    def to_json(self) -> Json:
        runs = {name: estimated.to_json() for name, estimated in self.runs.items()}
        answer = {"dry_run": True, "seconds": round(self.seconds, 2), "runs": runs}
        if self.budget is not None:
            answer["budget"] = self.budget
        return answer

    def table(self) -> None:
        """Print the estimates as sentences."""
        if self.budget is not None:
            print(f"budget: {self.budget}")
        for name, estimated in self.runs.items():
            print(f"{name}:")
            estimated.table()
        runs = f"{len(self.runs)} runs"
        seconds = f"about {duration(self.seconds)} for {runs}"
        print(f"{seconds}, evaluation included; start-up comes on top")

    @property
    def seconds(self) -> float:
        costs = []
        for estimated in self.runs.values():
            costs += [estimated.training, estimated.evaluation]
        return sum_of(costs).seconds


def estimate(prepared: Prepared) -> Estimate:
    """Estimate what the run will cost, without training a round."""
    rehearsed = rehearse(prepared)
    workers = worker_count(prepared.config.engine.workers)
    return Estimate(
        stages=rehearsed.stages,
        evaluations=rehearsed.evaluations,
        evaluation=rehearsed.evaluation,
        memory=peak_memory() * (1 + workers),
        params=rehearsed.network.params,
        macs_a_sample=rehearsed.network.macs,
        notices=tuple(notices_of(prepared)),
    )


def rehearse(prepared: Prepared) -> Rehearsed:
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        return Rehearsal(prepared, Path(scratch), loop_topology(prepared)).run()


def training_seconds(prepared: Prepared) -> float:
    """How long training takes approximately, assuming that all rounds are like the first.

    This carries out one client's first order, which takes next to no time compared with a run of
    minutes. The whole estimate would carry out dozens of orders.
    """
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        first = Rehearsal(prepared, Path(scratch), loop_topology(prepared)).first_round()
    budget = prepared.config.budget
    rounds = float(budget.rounds)
    if budget.equal != "rounds" and budget.amount is not None:
        rounds = budget.amount / first.in_unit(budget.equal)
    for unit, most in (budget.limits or {}).items():
        rounds = min(rounds, most / first.in_unit(unit))
    return rounds * first.seconds


def training_seconds_of_plan(plan: Plan) -> float:
    """The same for all runs of a comparison: for all seeds, and for its grid's points."""
    seconds = 0.0
    split = None
    for method in plan.methods:
        prepared = prepare(experiment(plan, method, plan.seeds[0], {"budget": ROUNDS}), split)
        split = prepared.split
        seconds += training_seconds(prepared)
    return seconds * (len(plan.seeds) + len(grid_points(plan.grid)))


def estimate_plan(plan: Plan) -> PlanEstimate:
    """Estimate a comparison's runs, for its first seed and without a grid.

    Fixed networks get the size of the network that the first method's rehearsing client ended with.
    Every contestant of a contest is estimated with the whole budget, of which a first rung would
    spare some.
    """
    runs: dict[str, Estimate] = {}
    split = None
    target: float | None = None
    for method in plan.methods:
        width = matched_width(plan, method, plan.seeds[0], split, target, {})
        changes: dict[str, Mapping[str, Any]] = {"options": width}
        if plan.contest is None:
            changes["budget"] = ROUNDS
        prepared = prepare(experiment(plan, method, plan.seeds[0], changes), split)
        check(prepared)
        split = prepared.split
        estimated = estimate(prepared)
        if target is None:
            target = estimated.params
            if plan.match_macs:
                target = estimated.macs_a_sample
        runs[plan.names.get(method, method)] = estimated
    if plan.contest is None:
        return PlanEstimate(runs)
    return PlanEstimate(runs, plan.contest.note)


# As sentences


def stage_sentence(stage: StageCost) -> str:
    rounds = f"{counted(stage.rounds, 'round')} of {stage.clients_a_round} clients"
    cost = cost_sentence(stage.cost)
    if stage.generations is None:
        return f"{rounds}, {cost}"
    generations = counted(stage.generations, "generation")
    if not stage.clients_a_round:
        seconds = f"about {duration(stage.cost.seconds)}"
        work = f"{amount(stage.cost.server_macs)}MACs"
        return f"{generations} on the server, which involve no client, {seconds}, {work}"
    return f"{generations} in {rounds}, {cost}"


def phases_of(stage: StageCost) -> list[Json]:
    rows: list[Json] = []
    for phase in stage.phases:
        rows.append({"phase": phase.name, "rounds": phase.rounds, **plain(phase.cost)})
    return rows


def cost_sentence(cost: Cost) -> str:
    return f"about {duration(cost.seconds)}, {spent_sentence(cost)}"


def spent_sentence(cost: Cost) -> str:
    """MACs and bytes, with upper bounds if a search decides about them."""
    parts = [f"{amount(cost.macs)}MACs", f"{amount(cost.down)}B down", f"{amount(cost.up)}B up"]
    if cost.lan_down or cost.lan_up:
        inside = f"{amount(cost.lan_down)}B down and {amount(cost.lan_up)}B up inside clusters"
        parts.append(inside)
    if cost.server_macs:
        parts.append(f"{amount(cost.server_macs)}MACs on the server")
    if cost.simulated:
        parts.append(f"{duration(cost.simulated)} by the simulated clock")
    sentence = ", ".join(parts)
    bounds = []
    if cost.most_macs > EXACT * cost.macs:
        bounds.append(f"{amount(cost.most_macs)}MACs")
    if cost.most_bytes > EXACT * cost.bytes:
        bounds.append(f"{amount(cost.most_bytes)}B")
    if not bounds:
        return sentence
    return f"{sentence} (at most {' and '.join(bounds)})"


def is_bounded(cost: Cost) -> bool:
    return cost.most_macs > EXACT * cost.macs or cost.most_bytes > EXACT * cost.bytes


def plain(cost: Cost) -> dict[str, Json]:
    values: dict[str, Json] = {
        "seconds": round(cost.seconds, 2),
        "macs": round(cost.macs),
        "down": round(cost.down),
        "up": round(cost.up),
        "lan_down": round(cost.lan_down),
        "lan_up": round(cost.lan_up),
    }
    if cost.server_macs:
        values["server_macs"] = round(cost.server_macs)
    if cost.simulated:
        values["simulated"] = {"seconds": round(cost.simulated, 3)}
    if is_bounded(cost):
        values["at_most"] = {"macs": round(cost.most_macs), "bytes": round(cost.most_bytes)}
    return values


def peak_memory() -> int:
    """This process's peak memory in bytes; ru_maxrss is in KiB on Linux, in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if os.uname().sysname == "Darwin":
        return peak
    return peak * 1024
