"""Rehearsing a run without training it, for `--dry-run`: what each of its stages will cost.

Every round is planned and merged as in the real loop. One client, the stand-in, works for all:
`stand_in.py` carries out its orders, and `rehearsal_costs.py` has what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ForeseenRound, Stage
from fedloom.federation.protocol.returned import state_from
from fedloom.federation.server.budgets import Allowance, Reserve, exceeded
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.evaluating import evaluation_order
from fedloom.federation.server.exchange import asks_everybody
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.loop import MOST_EVALUATED
from fedloom.federation.server.planning import Planned, clock_of, planned_round
from fedloom.federation.server.spool import EVALUATE, Place, Spooled
from fedloom.federation.server.stage_checks import check_change
from fedloom.federation.server.topology import (
    Flat,
    Gathered,
    HopResult,
    Situation,
    Timing,
    Topology,
    planned_clusters,
    with_grouping,
)
from fedloom.federation.server.work_times import HopWork, flat_seconds
from fedloom.records.rows import Part
from fedloom.records.totals import Totals
from fedloom.runs.clusters import topology_of
from fedloom.runs.loop_settings import server_samples, settings_of, worker_count
from fedloom.runs.preparing import Prepared
from fedloom.runs.rehearsal_costs import Cost, PhaseCost, StageCost, sum_of
from fedloom.runs.stand_in import AnsweredOrder, Hop, Network, StageProbes, StandIn, shapes
from fedloom.types import ClientDescription, Order, Reply, Round, Setup, State

MOST_OPEN_ROUNDS = 1000  # rounds of a stage that ends when its plan says so


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsed run: its stages, its evaluations, and the stand-in's final network."""

    stages: list[StageCost]
    evaluations: int  # the final one included
    evaluation: Cost
    network: Network


@dataclass
class StageInProgress:
    """A stage that is being rehearsed, and how far it has come, as the loop counts it."""

    stage: Stage
    state: State
    server_data: Samples | None
    budget: float
    allowance: Allowance  # what limits leave
    reserved: Reserve
    cost: Cost  # of its rounds so far, and of the descriptions that it began with
    spent: float = 0.0  # of the budget
    last_charge: float = 0.0  # of the budget, by the last round
    rounds: int = 0
    most_clients: int = 0  # in a round
    phases: dict[str, PhaseCost] = field(default_factory=dict)  # in order, by name
    probes: StageProbes = field(default_factory=StageProbes)
    # costs of rounds that change nothing but weights, by their pattern
    merged: dict[str, Cost] = field(default_factory=dict)

    def add_to_phase(self, name: str, cost: Cost) -> None:
        before = self.phases.get(name, PhaseCost(name, 0, Cost()))
        self.phases[name] = before.with_round(cost)

    def total(self) -> StageCost:
        return StageCost(
            self.stage.name,
            self.rounds,
            self.most_clients,
            self.cost,
            phases=tuple(self.phases.values()),
        )


@dataclass(frozen=True)
class RehearsedRound:
    """The state that a round ends with, what it costs, and what the budget is charged for it."""

    state: State
    cost: Cost
    charge: float


