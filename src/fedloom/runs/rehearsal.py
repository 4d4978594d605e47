"""Rehearsing a run without training it, for `--dry-run`: what each of its stages will cost.

Every round is planned and merged as in the real loop. One client, the stand-in, works for all: if
an order, together with the client's own state, looks like none before, the stand-in carries it out
on a few of its samples. Later orders that look the same cost the same, scaled to the number of
their clients' samples.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from fedloom.cost.count import macs, parameters
from fedloom.cost.meter import Meter
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.samples import ClientData, Samples
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.protocol.method import ClientRun, ForeseenRound, Stage
from fedloom.federation.protocol.returned import state_from
from fedloom.federation.protocol.wire import Body, order_head, read_reply
from fedloom.federation.server.budgets import Allowance, Reserve, exceeded
from fedloom.federation.server.clock import HopWork, RoundClock, flat_seconds
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.exchange import asks_everybody, describe_order
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.loop import MOST_EVALUATED, check_change, evaluation_order
from fedloom.federation.server.planning import Planned, clock_of, planned_round
from fedloom.federation.server.spool import DESCRIBE, EVALUATE, Place, Spooled
from fedloom.federation.server.topology import (
    Clustered,
    Flat,
    Situation,
    Timing,
    Topology,
    Worked,
    planned_clusters,
    size_of,
    with_grouping,
)
from fedloom.files import Chunk
from fedloom.methods import stages
from fedloom.records.rows import Part
from fedloom.records.totals import Totals
from fedloom.runs.clusters import topology_of
from fedloom.runs.loop_settings import (
    registered,
    server_samples,
    settings_of,
    worker_count,
)
from fedloom.runs.preparing import Prepared
from fedloom.types import (
    ClientDescription,
    Json,
    Order,
    Reply,
    Round,
    Setup,
    Stamp,
    State,
    Tensors,
)

PROBE = 128  # samples for a stage's first order and for evaluations, which are timed
LATER_PROBE = 32  # samples for other orders, of which only the MACs are counted
MOST_PROBES = 60  # orders of a stage that are carried out, even if every order looks new
PARTS_A_ROUND = 2  # orders of a kind carried out per round, if each has another part of the network
MOST_OPEN_ROUNDS = 1000  # rounds of a stage that ends when its plan says so
LOOK = "\x1f"  # separates the parts of an order's look


@dataclass(frozen=True)
class Cost:
    """What exchanges cost. If a search decides about costs, `most_…` are upper bounds."""

    seconds: float = 0.0  # with all workers at work
    macs: float = 0.0
    down: float = 0.0  # bytes between server and clients, or aggregators
    up: float = 0.0
    lan_down: float = 0.0  # bytes between aggregators and clients
    lan_up: float = 0.0
    server_macs: float = 0.0  # of the server itself, in rounds that involve no client
    most_macs: float = 0.0
    most_bytes: float = 0.0  # down and up, including those inside clusters
    describing: float = 0.0  # bytes of descriptions, which are part of the above but not charged
    simulated: float = 0.0  # seconds by the simulated clock

    def plus(self, other: Cost) -> Cost:
        sums = {}
        for part in fields(self):
            sums[part.name] = getattr(self, part.name) + getattr(other, part.name)
        return Cost(**sums)

    @property
    def bytes(self) -> float:
        return self.down + self.up + self.lan_down + self.lan_up

    def in_unit(self, unit: str) -> float:
        """The cost of one round in the unit of a budget."""
        costs = {
            "rounds": 1.0,
            "macs": self.macs + self.server_macs,
            "bytes": self.bytes,
            "wan": self.down + self.up,
            "seconds": self.simulated,
        }
        return costs[unit]

    @property
    def totals(self) -> Totals:
        """The totals that limits are compared with."""
        return Totals(
            down=round(self.down + self.up - self.describing),
            lan_down=round(self.lan_down + self.lan_up),
            macs=round(self.macs),
            server_macs=round(self.server_macs),
            simulated=self.simulated,
        )


@dataclass(frozen=True)
class PhaseCost:
    """What the rounds of one phase of a method's schedule cost."""

    name: str
    rounds: int
    cost: Cost


