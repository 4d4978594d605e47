"""The round loop: stages under one budget, rounds, evaluation, the best so far, checkpoints.

It takes a method and never knows which. All it may lose to a kill is the round it is in, and of
that only the replies not yet in the journal.
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
    clients: tuple[ClientEvaluation, ...]  # on their test parts
    totals: Totals
    rounds: int
    selected: int  # the round that is reported
    validation: (
        float | None
    )  # its mean validation figure, if rounds were selected by it or it was asked for
    state: State
    taken_back: tuple[TakenBack, ...] = ()
    clustering: Clustering | None = None  # the last one
    stopped: Unit = "rounds"  # the limit that ended the run, or one of its stages
    over_budget: OverBudget | None = None  # the last round that went over a limit


@dataclass(frozen=True)
class Reported:
    """The round whose model is the run's result."""

    round: int
    value: float | None  # its mean validation figure, if there is one


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation brought."""

    clients: tuple[ClientEvaluation, ...]
    totals: Totals
    deaths: tuple[WorkerDeath, ...]

    @property
    def own(self) -> list[Figures]:
        """Of the models that clients use, as far as clients answered, in client order."""
        figures = []
        for client in self.clients:
            if client.own.figures is not None:
                figures.append(client.own.figures)
        return figures

    @property
    def shared(self) -> list[Figures]:
        """The same of the shared model."""
        return [client.shared for client in self.clients if client.shared is not None]


@dataclass
class Loop:
    settings: Settings
    stages: Sequence[Stage]
    engine: Engine
    spool: Spool
    topology: Topology
    archive: Archive
    server_data: Samples | None = None
    holds_back: bool = False  # whether clients keep a validation part for selection
    listen: Listener = lambda event: None
    # The first stage begins with this instead of what the seed would give.
    start: State | None = None

    def __post_init__(self) -> None:
        check_stages(self.settings, self.stages, self.topology)
        self.metric = metric_of(self.settings.task.kind)
        self.shares = [stage.share for stage in self.stages]
        # Everybody was described before a stage: its first round books these receipts.
        self.prologue: list[Receipt] = []
        self.over_budget: OverBudget | None = None
        # The versions of clients' states, by the round of a checkpoint to come back to.
        self.named: dict[int, Mapping[int, str]] = {}

    def _begin(self) -> Checkpoint | None:
        """The last checkpoint that can be used.

        What a kill, a power cut or a failing disk damaged is named, and done without.
        """
        reached = self.archive.rounds()
        at = self.archive.resumable()
        if reached and at is None:
            self._tell("no checkpoint can be used: the run begins anew at round 0")
        elif at is not None and at.round < reached[-1]:
            damaged = f"the checkpoint of round {reached[-1]} cannot be used"
            self._tell(f"{damaged}: the run goes back to round {at.round}")
        finished = 0
        if at is not None:
            finished = at.round
        damage = self.spool.mend(finished + 1)
        if damage is not None:
            self._tell(damage)
        if at is not None:
            self.named = {number: self._versions(number) for number in self.archive.needed(at)}
        self._look_at_left(at)
        return at

    def _look_at_left(self, at: Checkpoint | None) -> None:
        """What finished stages left must be whole; what others left is of rounds that are gone."""
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
                self._tell(f"what stage {stage.name} left cannot be used: {error}")

    def _tell(self, text: str) -> None:
        log.warning("%s", text)
        self.listen(Notice(text))

    def _versions(self, number: int) -> Mapping[int, str]:
        try:
            return self.archive.load(number).versions
        except (OSError, WireError):  # damaged: there is nothing to come back to
            return {}

    def run(self) -> Outcome:
        """From the last checkpoint, or the beginning, to the end."""
        at = self._begin()
        self.archive.cut_metrics(at or Checkpoint())
        if at is None:
            at = self._enter(0, Checkpoint())
        elif at.round == 0:  # taken back to its beginning, a run remembers nothing but that
            at = self._enter(0, Checkpoint(taken_back=at.taken_back))
        self._keep_scores(at)
        while at.stage < len(self.stages):
            at = self._after(at)
        return self._finish(at)

    def _after(self, at: Checkpoint) -> Checkpoint:
        """One more round, or the next stage if this one is over."""
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
        """A round that went over a limit never happened: nothing of it is taken."""
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
        self._tell(
            f"round {over.round} was dropped: it would have cost {cost:g} {over.limit} "
            f"of the limit's last {limit - spent:g}"
        )

    def _keep_scores(self, at: Checkpoint) -> None:
        """Write scores.jsonl as the state has it.

        A kill may have come between a checkpoint and this, and a run may have been taken back.
        """
        if at.stage == len(self.stages):
            return
        rows = self.stages[at.stage].method.scores(at.state)
        if rows is not None:
            self.archive.keep_scores(rows)

    # Stages and budget

    def _enter(self, stage: int, at: Checkpoint) -> Checkpoint:
        """The beginning of a stage: its share of what is left, and its method's first state."""
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
        state = entered.method.init(setup, before)
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
        """What ends the stage: its budget, whose number of rounds is the nearest, or a limit.

        None: it goes on.
        """
        reserved = self.settings.reserve(self.shares, at.stage)
        limit = at.allowance.stopped_by(at.totals, reserved)
        if limit is not None or self.stages[at.stage].share is None:
            return limit
        if at.budget <= 0 or at.spent + at.last_cost / 2 > at.budget or at.spent >= at.budget:
            return self.settings.unit
        return None

    def _chosen(self, at: Checkpoint) -> Checkpoint:
        """What a finished stage hands on: its last round, or its best on validation."""
        if at.best is None or at.best.round == at.round:
            return at
        # It was whole when the run went on, or was saved since.
        return self.archive.load(at.best.round)

    def _selects(self, stage: int) -> bool:
        """Whether the best round of a stage goes on, by the clients' validation figures."""
        if not self.holds_back:
            return False
        return self.settings.select == "best" or self.stages[stage].select == "best"

    # One round

    def _round(self, at: Checkpoint) -> Checkpoint | OverBudget | None:
        """The checkpoint after one more round; None: the method plans no more.

        A round whose plan has no orders asks nobody: its work is the server's own, in `plan` and
        `merge`. It costs what the server computed, but no round, and needs no replies.
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
                state = stage.method.merge(state, orders, gathered.replies, view)
        notes = {**notes, **stage.method.note_after(state, view)}
        check_notes(notes)
        own = Totals(rounds=1, server_macs=planned.macs + merging.macs)
        if asks_nobody:
            check_change(at.state, state)
            own = replace(own, rounds=0)
        span = Span(view.now, view.now + gathered.seconds)
        own = replace(own, simulated=span.end - at.totals.simulated)
        spent = exchange.totals().plus(gathered.traffic).plus(own)
        totals = at.totals.plus(spent).plus(asked_before)
        totals = replace(totals, simulated=span.end)  # a sum would be rounded
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
            server_macs=own.server_macs,
            clusters=with_notes(gathered.clusters, stage.method.note_clusters(planned.state)),
            population=gathered.population,
            paces=gathered.paces,
        )
        if self.settings.devices:
            row = replace(row, simulated=span)
        if self._due(at, asks_nobody=asks_nobody):
            at, evaluation = self._assess(at)
            row = replace(row, evaluation=evaluation)
        wall = time.perf_counter() - started
        at = replace(at, totals=at.totals.plus(Totals(wall=wall)))
        row = replace(row, totals=at.totals)
        at = self.archive.save(at, row)
        self._keep_scores(at)
        self._forget(at)
        self.listen(RoundEnded(row, self._done(at)))
        return at

    def _held(
        self,
        at: Checkpoint,
        exchange: Exchange,
        *,
        asks_nobody: bool,
    ) -> tuple[int, ...]:
        """Checkpoints that stay until a round succeeds.

        Where most clients fail, an earlier round may have spoiled the model. A round that asks
        nobody cannot tell.
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
        """The clusters are those that the plan was told of, or the latest."""
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
        settings = self.settings
        by_limits = at.allowance.share_spent(at.totals) * at.budget
        stage = self.stages[at.stage]
        topology = self._topology(stage)
        number = exchange.number
        clustering = topology.holding(at.clustering, stage.name, number)
        kept = None
        if clustering is not None:
            kept = clustering.clients
        view = Round(
            number=number,
            spent=max(at.spent, by_limits),
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
        )
        clock = RoundClock(settings.devices, settings.phases)
        return with_grouping(view, topology, self._situation(at, view, clock, exchange))

    def _forget(self, at: Checkpoint) -> None:
        """After a checkpoint, nobody needs the round's replies any more.

        Neither does anybody need versions that only older checkpoints named.
        """
        self.named[at.round] = at.versions
        kept = set(self.archive.rounds())
        for number in list(self.named):
            if number not in kept:
                del self.named[number]
        self.spool.clear()

    def _done(self, at: Checkpoint) -> float:
        """The share of the whole budget that is spent, or of a limit, if that is more."""
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
        """Before a stage that asks everybody first."""
        if not asks_everybody(method, stage, self.settings):
            return at
        unknown = replace(at, described={})  # a later stage may ask for more than the one before
        exchange = self._exchange(self.stages[stage], at.round + 1, unknown)
        exchange.describe([Order(client, "describe") for client in range(self.settings.population)])
        self.prologue = exchange.receipts
        # The sample counts of a client's first contact stand.
        for client in exchange.described.keys() & at.described.keys():
            samples = at.described[client].samples
            exchange.described[client] = replace(exchange.described[client], samples=samples)
        return replace(at, described=exchange.described)

    # Evaluation

    def _due(self, at: Checkpoint, *, asks_nobody: bool) -> bool:
        """Whether this round is evaluated.

        One that asks nobody is not, unless it may be the one that its stage ends with.
        """
        if at.round % self.settings.evaluate_every == 0 and not asks_nobody:
            return True
        is_last_stage = at.stage == len(self.stages) - 1
        if self._over(at) and not is_last_stage:  # else nobody would know what a stage ended with
            return True
        open_ended = self.stages[at.stage].share is None  # it may end after any round
        may_be_last = open_ended or self._over(at)
        return self._selects(at.stage) and may_be_last

    def _assess(self, at: Checkpoint) -> tuple[Checkpoint, Evaluation]:
        """Evaluate the round, and note it if it is the best so far."""
        part: Part = "test"
        if self.holds_back:
            part = "validation"
        evaluated = self.evaluate(at, part, self._sample(self.settings.evaluate_clients))
        at = replace(at, totals=at.totals.plus(evaluated.totals))
        values = known(evaluated.own, self.metric.name)
        value = mean(values)
        if self._selects(at.stage) and value is not None and self._improves(value, at.best):
            at = replace(at, best=Best(at.round, value))
        shared_beside = self._beside(evaluated.shared)
        evaluation = Evaluation(
            part=part,
            clients=len(values),
            metric=self.metric.name,
            value=value,
            shared=mean(known(evaluated.shared, self.metric.name)),
            deaths=evaluated.deaths,
            **self._beside(evaluated.own),
            **{f"shared_{name}": value for name, value in shared_beside.items()},
        )
        return at, evaluation

    def _beside(self, clients: Sequence[Figures]) -> dict[str, float | None]:
        """Means of the figures in which every class counts the same, by their names.

        AUC is told of two classes alone.
        """
        means = {}
        for name in BESIDE:
            if name not in self.metric.columns:
                continue
            if name == "auc" and len(self.settings.task.labels) != 2:
                continue
            means[name] = mean(known(clients, name))
        return means

    def _improves(self, value: float, best: Best | None) -> bool:
        return best is None or self.metric.better(value, best.value)

    def _sample(self, most: int) -> Sequence[int]:
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
        """Read-only orders; a client that gives no answer has null figures, with a reason.

        In the final evaluation clients are also asked for the models that the method names, for one
        after the other.
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
                    tells_confusion=self.settings.tells_confusion,
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
        """The round that the report is of, which the last stage ended with."""
        if at.best is not None:
            return at, Reported(at.best.round, at.best.value)
        if not self.settings.judges_reported:
            return at, Reported(at.round, None)
        evaluated = self.evaluate(at, "validation", self._sample(self.settings.evaluate_clients))
        at = replace(at, totals=at.totals.plus(evaluated.totals))
        return at, Reported(at.round, mean(known(evaluated.own, self.metric.name)))

    def _finish(self, at: Checkpoint) -> Outcome:
        """The report: test figures with the model of the chosen round.

        It is of every client, or of a sample above 1,000.
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
    tells_confusion: bool = True,
) -> Order:
    """What a method serves, as an order to evaluate it on a part of the client's data.

    `final`: the reply tells more of the model than its figures; counts per pair of classes are
    among that, if `tells_confusion`.
    """
    meta = {**order.meta, "part": part, "final": final}
    if final and not tells_confusion:
        meta["confusion"] = False
    return replace(order, kind="evaluate", meta=meta)