class Rehearsal:
    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        topology: Topology | None = None,
    ) -> None:
        """`topology` is given if clusters have a time limit and must know the clients' work."""
        self.prepared = prepared
        self.settings = settings_of(prepared)
        self.topology = topology or without_limit(topology_of(prepared.config, prepared.task))
        self.first_works: tuple[HopWork, ...] = ()
        self.clustering: Clustering | None = None
        self.histograms: dict[int, tuple[int, ...]] = {}
        self.workers = max(1, worker_count(prepared.config.engine.workers))
        self.stand_in = StandIn(prepared, self.settings, folder)
        self.population = len(prepared.split)
        self.shares = [stage.share for stage in prepared.stages]
        self.round = 0
        self.charged = 0.0  # of the run's budget
        self.spent = Cost()  # of all rounds so far
        self.described: set[int] = set()  # clients that have described themselves
        self.evaluations = 0
        self.evaluation = Cost()

    def run(self) -> Rehearsed:
        state = self.prepared.start
        costs = []
        for number in range(len(self.prepared.stages)):
            state, cost = self._stage(number, state)
            costs.append(cost)
        assert state is not None  # a run has at least one stage
        last = self.prepared.stages[-1]
        if self.settings.judges_reported and not self._selects(last):
            self._evaluate(last, state, "validation", self.settings.evaluate_clients, final=False)
        self._evaluate(last, state, "test", MOST_EVALUATED, final=True)
        network = self.stand_in.network(self._hop(last, state, EVALUATE))
        return Rehearsed(costs, self.evaluations, self.evaluation, network)

    def first_round(self) -> Cost:
        """What the first round that asks clients costs, whatever the limits are."""
        self.settings = replace(self.settings, rounds=1, unit="rounds", limits={})
        _, cost = self._stage(0, self.prepared.start)
        return cost.cost

    def works_of_a_hop(self) -> tuple[HopWork, ...]:
        """What every client's first order in a cluster costs at most.

        Clients that the method would not ask are left out.
        """
        self.settings = replace(
            self.settings,
            rounds=1,
            unit="rounds",
            limits={},
            participation=1.0,
        )
        state = self.prepared.start
        for number, stage in enumerate(self.prepared.stages):
            self.first_works = ()
            state, _ = self._stage(number, state)
            if not stage.is_flat:
                break
        return self.first_works

    # Stages, as in the loop

    def _stage(self, number: int, previous: State | None) -> tuple[State, StageCost]:
        current = self._begin_stage(number, previous)
        foreseen = self._foresee(current)
        if foreseen is not None:
            return current.state, self._foreseen(current, foreseen)
        while not self._is_over(current):
            planned = self._plan(current)
            if planned is None:
                break
            self.round += 1
            phase = phase_of(current.stage, planned)
            ended = self._round(current, planned)
            if exceeded(self.settings.limits, self.spent.plus(ended.cost).totals) is not None:
                self.round -= 1  # the loop will drop this round
                break
            current.state = ended.state
            current.cost = current.cost.plus(ended.cost)
            current.most_clients = max(current.most_clients, len(planned.orders))
            if phase is not None:
                current.add_to_phase(phase, ended.cost)
            self._book(current, ended.cost, ended.charge)
            if self._is_evaluated(current, asks_nobody=not planned.orders):
                self._assess(current)
        return current.state, current.total()

    def _begin_stage(self, number: int, previous: State | None) -> StageInProgress:
        stage = self.prepared.stages[number]
        server_data = server_samples(self.prepared, self.stand_in.data)
        descriptions, cost = self._describe_all(number, stage)
        setup = Setup(
            self.prepared.task,
            self.population,
            descriptions,
            server_data,
            self.prepared.tiers,
        )
        state = state_from(stage.method, "init", stage.method.init(setup, previous))
        if number == 0 and self.prepared.start is not None:
            state = fitted(state, self.prepared.start)
        if not stage.keeps_own:
            self.stand_in.forget_states()
        remaining = self.settings.budget - self.charged
        share = self.settings.stage_share(self.shares, number)
        return StageInProgress(
            stage=stage,
            state=state,
            server_data=server_data,
            budget=self.settings.stage_budget(self.shares, number, remaining),
            allowance=Allowance.of_stage(self.settings.limits, self.spent.totals, share),
            reserved=self.settings.reserve(self.shares, number),
            cost=cost,
        )

    def _is_over(self, current: StageInProgress) -> bool:
        if current.allowance.stopped_by(self.spent.totals, current.reserved) is not None:
            return True
        if current.stage.share is None:
            return current.rounds >= MOST_OPEN_ROUNDS
        if current.budget <= 0 or current.spent >= current.budget:
            return True
        return current.spent + current.last_charge / 2 > current.budget

    def _book(self, current: StageInProgress, cost: Cost, charge: float) -> None:
        """Count one more round of the stage."""
        self.spent = self.spent.plus(cost)
        self.charged += charge
        current.rounds += 1
        current.spent += charge
        current.last_charge = charge
        current.allowance = current.allowance.after(cost.totals)

    def _charge_alone(self, cost: Cost) -> float:
        """What a round without clients is charged: a budget in rounds does not count it."""
        if self.settings.unit == "rounds":
            return 0.0
        return self.settings.charge(cost.in_unit(self.settings.unit), asks_nobody=True)

    # Rounds, as in the loop

    def _plan(self, current: StageInProgress) -> Planned | None:
        return planned_round(
            current.stage.method,
            current.state,
            partial(self._view, current),
            self.settings.attendance,
            self.spent.simulated,
            self.population,
        )

    def _view(
        self,
        current: StageInProgress,
        now: float,
        present: Collection[int] | None,
    ) -> Round:
        """The next round as the stage's method sees it."""
        by_limits = current.allowance.share_spent(self.spent.totals) * current.budget
        number = self.round + 1
        stage = current.stage
        topology = self._topology(stage)
        clustering = topology.valid_clustering(self.clustering, stage.name, number)
        clustered_clients = None
        if clustering is not None:
            clustered_clients = clustering.clients
        view = Round(
            number=number,
            spent=max(current.spent, by_limits),
            budget=current.budget,
            clients=range(self.population),
            participation=self.settings.participation,
            seed=self.settings.task.seed,
            server_data=current.server_data,
            now=now,
            present=present,
            overselect=self.settings.overselect,
            kept=clustered_clients,
            hops=topology.hops,
            allowance=self.settings.allowance_a_round,
            asking=partial(self._ask_beforehand, stage, current.state),
            unit=self.settings.unit,
        )
        clock = RoundClock(self.settings.devices, self.settings.phases)
        return with_grouping(view, topology, self._situation(stage, view, clock))

    def _ask_beforehand(
        self,
        stage: Stage,
        state: State,
        orders: Sequence[Order],
    ) -> list[Reply]:
        """Answer all orders with the stand-in's reply, at the cost of its work."""
        answered = self.stand_in.answer_all(self._hop(stage, state, EVALUATE), orders)
        self.evaluation = self.evaluation.plus(self._together(answered))
        return [answered_order.reply for answered_order in answered]

    def _round(self, current: StageInProgress, planned: Planned) -> RehearsedRound:
        if not planned.orders:
            with Meter() as merging:
                method = current.stage.method
                merged = method.merge(planned.state, planned.orders, (), planned.view)
                state = state_from(method, "merge", merged)
            check_change(current.state, state)
            cost = Cost(server_macs=planned.macs + merging.macs)
            return RehearsedRound(state, cost, self._charge_alone(cost))
        waited = Cost(simulated=planned.view.now - self.spent.simulated)
        contacts = self._first_contacts(current.stage, planned.orders)
        state, work = self._round_of_clients(current, planned)
        cost = waited.plus(contacts).plus(work)
        charge = self.settings.charge(cost.in_unit(self.settings.unit))
        return RehearsedRound(state, cost, charge)

    def _round_of_clients(
        self,
        current: StageInProgress,
        planned: Planned,
    ) -> tuple[State, Cost]:
        """The state after a round in which clients work, and what their work costs."""
        stage = current.stage
        view = planned.view
        topology = self._topology(stage)
        pattern = self._pattern(stage, planned.orders)
        if view.kept is None:
            pattern = f"a new cohort\n{pattern}"
        cost_before = current.merged.get(pattern)
        if cost_before is not None and not isinstance(topology, Flat):
            if view.kept is None and self.clustering is not None:
                self.clustering = replace(self.clustering, since=view.number)
            return planned.state, cost_before  # skips averaging in clusters, which takes long
        clock = clock_of(planned, planned.orders, self.settings, topology.hops)
        costs: list[Cost] = []
        works_of_hops: list[tuple[HopWork, ...]] = []

        def exchange(hop_orders: Sequence[Order], hop: int, timing: Timing) -> HopResult:
            answered = self._work(current, planned.state, hop_orders, hop)
            works = in_client_order(answered)
            costs.append(self._together(answered))
            works_of_hops.append(works)
            return HopResult(spooled(answered), works, timing(works, ()))

        situation = self._situation(stage, view, clock)
        gathered = topology.gather(planned.orders, exchange, situation)
        self.clustering = gathered.clustering or self.clustering
        cost = cost_of_gathering(gathered, costs, works_of_hops)
        if cost_before is not None:
            return planned.state, cost
        returned = stage.method.merge(planned.state, planned.orders, gathered.replies, view)
        merged = state_from(stage.method, "merge", returned)
        if changes_only_weights(planned.state, merged):
            current.merged[pattern] = cost
        return merged, cost

    def _work(
        self,
        current: StageInProgress,
        state: State,
        orders: Sequence[Order],
        number: int,
    ) -> list[AnsweredOrder]:
        """Work through one hop: every order costs what the stand-in's work costs."""
        hop = self._hop(current.stage, state, number)
        answered = self.stand_in.answer_all(hop, orders, current.probes)
        self.stand_in.keep_states(answered)
        if not self.first_works:
            self.first_works = largest_works(current.stage, orders, in_client_order(answered))
        return answered

    def _together(self, answered: Sequence[AnsweredOrder]) -> Cost:
        """The cost of orders that the workers carry out in parallel."""
        total = sum_of(answered_order.cost for answered_order in answered)
        if not answered:
            return total
        turns = math.ceil(len(answered) / self.workers)
        return replace(total, seconds=total.seconds / len(answered) * turns)

    def _pattern(self, stage: Stage, orders: Sequence[Order]) -> str:
        """A text that is equal for rounds that ask the same clients for the same work."""
        tables: dict[int, str] = {}
        looks = []
        for order in orders:
            looks.append(f"{order.client}:{self.stand_in.look(stage, order, tables)}")
        return "\n".join(looks)

    def _hop(self, stage: Stage, state: State, number: int) -> Hop:
        return Hop(stage, state, self.round, number)

    def _topology(self, stage: Stage) -> Topology:
        if stage.is_flat:
            return Flat()
        return self.topology

    def _situation(self, stage: Stage, view: Round, clock: RoundClock) -> Situation:
        return Situation(
            stage=stage.name,
            round=view,
            clock=clock,
            clustering=planned_clusters(view) or self.clustering,
            histograms=self.histograms,
            update_of=stage.method.update_of,
        )

    # Searches that are not rehearsed, because their method foresees their rounds

    def _foresee(self, current: StageInProgress) -> Sequence[ForeseenRound] | None:
        view = self._view(current, self.spent.simulated, None)
        samples = self.stand_in.mean_samples
        return current.stage.method.foresee(current.state, view, samples)

    def _foreseen(
        self,
        current: StageInProgress,
        rounds: Sequence[ForeseenRound],
    ) -> StageCost:
        """The cost of a search's foreseen rounds. Its state stays the one that it began with."""
        total = Cost()
        charged_rounds = 0
        generations = 0
        most_clients = 0
        for foreseen in rounds:
            if self._is_over(current):
                break
            self.round += 1
            generations += foreseen.is_generation
            cost = self._foreseen_cost(foreseen)
            if foreseen.clients:
                charged_rounds += 1
                most_clients = max(most_clients, foreseen.clients)
                charge = self.settings.charge(cost.in_unit(self.settings.unit))
            else:
                charge = self._charge_alone(cost)
            total = total.plus(cost)
            self._book(current, cost, charge)
            if self._is_evaluated(current, asks_nobody=not foreseen.clients):
                self._assess(current)
        return StageCost(current.stage.name, charged_rounds, most_clients, total, generations)

    def _foreseen_cost(self, foreseen: ForeseenRound) -> Cost:
        seconds = foreseen.macs * self.stand_in.seconds_a_mac
        if not foreseen.clients:
            return Cost(seconds=seconds, server_macs=foreseen.macs)
        turns = math.ceil(foreseen.clients / self.workers) / foreseen.clients
        return Cost(
            seconds=seconds * turns,
            macs=foreseen.macs,
            down=foreseen.down,
            up=foreseen.up,
            most_macs=foreseen.macs,
            most_bytes=foreseen.down + foreseen.up,
            simulated=self._foreseen_seconds(foreseen),
        )

    def _foreseen_seconds(self, foreseen: ForeseenRound) -> float:
        """Simulated seconds, if the first clients were asked and had equal shares of the work."""
        devices = self.settings.devices
        if not devices:
            return 0.0
        works = []
        for client in range(min(foreseen.clients, len(devices))):
            down = round(foreseen.down / foreseen.clients)
            up = round(foreseen.up / foreseen.clients)
            works.append(HopWork(client, down, up, 0, round(foreseen.macs / foreseen.clients)))
        return flat_seconds(works, devices, self.settings.phases)

    # Evaluation

    def _selects(self, stage: Stage) -> bool:
        """Whether a round of this stage is selected by validation data."""
        by_best = self.settings.select == "best" or stage.select == "best"
        return self.prepared.hold > 0 and by_best

    def _is_evaluated(self, current: StageInProgress, *, asks_nobody: bool) -> bool:
        """Whether the loop evaluates the round that has just ended."""
        if self.round % self.settings.evaluate_every == 0 and not asks_nobody:
            return True
        stage = current.stage
        is_over = self._is_over(current)
        if is_over and stage.share is not None and stage is not self.prepared.stages[-1]:
            return True
        may_be_last = stage.share is None or is_over
        return self._selects(stage) and may_be_last

    def _assess(self, current: StageInProgress) -> None:
        """Evaluate the current state, as the loop does between rounds."""
        part: Part = "validation" if self.prepared.hold > 0 else "test"
        most = self.settings.evaluate_clients
        self._evaluate(current.stage, current.state, part, most, final=False)

    def _evaluate(self, stage: Stage, state: State, part: Part, most: int, *, final: bool) -> None:
        """Add an evaluation by as many clients as the loop asks; all cost about the same."""
        method = stage.method
        clients = range(min(most, self.population))
        orders = []
        for client in clients:
            orders.append(
                evaluation_order(
                    method.serve(state, client),
                    part,
                    final=final,
                    sends_confusion=self.settings.sends_confusion,
                ),
            )
        if final:
            for name in method.models(state):
                for client in clients:
                    order = method.serve_model(state, name, client)
                    orders.append(evaluation_order(order, part, final=False))
        answered = self.stand_in.answer_all(self._hop(stage, state, EVALUATE), orders)
        self.evaluations += 1
        self.evaluation = self.evaluation.plus(self._together(answered))

    # Describing

    def _describe_all(
        self,
        number: int,
        stage: Stage,
    ) -> tuple[Mapping[int, ClientDescription], Cost]:
        """The descriptions of all clients' data, if all are asked before a stage begins."""
        if not asks_everybody(stage.method, number, self.settings):
            return {}, Cost()
        descriptions = {}
        total = Cost()
        for client in range(self.population):
            described = self.stand_in.describe(stage, client, self.round)
            descriptions[client] = described.description
            if described.description.histogram is not None:
                self.histograms[client] = described.description.histogram
            total = total.plus(described.cost)
        self.described = set(descriptions)
        return descriptions, total

    def _first_contacts(self, stage: Stage, orders: Sequence[Order]) -> Cost:
        """The cost of describing clients that work for the first time."""
        new = {order.client for order in orders} - self.described
        if not new:
            return Cost()
        self.described |= new
        described = self.stand_in.describe(stage, self.stand_in.client, self.round)
        return sum_of([described.cost] * len(new))


