"""The round loop: it runs stages under one budget, evaluates rounds, and writes checkpoints.

It runs any method without knowing which one it is. If the process is killed, only the current round
is lost, and of that round only the replies that are not in the journal yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedloom.config.models import Unit
from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.admission import check_fields
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.protocol.returned import state_from
from fedloom.federation.protocol.wire import WireError
from fedloom.federation.server.budgets import Allowance, OverBudget, charged, exceeded
from fedloom.federation.server.checkpoint import Archive, Best, Checkpoint, TakenBack
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.events import Listener, Notice, RoundEnded
from fedloom.federation.server.exchange import Exchange, asks_everybody
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.ledger import evaluation_of
from fedloom.federation.server.norms import UpdateBound
from fedloom.federation.server.planning import Planned, clock_of, planned_round
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Receipt, Spool
from fedloom.federation.server.topology import (
    Clustered,
    Flat,
    Gathered,
    Situation,
    Topology,
    planned_clusters,
    with_grouping,
)
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import metric_of
from fedloom.records.rows import (
    BESIDE,
    ClusterNote,
    ClusterRow,
    Evaluation,
    MetricsRow,
    Part,
    Span,
    WorkerDeath,
)
from fedloom.records.totals import Totals
from fedloom.rng import rng
from fedloom.types import Json, Order, Round, Setup, State

log = logging.getLogger("fedloom")

MOST_EVALUATED = 1000  # clients in the final evaluation


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run."""

    clients: tuple[ClientEvaluation, ...]  # on their test parts
    totals: Totals
    rounds: int
    selected: int  # the round that is reported
    # Its mean validation metric, if rounds were selected by it or it was asked for.
    validation: float | None
    state: State
    taken_back: tuple[TakenBack, ...] = ()
    clustering: Clustering | None = None  # the last one
    stopped: Unit = "rounds"  # the limit that ended the run, or one of its stages
    over_budget: OverBudget | None = None  # the last round that exceeded a limit