def with_model(
    evaluations: Sequence[ClientEvaluation],
    name: str,
    of_model: Sequence[ClientEvaluation],
) -> list[ClientEvaluation]:
    """The same clients' evaluations, with that of a model which the method names."""
    joined = []
    for evaluation, answer in zip(evaluations, of_model, strict=True):
        assert evaluation.client == answer.client
        named = {**evaluation.named, name: answer.own}
        joined.append(replace(evaluation, named=named))
    return joined


def known(clients: Iterable[Figures], name: str) -> list[float]:
    """The figures of this name, of the clients that have one."""
    values = []
    for figures in clients:
        value = figures.of(name)
        if value is not None:
            values.append(value)
    return values


def mean(values: Sequence[float]) -> float | None:
    """None: there are none."""
    if not values:
        return None
    return sum(values) / len(values)


def check_stages(settings: Settings, stages: Sequence[Stage], topology: Topology) -> None:
    """Whether these stages can run so: to be asked before anything is made or trained."""
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
    """Whether what stages leave can be files of their own in the run's folder."""
    taken = ["init"]  # what --init made a run begin with
    for stage in stages:
        if stage.leaves is None:
            continue
        if stage.leaves in taken or not stage.leaves.isidentifier():
            raise FedloomError(
                "what a stage leaves must have a name of its own, of letters, digits and _",
                f"stage {stage.name} leaves {stage.leaves!r}",
                "mend the method",
            )
        taken.append(stage.leaves)


def with_notes(
    rows: Sequence[ClusterRow],
    notes: Mapping[int, ClusterNote],
) -> tuple[ClusterRow, ...]:
    """What the round was in every cluster, with what the method says of it."""
    return tuple(row.with_note(notes.get(row.cluster)) for row in rows)


def check_change(before: State, after: State) -> None:
    """Whether a round that asked nobody did something.

    One that did not would be planned again and again, for ever: it costs nothing.
    """
    if before.meta != after.meta or before.tensors.keys() != after.tensors.keys():
        return
    for name, tensor in after.tensors.items():
        old = before.tensors[name]
        if tensor is not old and not torch.equal(tensor, old):
            return
    raise FedloomError(
        "a round that asks nobody must change the server's state",
        "it has no orders and left the state as it was",
        "mend the method: its plan must ask clients, change the state, or say None",
    )


def check_notes(notes: Mapping[str, Json]) -> None:
    """A row of metrics.jsonl has names of its own, which a method's note would hide."""
    taken = sorted(MetricsRow.OWN & notes.keys())
    if taken:
        raise FedloomError(
            "a method's note must have names of its own",
            f"it has {taken[0]!r}",
            "mend the method",
        )