def phase_of(stage: Stage, planned: Planned) -> str | None:
    """The phase of the method's schedule that this round is in; None without a schedule."""
    if not stage.method.phases:
        return None
    phase = stage.method.note(planned.state, planned.view).get("phase")
    if phase is None:
        return None
    return str(phase)


def changes_only_weights(before: State, after: State) -> bool:
    return before.meta == after.meta and shapes(before.tensors) == shapes(after.tensors)


def spooled(answered: Sequence[AnsweredOrder]) -> Spooled:
    """The replies as the loop would have them, in client order."""
    places = []
    for answered_order in answered:
        places.append(Place(answered_order.order.client, answered_order.reply))
    return Spooled(tuple(sorted(places, key=lambda place: place.client)))


def in_client_order(answered: Sequence[AnsweredOrder]) -> tuple[HopWork, ...]:
    """The clients' work on these orders."""
    works = [answered_order.work for answered_order in answered]
    return tuple(sorted(works, key=lambda work: work.client))


def cost_of_gathering(
    gathered: Gathered,
    costs: Sequence[Cost],
    works_of_hops: Sequence[Sequence[HopWork]],
) -> Cost:
    """The cost of a round's hops, whose bytes go over the WAN or stay inside a cluster."""
    sent = Transfer()
    for hop, works in enumerate(works_of_hops):
        for work in works:
            over_wan = Transfer(wan_down=work.down, wan_up=work.up)
            place = HopClient(hop, work.client)
            sent = sent.plus(gathered.transfers.get(place, over_wan))
    cost = replace(
        sum_of(costs),
        down=sent.wan_down,
        up=sent.wan_up,
        lan_down=sent.lan_down,
        lan_up=sent.lan_up,
    )
    with_aggregators = cost.plus(between_aggregators(gathered.traffic))
    return replace(with_aggregators, simulated=gathered.seconds)


def between_aggregators(wan: Totals) -> Cost:
    return Cost(down=wan.down, up=wan.up, most_bytes=wan.down + wan.up)


def largest_works(
    stage: Stage,
    orders: Sequence[Order],
    works: Sequence[HopWork],
) -> tuple[HopWork, ...]:
    """The most work that the clients' next orders may be, by their first ones."""
    factors = {order.client: stage.method.most_work(order) for order in orders}
    largest = []
    for work in works:
        factor = factors[work.client]
        macs = round(factor * work.macs)
        largest.append(replace(work, macs=macs, search_macs=round(factor * work.search_macs)))
    return tuple(largest)


def without_limit(topology: Topology) -> Topology:
    """The topology without a time limit, for which the clients' work would have to be known."""
    if isinstance(topology, Clustered):
        return replace(topology, h_max=None)
    return topology