@dataclass(frozen=True)
class StageCost:
    """What the rounds of one stage cost."""

    name: str
    rounds: int  # charged rounds, and rehearsed rounds that involve no client
    clients_a_round: int  # at most
    cost: Cost
    generations: int | None = None  # of a search that its method foresaw; None: it was rehearsed
    phases: tuple[PhaseCost, ...] = ()  # in order, if the method has a schedule


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsed run: its stages, its evaluations, and the stand-in's final network."""

    stages: list[StageCost]
    evaluations: int  # the final one included
    evaluation: Cost
    network: Network


@dataclass(frozen=True)
class Counts:
    """A client's samples, part by part."""

    train: int
    validation: int
    test: int

    def of(self, order: Order) -> int:
        """The number of samples that an order works on."""
        if order.kind != "evaluate":
            return self.train
        if order.meta["part"] == "validation":
            return self.validation
        return self.test


@dataclass(frozen=True)
class Network:
    macs: int  # per sample
    params: int


@dataclass(frozen=True)
class Answer:
    """The stand-in's reply to an order, and what its work cost."""

    reply: Reply
    up: int  # bytes of the reply
    seconds_a_sample: float
    macs_a_sample: float
    search_share: float  # share of the MACs that are spent on searching
    version: str | None  # of the stand-in's own state afterwards
    at_most: float  # factor by which MACs may be higher if a search finds a larger network


@dataclass
class PartAnswers:
    """Answers to orders of one kind, each of which brought another part of the network.

    Each round draws its own paths, so the round's first answers stand for its other orders. When
    there are many answers, all of them stand for later rounds. They are used in turns, so that
    their mean counts.
    """

    by_round: dict[int, list[Answer]] = field(default_factory=dict)
    taken: int = 0  # how many times an answer was used again

    def add(self, answer: Answer, number: int) -> None:
        self.by_round.setdefault(number, []).append(answer)

    def everything(self) -> list[Answer]:
        everything = []
        for answers in self.by_round.values():
            everything.extend(answers)
        return everything

    def are_enough(self, number: int) -> bool:
        answers = self.by_round.get(number, [])
        return len(answers) >= PARTS_A_ROUND or len(self.everything()) >= MOST_PROBES

    def in_turns(self, number: int) -> Answer:
        answers = self.by_round.get(number) or self.everything()
        self.taken += 1
        return answers[self.taken % len(answers)]