@dataclass(frozen=True)
class Reported:
    """The round whose model is the run's result."""

    round: int
    value: float | None  # its mean validation metric, if there is one


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation."""

    clients: tuple[ClientEvaluation, ...]
    totals: Totals
    deaths: tuple[WorkerDeath, ...]

    @property
    def own(self) -> list[Figures]:
        """The metrics of the models that clients use, in client order, for those that answered."""
        figures = []
        for client in self.clients:
            if client.own.figures is not None:
                figures.append(client.own.figures)
        return figures

    @property
    def shared(self) -> list[Figures]:
        """The metrics of the shared model, for the clients that have evaluated it."""
        return [client.shared for client in self.clients if client.shared is not None]


@dataclass
class Loop:
    """One run of a method's stages, from the last checkpoint or the beginning to the end."""

    settings: Settings
    stages: Sequence[Stage]
    engine: Engine
    spool: Spool
    topology: Topology
    archive: Archive
    server_data: Samples | None = None
    holds_back: bool = False  # whether clients hold back a validation part for selection
    listen: Listener = lambda event: None
    # If given, the first stage begins with these weights instead of random ones.
    start: State | None = None

    def __post_init__(self) -> None:
        check_stages(self.settings, self.stages, self.topology)
        self.metric = metric_of(self.settings.task.kind)
        self.shares = [stage.share for stage in self.stages]
        # Receipts of describing all clients before a stage. The stage's first round books them.
        self.prologue: list[Receipt] = []
        self.over_budget: OverBudget | None = None
        # The versions of clients' states, by the round of each checkpoint that is kept.
        self.named: dict[int, Mapping[int, str]] = {}

    def _begin(self) -> Checkpoint | None:
        """The last checkpoint that can be used, or None if the run starts at the beginning.

        The user is told what a kill, a power cut or a failing disk has damaged, and the run goes on
        without it.
        """
        reached = self.archive.rounds()
        at = self.archive.resumable()
        if reached and at is None:
            self._notify("no checkpoint can be used: the run starts again at round 0")
        elif at is not None and at.round < reached[-1]:
            damaged = f"the checkpoint of round {reached[-1]} cannot be used"
            self._notify(f"{damaged}: the run goes back to round {at.round}")
        finished = 0
        if at is not None:
            finished = at.round
        damage = self.spool.repair(finished + 1)
        if damage is not None:
            self._notify(damage)
        if at is not None:
            self.named = {number: self._versions(number) for number in self.archive.needed(at)}
        self._check_left_states(at)
        return at

    def _check_left_states(self, at: Checkpoint | None) -> None:
        """Check the states that finished stages left, and delete those of later stages.

        The latter come from rounds that were taken back.
        """
        running = 0
        if at is not None:
            running = at.stage
        for number, stage in enumerate(self.stages):
            if stage.leaves is None:
                continue
            if number >= running:
                self.archive.forget_left(stage.leaves)
                continue
            try:
                self.archive.left(stage.leaves)
            except FedloomError as error:
                self._notify(f"the state that stage {stage.name} left cannot be used: {error}")

    def _notify(self, text: str) -> None:
        log.warning("%s", text)
        self.listen(Notice(text))

    def _versions(self, number: int) -> Mapping[int, str]:
        try:
            return self.archive.load(number).versions
        except (OSError, WireError):  # it is damaged, so the run cannot return to it
            return {}

    def run(self) -> Outcome:
        """Run from the last checkpoint, or from the beginning, to the end."""
        at = self._begin()
        self.archive.cut_metrics(at or Checkpoint())
        if at is None:
            at = self._enter(0, Checkpoint())
        elif at.round == 0:  # a run that was taken back to its beginning keeps only that fact
            at = self._enter(0, Checkpoint(taken_back=at.taken_back))
        self._keep_scores(at)
        while at.stage < len(self.stages):
            at = self._after(at)
        return self._finish(at)

    def _after(self, at: Checkpoint) -> Checkpoint:
        """The checkpoint after one more round, or at the start of the next stage."""
        stopped = self._stopped_by(at)
        if stopped is None:
            after = self._round(at)
            if isinstance(after, Checkpoint):
                return after
            if after is not None:
                self._drop(at, after)
                stopped = after.limit
        if stopped is not None:
            at = replace(at, stopped=stopped)
        return self._enter(at.stage + 1, at)

    def _drop(self, at: Checkpoint, over: OverBudget) -> None:
        """Discard a round that exceeded a limit, as if it had never happened."""
        self.spool.clear()
        self.over_budget = over
        limit = self.settings.limits[over.limit]
        cost = over.cost[over.limit]
        if at.round == 0:
            raise FedloomError(
                f"--budget {over.limit} must allow one round, which needs {cost:g}",
                f"got {limit:g}",
                "raise it",
            )
        spent = charged(at.totals)[over.limit]
        self._notify(
            f"round {over.round} was dropped: it would have cost {cost:g} {over.limit}, "
            f"and {limit - spent:g} are left of the limit"
        )

    def _keep_scores(self, at: Checkpoint) -> None:
        """Write scores.jsonl from the state.

        The file may be out of date: the process may have been killed between a checkpoint and this
        step, or the run may have been taken back.
        """
        if at.stage == len(self.stages):
            return
        rows = self.stages[at.stage].method.scores(at.state)
        if rows is not None:
            self.archive.keep_scores(rows)

    # Stages and budget

    def _enter(self, stage: int, at: Checkpoint) -> Checkpoint:
        """The checkpoint at the start of a stage.

        It has the stage's share of the remaining budget, and the first state of its method.
        """
        chosen = self._chosen(at)
        if stage > 0:
            leaves = self.stages[stage - 1].leaves
            if leaves is not None:
                self.archive.leave(leaves, chosen.state)
        if stage == len(self.stages):
            return replace(at, stage=stage, state=chosen.state, versions=chosen.versions)
        entered = self.stages[stage]
        at = self._describe_all(at, entered.method, stage)
        setup = Setup(
            self.settings.task,
            self.settings.population,
            at.described,
            self.server_data,
            self.settings.tiers,
        )
        before = self.start if stage == 0 else chosen.state
        state = state_from(entered.method, "init", entered.method.init(setup, before))
        if self.start is not None and stage == 0:
            state = fitted(state, self.start)
        versions: Mapping[int, str] = {}
        if entered.keeps_own:
            versions = chosen.versions
        remaining = self.settings.budget - at.charged
        return replace(
            at,
            stage=stage,
            state=state,
            versions=versions,
            began=at.charged,
            budget=self.settings.stage_budget(self.shares, stage, remaining),
            last_cost=0.0,
            best=None,
            norms={},
            allowance=Allowance.of_stage(
                self.settings.limits,
                at.totals,
                self.settings.stage_share(self.shares, stage),
            ),
        )

    def _over(self, at: Checkpoint) -> bool:
        return self._stopped_by(at) is not None

    def _stopped_by(self, at: Checkpoint) -> Unit | None:
        """The unit in which the stage has spent its budget or a limit; None if it goes on.

        A stage ends where it comes nearest to its budget, even if that is a little over.
        """
        reserved = self.settings.reserve(self.shares, at.stage)
        limit = at.allowance.stopped_by(at.totals, reserved)
        if limit is not None or self.stages[at.stage].share is None:
            return limit
        if at.budget <= 0 or at.spent + at.last_cost / 2 > at.budget or at.spent >= at.budget:
            return self.settings.unit
        return None

    def _chosen(self, at: Checkpoint) -> Checkpoint:
        """The checkpoint that a finished stage hands on: its last round, or its best one.

        The best round is the one with the best validation metric.
        """
        if at.best is None or at.best.round == at.round:
            return at
        # Its file was checked when the run resumed, or was written since.
        return self.archive.load(at.best.round)

    def _selects(self, stage: int) -> bool:
        """Whether a stage hands on its best round, by the clients' validation metrics."""
        if not self.holds_back:
            return False
        return self.settings.select == "best" or self.stages[stage].select == "best"

    # One round

    def _round(self, at: Checkpoint) -> Checkpoint | OverBudget | None:
        """The checkpoint after one more round, or None if the method plans no more rounds.

        A round whose plan has no orders asks no client: the server alone works, in `plan` and
        `merge`. Such a round costs what the server computed, but does not count as a round, and it
        needs no replies.
        """
        started = time.perf_counter()
        number = at.round + 1
        stage = self.stages[at.stage]
        exchange = self._exchange(stage, number, at)
        planned = self._plan(at, exchange)
        if planned is None:
            return None
        view = planned.view
        state = planned.state
        asks_nobody = planned.asks_nobody
        log.debug("round %d: %d orders", number, len(planned.orders))
        asked_before = exchange.take_questions()
        exchange.receipts = [*self.prologue, *exchange.receipts]
        self.prologue = []
        orders = exchange.describe(planned.orders)
        gathered = Gathered(())
        if not asks_nobody:
            topology = self._topology(stage)
            clock = clock_of(planned, orders, self.settings, topology.hops)
            situation = self._situation(at, view, clock, exchange)
            gathered = topology.gather(orders, exchange.work, situation)
            exchange.transfers = gathered.transfers
        notes = stage.method.note(state, view)
        with Meter() as merging:
            if exchange.is_lost:
                state = at.state
            else:
                merged = stage.method.merge(state, orders, gathered.replies, view)
                state = state_from(stage.method, "merge", merged)
        notes = {**notes, **stage.method.note_after(state, view)}
        check_notes(notes)
        server = Totals(rounds=1, server_macs=planned.macs + merging.macs)
        if asks_nobody:
            check_change(at.state, state)
            server = replace(server, rounds=0)
        span = Span(view.now, view.now + gathered.seconds)
        server = replace(server, simulated=span.end - at.totals.simulated)
        spent = exchange.totals().plus(gathered.traffic).plus(server)
        totals = at.totals.plus(spent).plus(asked_before)
        totals = replace(totals, simulated=span.end)  # exactly: the sum would be rounded
        limit = exceeded(self.settings.limits, totals)
        if limit is not None:
            return OverBudget(number, limit, charged(spent))
        cost = self.settings.charge(spent.spent(self.settings.unit), asks_nobody=asks_nobody)
        at = replace(
            at,
            round=number,
            state=state,
            versions=at.versions if exchange.is_lost else exchange.versions,
            described=exchange.described,
            charged=at.charged + cost,
            last_cost=cost,
            totals=totals,
            norms=exchange.bound.history_after(),
            clustering=gathered.clustering or at.clustering,
            allowance=at.allowance.after(spent),
            held=self._held(at, exchange, asks_nobody=asks_nobody),
        )
        row = replace(
            exchange.row(view.progress, notes),
            server_macs=server.server_macs,
            clusters=with_notes(gathered.clusters, stage.method.note_clusters(planned.state)),
            population=gathered.population,
            paces=gathered.paces,
        )
        if self.settings.devices:
            row = replace(row, simulated=span)
        if self._is_evaluated(at, asks_nobody=asks_nobody):
            at, evaluation = self._assess(at)
            row = replace(row, evaluation=evaluation)
        wall = time.perf_counter() - started
        at = replace(at, totals=at.totals.plus(Totals(wall=wall)))
        row = replace(row, totals=at.totals)
        at = self.archive.save(at, row)
        self._keep_scores(at)
        self._forget(at)
        self.listen(RoundEnded(row, self._share_spent(at)))
        return at

    def _held(
        self,
        at: Checkpoint,
        exchange: Exchange,
        *,
        asks_nobody: bool,
    ) -> tuple[int, ...]:
        """The rounds whose checkpoints are kept until a round succeeds.

        If most clients fail, an earlier round may have spoiled the model. A round that asks no
        client gives no evidence about that.
        """
        if asks_nobody:
            return at.held
        if exchange.succeeded():
            return ()
        return at.held or tuple(self.archive.rounds()[-2:])

    def _topology(self, stage: Stage) -> Topology:
        if stage.is_flat:
            return Flat()
        return self.topology

    def _situation(
        self,
        at: Checkpoint,
        view: Round,
        clock: RoundClock,
        exchange: Exchange,
    ) -> Situation:
        """What the topology needs to know about the round besides its orders.

        Its clusters are those that the plan asked for, or else the latest ones.
        """
        histograms = {}
        for client, description in exchange.described.items():
            if description.histogram is not None:
                histograms[client] = description.histogram
        stage = self.stages[at.stage]
        largest: set[str] = set()
        for fields in stage.method.fields.values():
            largest.update(fields.largest)
        return Situation(
            stage=stage.name,
            round=view,
            clock=clock,
            clustering=planned_clusters(view) or at.clustering,
            histograms=histograms,
            update_of=stage.method.update_of,
            note=exchange.note_takeover,
            largest=frozenset(largest),
        )

    def _plan(self, at: Checkpoint, exchange: Exchange) -> Planned | None:
        return planned_round(
            self.stages[at.stage].method,
            at.state,
            lambda now, present: self._view(at, exchange, now, present),
            self.settings.attendance,
            at.totals.simulated,
            self.settings.population,
        )

    def _view(
        self,
        at: Checkpoint,
        exchange: Exchange,
        now: float,
        present: Collection[int] | None,
    ) -> Round:
        """The round as its method sees it while planning."""
        settings = self.settings
        spent_by_limits = at.allowance.share_spent(at.totals) * at.budget
        stage = self.stages[at.stage]
        topology = self._topology(stage)
        number = exchange.number
        clustering = topology.holding(at.clustering, stage.name, number)
        kept = None
        if clustering is not None:
            kept = clustering.clients
        view = Round(
            number=number,
            spent=max(at.spent, spent_by_limits),
            budget=at.budget,
            clients=range(settings.population),
            participation=settings.participation,
            seed=settings.task.seed,
            server_data=self.server_data,
            now=now,
            present=present,
            overselect=settings.overselect,
            kept=kept,
            hops=topology.hops,
            allowance=settings.allowance_a_round,
            asking=exchange.ask_beforehand,
            unit=settings.unit,
        )
        clock = RoundClock(settings.devices, settings.phases)
        return with_grouping(view, topology, self._situation(at, view, clock, exchange))

    def _forget(self, at: Checkpoint) -> None:
        """After a checkpoint, forget the round's replies.

        Versions of client states that only deleted checkpoints named are forgotten too.
        """
        self.named[at.round] = at.versions
        kept = set(self.archive.rounds())
        for number in list(self.named):
            if number not in kept:
                del self.named[number]
        self.spool.clear()

    def _share_spent(self, at: Checkpoint) -> float:
        """The spent share of the whole budget, or of a limit if that is more."""
        if self.settings.budget <= 0:
            return 1.0
        largest = at.charged / self.settings.budget
        spent = charged(at.totals)
        for name, limit in self.settings.limits.items():
            largest = max(largest, spent[name] / limit)
        return min(1.0, largest)

    def _exchange(self, stage: Stage, number: int, at: Checkpoint) -> Exchange:
        return Exchange(
            self.settings,
            self.engine,
            self.spool,
            stage,
            number,
            self.named,
            versions=dict(at.versions),
            described=dict(at.described),
            listen=self.listen,
            bound=UpdateBound(at.norms, self.settings.norm_bound),
        )

    # Describing

    def _describe_all(self, at: Checkpoint, method: Method, stage: int) -> Checkpoint:
        """Describe all clients before a stage, if the stage needs it."""
        if not asks_everybody(method, stage, self.settings):
            return at
        # All clients are asked again: this stage may ask for more than the one before.
        undescribed = replace(at, described={})
        exchange = self._exchange(self.stages[stage], at.round + 1, undescribed)
        exchange.describe([Order(client, "describe") for client in range(self.settings.population)])
        self.prologue = exchange.receipts
        # The sample counts that a client described first remain valid.
        for client in exchange.described.keys() & at.described.keys():
            samples = at.described[client].samples
            exchange.described[client] = replace(exchange.described[client], samples=samples)
        return replace(at, described=exchange.described)

    # Evaluation

    def _is_evaluated(self, at: Checkpoint, *, asks_nobody: bool) -> bool:
        """Whether this round is evaluated.

        A round that asks no client is not, unless it may be the last one of its stage.
        """
        if at.round % self.settings.evaluate_every == 0 and not asks_nobody:
            return True
        is_last_stage = at.stage == len(self.stages) - 1
        if self._over(at) and not is_last_stage:  # so that the result of every stage is known
            return True
        open_ended = self.stages[at.stage].share is None  # the stage may end after any round
        may_be_last = open_ended or self._over(at)
        return self._selects(at.stage) and may_be_last

    def _assess(self, at: Checkpoint) -> tuple[Checkpoint, Evaluation]:
        """Evaluate the round, and record it if it is the best so far."""
        part: Part = "test"
        if self.holds_back:
            part = "validation"
        evaluated = self.evaluate(at, part, self._sample(self.settings.evaluate_clients))
        at = replace(at, totals=at.totals.plus(evaluated.totals))
        values = values_of(evaluated.own, self.metric.name)
        value = mean(values)
        if self._selects(at.stage) and value is not None and self._improves(value, at.best):
            at = replace(at, best=Best(at.round, value))
        shared_beside = self._beside(evaluated.shared)
        evaluation = Evaluation(
            part=part,
            clients=len(values),
            metric=self.metric.name,
            value=value,
            shared=mean(values_of(evaluated.shared, self.metric.name)),
            deaths=evaluated.deaths,
            **self._beside(evaluated.own),
            **{f"shared_{name}": value for name, value in shared_beside.items()},
        )
        return at, evaluation

    def _beside(self, clients: Sequence[Figures]) -> dict[str, float | None]:
        """The means of the additional metrics, in which every class counts the same, by name.

        AUC is reported for two classes only.
        """
        means = {}
        for name in BESIDE:
            if name not in self.metric.columns:
                continue
            if name == "auc" and len(self.settings.task.labels) != 2:
                continue
            means[name] = mean(values_of(clients, name))
        return means

    def _improves(self, value: float, best: Best | None) -> bool:
        return best is None or self.metric.better(value, best.value)

    def _sample(self, most: int) -> Sequence[int]:
        """All clients, or a random sample if there are more than `most`."""
        population = self.settings.population
        if population <= most:
            return range(population)
        chosen = rng(self.settings.task.seed, "evaluate").choice(
            population,
            size=most,
            replace=False,
        )
        return sorted(int(client) for client in chosen)

    def evaluate(
        self,
        at: Checkpoint,
        part: Part,
        clients: Sequence[int],
        *,
        final: bool = False,
    ) -> Evaluated:
        """Let clients evaluate the model of a checkpoint, which changes no client's state.

        A client that does not answer has no metrics, but a reason. In the final evaluation clients
        also evaluate the models that the method names, one after the other.
        """
        stage = self.stages[min(at.stage, len(self.stages) - 1)]
        method = stage.method
        exchange = self._exchange(stage, at.round, at)
        orders = []
        for client in clients:
            order = method.serve(at.state, client)
            orders.append(
                evaluation_order(
                    order,
                    part,
                    final=final,
                    sends_confusion=self.settings.sends_confusion,
                ),
            )
        evaluations = exchange.evaluate(orders)
        if final:
            for name in method.models(at.state):
                orders = []
                for client in clients:
                    order = method.serve_model(at.state, name, client)
                    orders.append(evaluation_order(order, part, final=False))
                evaluations = with_model(evaluations, name, exchange.evaluate(orders))
        totals = evaluation_of(exchange.bookings())
        return Evaluated(tuple(evaluations), totals, exchange.deaths())

    def _reported(self, at: Checkpoint) -> tuple[Checkpoint, Reported]:
        """The round that is reported, which is the result of the last stage."""
        if at.best is not None:
            return at, Reported(at.best.round, at.best.value)
        if not self.settings.judges_reported:
            return at, Reported(at.round, None)
        evaluated = self.evaluate(at, "validation", self._sample(self.settings.evaluate_clients))
        at = replace(at, totals=at.totals.plus(evaluated.totals))
        return at, Reported(at.round, mean(values_of(evaluated.own, self.metric.name)))

    def _finish(self, at: Checkpoint) -> Outcome:
        """The outcome of the run: test metrics with the model of the chosen round.

        All clients are evaluated, or a sample of 1,000 if there are more.
        """
        started = time.perf_counter()
        at, reported = self._reported(at)
        evaluated = self.evaluate(at, "test", self._sample(MOST_EVALUATED), final=True)
        wall = Totals(wall=time.perf_counter() - started)
        self.archive.tidy(at)
        self.spool.remove()
        return Outcome(
            clients=evaluated.clients,
            totals=at.totals.plus(evaluated.totals).plus(wall),
            rounds=at.round,
            selected=reported.round,
            validation=reported.value,
            state=at.state,
            taken_back=at.taken_back,
            clustering=at.clustering,
            stopped=at.stopped,
            over_budget=self.over_budget,
        )


def evaluation_order(
    order: Order,
    part: Part,
    *,
    final: bool,
    sends_confusion: bool = True,
) -> Order:
    """An order to evaluate what a method serves on a part of the client's data.

    With `final`, the reply tells more about the model than its metrics. This includes a confusion
    matrix if `sends_confusion` is set.
    """
    meta = {**order.meta, "part": part, "final": final}
    if final and not sends_confusion:
        meta["confusion"] = False
    return replace(order, kind="evaluate", meta=meta)


def with_model(
    evaluations: Sequence[ClientEvaluation],
    name: str,
    of_model: Sequence[ClientEvaluation],
) -> list[ClientEvaluation]:
    """The same clients' evaluations, extended by those of a model that the method names."""
    joined = []
    for evaluation, answer in zip(evaluations, of_model, strict=True):
        assert evaluation.client == answer.client
        named = {**evaluation.named, name: answer.own}
        joined.append(replace(evaluation, named=named))
    return joined


def values_of(clients: Iterable[Figures], name: str) -> list[float]:
    """The metric of this name, for the clients that have it."""
    values = []
    for figures in clients:
        value = figures.of(name)
        if value is not None:
            values.append(value)
    return values


def mean(values: Sequence[float]) -> float | None:
    """The mean of the values, or None if there are none."""
    if not values:
        return None
    return sum(values) / len(values)