@dataclass
class Progress:
    """How far a stage has come, as the loop counts it."""

    budget: float
    spent: float = 0.0
    last_cost: float = 0.0
    rounds: int = 0
    probes: int = 0
    timed: Answer | None = None  # to its first order, which is timed
    # costs of rounds that change nothing but weights, by their pattern
    merged: dict[str, Cost] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)  # what limits leave
    reserved: Reserve = field(default_factory=Reserve)


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
        self.data = MappedClients.build(folder / "data", prepared.source, prepared.split)
        self.store = ClientStore(folder / "clients")
        self.counts = counts_of(prepared)
        average = statistics.fmean(counts.train for counts in self.counts)
        self.stand_in = min(
            range(len(self.counts)),
            key=lambda client: abs(self.counts[client].train - average),
        )
        self.sites = {}  # by the number of samples that their clients have
        for size in (PROBE, LATER_PROBE):
            self.sites[size] = self._site(few(self.data, prepared.hold, size))
        self.shares = [stage.share for stage in prepared.stages]
        self.round = 0
        self.charged = 0.0
        self.spent = Cost()  # of all rounds so far
        self.versions: dict[int, str] = {}  # by client, of those that have a private state
        self.looks: dict[str, str] = {}  # of these states, by version
        self.described: set[int] = set()
        self.answers: dict[str, Answer] = {}
        self.answers_to_parts: dict[str, PartAnswers] = {}  # by stage and kind of the order
        self.written = 0  # number of states that the stand-in has written
        self.largest = 0  # MACs per sample of the largest network so far
        self.largest_order = 0  # in bytes
        self.evaluations = 0
        self.evaluation = Cost()
        self.seconds_a_mac = 0.0  # in the stand-in's last work that was timed

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
            state, _ = self._stage(number, stage, state)
            if not stage.is_flat:
                break
        return self.first_works

    def first_round(self) -> Cost:
        """What the first round that asks clients costs, whatever the limits are."""
        self.settings = replace(self.settings, rounds=1, unit="rounds", limits={})
        _, cost = self._stage(0, self.prepared.stages[0], self.prepared.start)
        return cost.cost

    def run(self) -> Rehearsed:
        state = self.prepared.start
        costs = []
        for number, stage in enumerate(self.prepared.stages):
            state, cost = self._stage(number, stage, state)
            costs.append(cost)
        assert state is not None  # a run has at least one stage
        last = self.prepared.stages[-1]
        if self.settings.judges_reported and not self._selects(last):
            self._evaluate(last, state, "validation", self.settings.evaluate_clients, final=False)
        self._evaluate(last, state, "test", MOST_EVALUATED, final=True)
        network = self._network(last, state, self.versions.get(self.stand_in))
        return Rehearsed(costs, self.evaluations, self.evaluation, network)

    # Stages and rounds, as in the loop

    def _stage(
        self,
        number: int,
        stage: Stage,
        previous: State | None,
    ) -> tuple[State, StageCost]:
        server_data = server_samples(self.prepared, self.data)
        described, cost = self._describe_all(number, stage)
        setup = Setup(
            self.prepared.task,
            len(self.counts),
            described,
            server_data,
            self.prepared.tiers,
        )
        state = state_from(stage.method, "init", stage.method.init(setup, previous))
        if number == 0 and self.prepared.start is not None:
            state = fitted(state, self.prepared.start)
        if not stage.keeps_own:
            self.versions = {}
            self.looks = {}
        remaining = self.settings.budget - self.charged
        share = self.settings.stage_share(self.shares, number)
        progress = Progress(
            self.settings.stage_budget(self.shares, number, remaining),
            allowance=Allowance.of_stage(self.settings.limits, self.spent.totals, share),
            reserved=self.settings.reserve(self.shares, number),
        )
        samples = statistics.fmean(counts.train for counts in self.counts)
        view = self._view(stage, state, progress, server_data, self.spent.simulated, None)
        foreseen = stage.method.foresee(state, view, samples)
        if foreseen is not None:
            return state, self._foreseen(stage, state, foreseen, progress)
        most_clients = 0
        phases: dict[str, PhaseCost] = {}
        while not self._over(stage, progress):
            planned = self._plan(stage, state, progress, server_data)
            if planned is None:
                break
            before = state
            view = planned.view
            state = planned.state
            orders = planned.orders
            self.round += 1
            phase = phase_of(stage, state, view)
            if orders:
                state, round_cost = self._round(stage, state, planned, progress)
                charged = self.settings.charge(round_cost.in_unit(self.settings.unit))
            else:
                with Meter() as merging:
                    merged = stage.method.merge(state, orders, (), view)
                    state = state_from(stage.method, "merge", merged)
                check_change(before, state)
                round_cost = Cost(server_macs=planned.macs + merging.macs)
                charged = self._charge_alone(round_cost)
            if exceeded(self.settings.limits, self.spent.plus(round_cost).totals) is not None:
                self.round -= 1  # the loop will drop this round
                state = before
                break
            progress.rounds += 1
            most_clients = max(most_clients, len(orders))
            cost = cost.plus(round_cost)
            self._book(progress, round_cost)
            if phase is not None:
                phases[phase] = with_round(phases.get(phase), phase, round_cost)
            progress.last_cost = charged
            progress.spent += progress.last_cost
            self.charged += progress.last_cost
            if self._is_evaluated(stage, progress, asks_nobody=not orders):
                self._assess(stage, state)
        stage_cost = StageCost(
            stage.name, progress.rounds, most_clients, cost, phases=tuple(phases.values())
        )
        return state, stage_cost

    def _book(self, progress: Progress, cost: Cost) -> None:
        self.spent = self.spent.plus(cost)
        progress.allowance = progress.allowance.after(cost.totals)

    def _plan(
        self,
        stage: Stage,
        state: State,
        progress: Progress,
        server_data: Samples | None,
    ) -> Planned | None:
        return planned_round(
            stage.method,
            state,
            lambda now, present: self._view(stage, state, progress, server_data, now, present),
            self.settings.attendance,
            self.spent.simulated,
            len(self.counts),
        )

    def _view(
        self,
        stage: Stage,
        state: State,
        progress: Progress,
        server_data: Samples | None,
        now: float,
        present: Collection[int] | None,
    ) -> Round:
        by_limits = progress.allowance.share_spent(self.spent.totals) * progress.budget
        number = self.round + 1
        topology = self._topology(stage)
        clustering = topology.holding(self.clustering, stage.name, number)
        clustered_clients = None
        if clustering is not None:
            clustered_clients = clustering.clients
        view = Round(
            number=number,
            spent=max(progress.spent, by_limits),
            budget=progress.budget,
            clients=range(len(self.counts)),
            participation=self.settings.participation,
            seed=self.settings.task.seed,
            server_data=server_data,
            now=now,
            present=present,
            overselect=self.settings.overselect,
            kept=clustered_clients,
            hops=topology.hops,
            allowance=self.settings.allowance_a_round,
            asking=partial(self._ask_beforehand, stage, state),
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
        replies = []
        costs = []
        sizes: dict[str, int] = {}
        tables: dict[int, str] = {}
        for order in orders:
            look = self._look(stage, order, tables)
            answer = self._answer(stage, state, order, look, EVALUATE, None)
            if look not in sizes:
                sizes[look] = size_of(self._stamped(stage, order, EVALUATE))
            costs.append(self._price(stage, order, answer, sizes[look]))
            replies.append(replace(answer.reply, client=order.client))
        self.evaluation = self.evaluation.plus(self._together(costs))
        return replies

    def _foreseen(
        self,
        stage: Stage,
        state: State,
        rounds: Sequence[ForeseenRound],
        progress: Progress,
    ) -> StageCost:
        """The cost of a search that is not rehearsed, because its method foresees its rounds.

        Its state stays the one that it began with.
        """
        total = Cost()
        charged_rounds = 0
        generations = 0
        clients = 0
        for foreseen in rounds:
            if self._over(stage, progress):
                break
            self.round += 1
            progress.rounds += 1
            generations += foreseen.is_generation
            if foreseen.clients:
                turns = math.ceil(foreseen.clients / self.workers) / foreseen.clients
                cost = Cost(
                    seconds=foreseen.macs * self.seconds_a_mac * turns,
                    macs=foreseen.macs,
                    down=foreseen.down,
                    up=foreseen.up,
                    most_macs=foreseen.macs,
                    most_bytes=foreseen.down + foreseen.up,
                    simulated=self._foreseen_seconds(foreseen),
                )
                charged_rounds += 1
                clients = max(clients, foreseen.clients)
                charged = self.settings.charge(cost.in_unit(self.settings.unit))
            else:
                seconds = foreseen.macs * self.seconds_a_mac
                cost = Cost(seconds=seconds, server_macs=foreseen.macs)
                charged = self._charge_alone(cost)
            total = total.plus(cost)
            self._book(progress, cost)
            progress.last_cost = charged
            progress.spent += charged
            self.charged += charged
            if self._is_evaluated(stage, progress, asks_nobody=not foreseen.clients):
                self._assess(stage, state)
        return StageCost(stage.name, charged_rounds, clients, total, generations)

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

    def _charge_alone(self, cost: Cost) -> float:
        """What a round without clients is charged: a budget in rounds does not count it."""
        if self.settings.unit == "rounds":
            return 0.0
        return self.settings.charge(cost.in_unit(self.settings.unit), asks_nobody=True)

    def _over(self, stage: Stage, progress: Progress) -> bool:
        if progress.allowance.stopped_by(self.spent.totals, progress.reserved) is not None:
            return True
        if stage.share is None:
            return progress.rounds >= MOST_OPEN_ROUNDS
        if progress.budget <= 0 or progress.spent >= progress.budget:
            return True
        return progress.spent + progress.last_cost / 2 > progress.budget

    def _round(
        self,
        stage: Stage,
        state: State,
        planned: Planned,
        progress: Progress,
    ) -> tuple[State, Cost]:
        view = planned.view
        orders = planned.orders
        waited = Cost(simulated=view.now - self.spent.simulated)
        cost = waited.plus(self._first_contacts(stage, orders))
        topology = self._topology(stage)
        pattern = self._pattern(stage, orders)
        if view.kept is None:
            pattern = f"a new cohort\n{pattern}"
        known = progress.merged.get(pattern)
        if known is not None and not isinstance(topology, Flat):
            if view.kept is None and self.clustering is not None:
                self.clustering = replace(self.clustering, since=view.number)
            return state, cost.plus(known)  # skips averaging inside clusters, which takes long
        clock = clock_of(planned, orders, self.settings, topology.hops)
        costs: list[Cost] = []
        sent = Transfer()
        works_of_hops: list[tuple[HopWork, ...]] = []

        def exchange(hop_orders: Sequence[Order], hop: int, timing: Timing) -> Worked:
            replies, works, hop_cost = self._work(stage, state, hop_orders, hop, progress)
            costs.append(hop_cost)
            works_of_hops.append(works)
            return Worked(replies, works, timing(works, ()))

        gathered = topology.gather(orders, exchange, self._situation(stage, view, clock))
        self.clustering = gathered.clustering or self.clustering
        for hop, works in enumerate(works_of_hops):
            for done in works:
                over_wan = Transfer(wan_down=done.down, wan_up=done.up)
                place = HopClient(hop, done.client)
                sent = sent.plus(gathered.transfers.get(place, over_wan))
        work_cost = replace(
            sum_of(costs),
            down=sent.wan_down,
            up=sent.wan_up,
            lan_down=sent.lan_down,
            lan_up=sent.lan_up,
        )
        work = work_cost.plus(between_aggregators(gathered.traffic))
        work = replace(work, simulated=gathered.seconds)
        if known is not None:
            return state, cost.plus(work)
        returned = stage.method.merge(state, orders, gathered.replies, view)
        merged = state_from(stage.method, "merge", returned)
        if merged.meta == state.meta and shapes(merged.tensors) == shapes(state.tensors):
            progress.merged[pattern] = work
        return merged, cost.plus(work)

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

    def _pattern(self, stage: Stage, orders: Sequence[Order]) -> str:
        """A text that is equal for rounds that ask the same clients for the same work."""
        tables: dict[int, str] = {}
        looks = [f"{order.client}:{self._look(stage, order, tables)}" for order in orders]
        return "\n".join(looks)

    def _work(
        self,
        stage: Stage,
        state: State,
        orders: Sequence[Order],
        hop: int,
        progress: Progress,
    ) -> tuple[Spooled, tuple[HopWork, ...], Cost]:
        """Work through one hop: every order costs what the stand-in's work costs."""
        sizes: dict[str, int] = {}
        tables: dict[int, str] = {}
        places: list[Place] = []
        costs = []
        works = []
        versions = dict(self.versions)
        for order in orders:
            look = self._look(stage, order, tables)
            answer = self._answer(stage, state, order, look, hop, progress)
            if look not in sizes:
                sizes[look] = size_of(self._stamped(stage, order, hop))
            costs.append(self._price(stage, order, answer, sizes[look]))
            works.append(self._hop_work(stage, order, answer, sizes[look]))
            places.append(Place(order.client, replace(answer.reply, client=order.client)))
            if answer.version is not None:
                versions[order.client] = answer.version
        self.versions = versions
        replies = Spooled(tuple(sorted(places, key=lambda place: place.client)))
        in_client_order = tuple(sorted(works, key=lambda work: work.client))
        if not self.first_works:
            self.first_works = largest_works(stage, orders, in_client_order)
        return replies, in_client_order, self._together(costs)

    def _hop_work(self, stage: Stage, order: Order, answer: Answer, down: int) -> HopWork:
        samples = seen_in(stage, order, self.counts[order.client].of(order))
        macs = round(answer.macs_a_sample * samples)
        searching = round(macs * answer.search_share)
        return HopWork(order.client, down, answer.up, macs - searching, searching)

    def _price(self, stage: Stage, order: Order, answer: Answer, down: int) -> Cost:
        samples = seen_in(stage, order, self.counts[order.client].of(order))
        work = answer.macs_a_sample * samples
        most_down = down
        most_up = answer.up
        if answer.at_most > 1:  # the network that is sent, and sent back, may be the largest
            if order.tensors:
                most_down = max(down, self.largest_order)
            if answer.reply.tensors:
                most_up = max(answer.up, self.largest_order)
        self.largest_order = max(self.largest_order, down)
        return Cost(
            seconds=answer.seconds_a_sample * samples,
            macs=work,
            down=down,
            up=answer.up,
            most_macs=work * answer.at_most,
            most_bytes=most_down + most_up,
        )

    def _together(self, costs: Sequence[Cost]) -> Cost:
        """The cost of orders that the workers carry out in parallel."""
        total = sum_of(costs)
        if not costs:
            return total
        turns = math.ceil(len(costs) / self.workers)
        return replace(total, seconds=total.seconds / len(costs) * turns)

    # Evaluation

    def _selects(self, stage: Stage) -> bool:
        by_best = self.settings.select == "best" or stage.select == "best"
        return self.prepared.hold > 0 and by_best

    def _is_evaluated(self, stage: Stage, progress: Progress, *, asks_nobody: bool) -> bool:
        """Whether the loop evaluates the round that has just ended."""
        if self.round % self.settings.evaluate_every == 0 and not asks_nobody:
            return True
        is_over = self._over(stage, progress)
        if is_over and stage.share is not None and stage is not self.prepared.stages[-1]:
            return True
        may_be_last = stage.share is None or is_over
        return self._selects(stage) and may_be_last

    def _assess(self, stage: Stage, state: State) -> None:
        part: Part = "validation" if self.prepared.hold > 0 else "test"
        self._evaluate(stage, state, part, self.settings.evaluate_clients, final=False)

    def _evaluate(self, stage: Stage, state: State, part: Part, most: int, *, final: bool) -> None:
        """Add an evaluation by as many clients as the loop asks; all cost about the same."""
        method = stage.method
        clients = range(min(most, len(self.counts)))
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
        sizes: dict[str, int] = {}
        tables: dict[int, str] = {}
        costs = []
        for order in orders:
            look = self._look(stage, order, tables)
            answer = self._answer(stage, state, order, look, EVALUATE, None)
            if look not in sizes:
                sizes[look] = size_of(self._stamped(stage, order, EVALUATE))
            costs.append(self._price(stage, order, answer, sizes[look]))
        self.evaluations += 1
        self.evaluation = self.evaluation.plus(self._together(costs))

    # Describing

    def _describe_all(
        self,
        number: int,
        stage: Stage,
    ) -> tuple[Mapping[int, ClientDescription], Cost]:
        """The descriptions of all clients' data, if all are asked before a stage begins."""
        if not asks_everybody(stage.method, number, self.settings):
            return {}, Cost()
        described = {}
        costs = []
        for client in range(len(self.counts)):
            reply, cost = self._describe(stage, client)
            description = ClientDescription.from_json(reply.meta)
            described[client] = description
            if description.histogram is not None:
                self.histograms[client] = description.histogram
            costs.append(cost)
        self.described = set(described)
        return described, sum_of(costs)

    def _first_contacts(self, stage: Stage, orders: Sequence[Order]) -> Cost:
        """The cost of describing clients that work for the first time."""
        new = {order.client for order in orders} - self.described
        if not new:
            return Cost()
        self.described |= new
        _, cost = self._describe(stage, self.stand_in)
        return sum_of([cost] * len(new))

    def _describe(self, stage: Stage, client: int) -> tuple[Reply, Cost]:
        whole = self._site(lambda client: self.data.client(client, self.prepared.hold))
        question = describe_order(client, stage.method, self.settings)
        order = replace(question, stamp=self._stamp(stage, None, DESCRIBE))
        chunks, _ = carry_out(whole, order)
        down = size_of(order)
        up = size_of_chunks(chunks)
        cost = Cost(down=down, up=up, most_bytes=down + up, describing=down + up)
        return read_reply(b"".join(chunks)), cost

    # The stand-in

    def _answer(
        self,
        stage: Stage,
        state: State,
        order: Order,
        look: str,
        hop: int,
        progress: Progress | None,
    ) -> Answer:
        if look in self.answers:
            return self.answers[look]
        similar = similar_to(look)
        too_many = progress is not None and progress.probes >= MOST_PROBES
        if too_many and similar in self.answers:
            return self.answers[similar]
        known = self._answers_to_parts(stage, order, look, hop)
        if known is not None and known.are_enough(self.round):
            return known.in_turns(self.round)
        answer = self._probe(stage, state, order, hop, progress)
        self.answers[look] = answer
        self.answers[similar] = answer
        if known is not None:
            known.add(answer, self.round)
        return answer

    def _answers_to_parts(
        self,
        stage: Stage,
        order: Order,
        look: str,
        hop: int,
    ) -> PartAnswers | None:
        """Answers to orders of this kind, each of which may bring another part of the network.

        The reply to one part can stand for the reply to another if it need not contain all that the
        order brought, and in an evaluation, of which nothing is merged. None: it cannot; for
        example, a reply with one width of a network cannot stand for one with another width.
        """
        kinds = stage.method.fields
        sends_parts = any(fields.optional for fields in kinds.values())
        if not sends_parts:
            return None
        if hop != EVALUATE and (not kinds[order.kind].optional or order.region):
            return None
        return self.answers_to_parts.setdefault(look.partition(LOOK)[0], PartAnswers())

    def _probe(
        self,
        stage: Stage,
        state: State,
        order: Order,
        hop: int,
        progress: Progress | None,
    ) -> Answer:
        """Let the stand-in carry out the order, timed if it is a stage's first or an evaluation."""
        is_first = progress is not None and progress.timed is None
        is_timed = is_first or progress is None
        size = PROBE if is_timed else LATER_PROBE
        read = self.versions.get(order.client)
        write = None
        if hop != EVALUATE:
            self.written += 1
            write = f"{self.written}.0"
        stamp = replace(
            self._stamp(stage, read, hop),
            write=write,
            # answers are used again, so all states that they read must stay
            keep=tuple(sorted({*self.versions.values(), *self.looks})),
        )
        own_order = replace(order, client=self.stand_in, stamp=stamp)
        site = self.sites[size]
        if is_timed:
            carry_out(site, own_order)  # to warm up
        chunks, envelope = carry_out(site, own_order)
        if is_first:
            self._measure_network(stage, state, None)  # the shared network, which is the largest
        reply = read_reply(bytearray(b"".join(chunks)))
        samples = max(1, min(size, self.counts[self.stand_in].of(order)))
        samples = seen_in(stage, order, samples)
        version = read
        if reply.wrote and write is not None:
            version = write
            self.looks[write] = look_of_state(self.store.read(self.stand_in, write))
        macs_a_sample = (envelope.macs or 0) / samples
        seconds = envelope.seconds / samples
        if progress is not None:
            progress.probes += 1
            timed = progress.timed
            if timed is not None and timed.macs_a_sample:  # too few samples to be timed well
                seconds = timed.seconds_a_sample * macs_a_sample / timed.macs_a_sample
        answer = Answer(
            reply=reply,
            up=size_of_chunks(chunks),
            seconds_a_sample=seconds,
            macs_a_sample=macs_a_sample,
            search_share=envelope.search_macs / max(1, envelope.macs or 0),
            version=version,
            at_most=self._measure_network(stage, state, version),
        )
        if is_first and progress is not None:
            progress.timed = answer
            if macs_a_sample:
                self.seconds_a_mac = seconds / macs_a_sample
        return answer

    def _measure_network(self, stage: Stage, state: State, version: str | None) -> float:
        """By what factor a client's network may be larger, if a search decides otherwise.

        No network that a search finds is larger than the supernet that it is found in.
        """
        size = self._network(stage, state, version).macs
        self.largest = max(self.largest, size)
        if not size:
            return 1.0
        return self.largest / size

    def _network(self, stage: Stage, state: State, version: str | None) -> Network:
        own = None
        if version is not None:
            own = self.store.read(self.stand_in, version)
        task = self.prepared.task
        secret = partial(simulated_secret, task.seed, self.stand_in)
        run = ClientRun(task, stage.name, self.round, 0, self.stand_in, "cpu", secret)
        data = few(self.data, self.prepared.hold, LATER_PROBE)(self.stand_in)
        order = stage.method.serve(state, self.stand_in)
        network = stage.method.network(order, data.train, own, run)
        return Network(macs(network, task.shape), parameters(network))

    def _stamped(self, stage: Stage, order: Order, hop: int) -> Order:
        """The order with a stamp like the loop's, so that its size is right to a few digits."""
        version = self.versions.get(order.client)
        read = None
        if version is not None:
            read = f"{max(1, self.round - 1)}.0"
        stamp = self._stamp(stage, read, hop)
        if read is not None:
            stamp = replace(stamp, keep=(read, f"{max(1, self.round - 2)}.0"))
        if hop >= 0:
            stamp = replace(stamp, write=f"{self.round}.{hop}")
        return replace(order, stamp=stamp)

    def _stamp(self, stage: Stage, read: str | None, hop: int) -> Stamp:
        settings = self.settings
        number = max(1, self.round)
        return Stamp(settings.experiment, settings.task, stage.name, number, hop, read)

    def _look(self, stage: Stage, order: Order, tables: dict[int, str]) -> str:
        """A text that is equal for orders that mean the same work: it has all but float values.

        `tables` caches the look of tensors that many orders of a round share.
        """
        table = tables.get(id(order.tensors))
        if table is None:
            table = f"{hash(shapes(order.tensors)):x}"  # hashed, as many tensors make a long text
            tables[id(order.tensors)] = table
        own = self.looks.get(self.versions.get(order.client, ""), "")
        meta = json.dumps(without_floats(order.meta), sort_keys=True)
        return LOOK.join([f"{stage.name} {order.kind}", table, own, meta])

    def _site(self, data: Callable[[int], ClientData]) -> Site:
        task = self.prepared.task
        device = self.prepared.config.engine.device
        secret = partial(simulated_secret, task.seed)
        return Site(data, self.store, stages, task.shape, task.labels, device, secret=secret)


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


def seen_in(stage: Stage, order: Order, samples: int) -> int:
    """How many samples a client that has `samples` goes through; an evaluation takes all."""
    if order.kind == "evaluate":
        return samples
    return stage.method.samples_seen(order, samples)


def phase_of(stage: Stage, state: State, view: Round) -> str | None:
    """The phase of the method's schedule that this round is in; None without a schedule."""
    if not stage.method.phases:
        return None
    phase = stage.method.note(state, view).get("phase")
    if phase is None:
        return None
    return str(phase)


def with_round(before: PhaseCost | None, name: str, cost: Cost) -> PhaseCost:
    if before is None:
        return PhaseCost(name, 1, cost)
    return PhaseCost(name, before.rounds + 1, before.cost.plus(cost))


def similar_to(look: str) -> str:
    """The same look without the order's plain values."""
    return look.rpartition(LOOK)[0]


def without_floats(value: Json) -> Json:
    if isinstance(value, float):
        return None
    if isinstance(value, Mapping):
        return {str(name): without_floats(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_floats(part) for part in value]
    return value


def shapes(tensors: Tensors) -> str:
    parts = [f"{name}{list(tensor.shape)}" for name, tensor in sorted(tensors.items())]
    return ",".join(parts)


def look_of_state(state: State) -> str:
    return f"{hash(shapes(state.tensors)):x} {','.join(sorted(state.meta))}"


def counts_of(prepared: Prepared) -> list[Counts]:
    counts = []
    tests = prepared.split.tests.tolist()
    for samples, test in zip(registered(prepared), tests, strict=True):
        validation = samples.total - samples.train - test
        counts.append(Counts(samples.train, validation, test))
    return counts


def few(clients_data: MappedClients, hold: float, size: int) -> Callable[[int], ClientData]:
    """A client's data with at most `size` samples in each part."""

    def data(client: int) -> ClientData:
        whole = clients_data.client(client, hold)
        parts = (whole.train, whole.validation, whole.test)
        return ClientData(*[part.first(size) for part in parts])

    return data


def carry_out(site: Site, order: Order) -> tuple[list[Chunk], Envelope]:
    """Let a client carry out an order, and refuse to go on if it fails."""
    body = Body(order.tensors)
    chunks, envelope = site.handle(order_head(order, body), b"".join(body.chunks))
    if envelope.fault is not None:
        advice = "correct it; --debug shows more"
        raise FedloomError("a client's code must run", envelope.fault.text, advice)
    return chunks, envelope


def size_of_chunks(chunks: Sequence[Chunk]) -> int:
    return sum(memoryview(chunk).nbytes for chunk in chunks)


def between_aggregators(wan: Totals) -> Cost:
    return Cost(down=wan.down, up=wan.up, most_bytes=wan.down + wan.up)


def sum_of(costs: Sequence[Cost]) -> Cost:
    total = Cost()
    for cost in costs:
        total = total.plus(cost)
    return total