def check_stages(settings: Settings, stages: Sequence[Stage], topology: Topology) -> None:
    """Raise an error if these stages cannot run, before anything is created or trained."""
    least = sum(stage.share is not None for stage in stages)
    if settings.unit == "rounds" and settings.rounds < least:
        rule = f"--rounds must be at least {least} for a method of {least} stages"
        raise FedloomError(rule, f"got {settings.rounds}", "ask for more rounds")
    check_leaves(stages)
    if isinstance(topology, Clustered):
        if settings.overselect != 1:
            raise FedloomError(
                "--overselect must be left out in a clustered topology",
                f"got {settings.overselect:g}, and the clients of a cluster stay together",
                "leave it out, or use --topology flat",
            )
        clock = RoundClock(settings.devices, settings.phases)
        topology.check_clients(settings.active, clock)
    rounds_left = float(settings.rounds)
    shares = [stage.share for stage in stages]
    for number, stage in enumerate(stages):
        if not stage.is_flat:
            topology.check(stage.method)
        check_fields(stage.method)
        rounds = None
        if settings.unit == "rounds":
            rounds = settings.stage_budget(shares, number, rounds_left)
            rounds_left -= rounds
        if stage.share is None:  # it is open-ended
            rounds = None
        stage.method.check_rounds(rounds)


def check_leaves(stages: Sequence[Stage]) -> None:
    """Raise an error unless the state that each stage leaves can have a file of its own."""
    used_names = ["init"]  # --init stores the weights that a run begins with under this name
    for stage in stages:
        if stage.leaves is None:
            continue
        if stage.leaves in used_names or not stage.leaves.isidentifier():
            raise FedloomError(
                "the state that a stage leaves must have a unique name of letters, digits and _",
                f"stage {stage.name} leaves {stage.leaves!r}",
                "fix the method",
            )
        used_names.append(stage.leaves)


def with_notes(
    rows: Sequence[ClusterRow],
    notes: Mapping[int, ClusterNote],
) -> tuple[ClusterRow, ...]:
    """The rows of the clusters, with what the method reports about each."""
    return tuple(row.with_note(notes.get(row.cluster)) for row in rows)


def check_change(before: State, after: State) -> None:
    """Raise an error if a round that asked no client left the state unchanged.

    Such a round costs nothing, so it would be planned again and again without end.
    """
    if before.meta != after.meta or before.tensors.keys() != after.tensors.keys():
        return
    for name, tensor in after.tensors.items():
        old = before.tensors[name]
        if tensor is not old and not torch.equal(tensor, old):
            return
    raise FedloomError(
        "a round that asks no client must change the server's state",
        "it has no orders and left the state as it was",
        "fix the method: its plan must ask clients, change the state, or return None",
    )


def check_notes(notes: Mapping[str, Json]) -> None:
    """Raise an error if a method's note uses a name that every row of metrics.jsonl has."""
    clashes = sorted(MetricsRow.OWN & notes.keys())
    if clashes:
        raise FedloomError(
            "a method's note must not use the names of a row of metrics.jsonl",
            f"it has {clashes[0]!r}",
            "fix the method",
        )
