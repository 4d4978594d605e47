"""The round loop: it runs stages under one budget, evaluates rounds, and writes checkpoints.

It runs any method without knowing which one it is. If the process is killed, only the current round
is lost, and of that round only the replies that are not in the journal yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedloom.config.models import Unit
from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.protocol.returned import state_from
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.budgets import Allowance, OverBudget, charged, exceeded
from fedloom.federation.server.checkpoint import Best, Checkpoint, TakenBack
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.evaluating import (
    Evaluated,
    evaluation_order,
    evaluation_row,
    mean,
    values_of,
    with_model,
)
from fedloom.federation.server.events import Listener, Notice, RoundEnded
from fedloom.federation.server.exchange import Exchange, asks_everybody
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.ledger import evaluation_of
from fedloom.federation.server.norms import UpdateBound
from fedloom.federation.server.planning import Planned, Planner, clock_of
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Receipt, Spool
from fedloom.federation.server.stage_checks import check_change, check_notes, check_stages
from fedloom.federation.server.topology import (
    Gathered,
    Topology,
)
from fedloom.metrics.metric import metric_of
from fedloom.records.rows import ClusterNote, ClusterRow, Evaluation, MetricsRow, Part, Span
from fedloom.records.totals import Totals
from fedloom.rng import rng
from fedloom.types import Json, Order, Setup, State

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
class MergedRound:
    """A round after its replies were merged, and before it is booked and saved."""

    state: State  # of the server
    gathered: Gathered
    notes: Mapping[str, Json]  # of the method
    server_macs: int
    span: Span  # by the simulated clock
    spent: Totals  # the cost of the round, without its evaluation
    totals: Totals  # of the run, including this round


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
        self.needed_versions: dict[int, Mapping[int, str]] = {}

    @property
    def planner(self) -> Planner:
        return Planner(self.settings, self.topology, self.server_data)

    def _begin(self) -> Checkpoint | None:
        """The last checkpoint that can be used, or None if the run starts at the beginning.

        The user is told what a kill, a power cut or a failing disk has damaged, and the run goes on
        without it.
        """
        saved_rounds = self.archive.rounds()
        checkpoint = self.archive.resumable()
        if saved_rounds and checkpoint is None:
            self._notify("no checkpoint can be used: the run starts again at round 0")
        elif checkpoint is not None and checkpoint.round < saved_rounds[-1]:
            damaged = f"the checkpoint of round {saved_rounds[-1]} cannot be used"
            self._notify(f"{damaged}: the run goes back to round {checkpoint.round}")
        finished_rounds = 0
        if checkpoint is not None:
            finished_rounds = checkpoint.round
        damage = self.spool.repair(finished_rounds + 1)
        if damage is not None:
            self._notify(damage)
        if checkpoint is not None:
            for number in self.archive.needed(checkpoint):
                self.needed_versions[number] = self._versions(number)
        self._check_stage_states(checkpoint)
        return checkpoint

    def _check_stage_states(self, checkpoint: Checkpoint | None) -> None:
        """Check the states that finished stages left, and delete those of later stages.

        The latter come from rounds that were taken back.
        """
        running = 0
        if checkpoint is not None:
            running = checkpoint.stage
        for number, stage in enumerate(self.stages):
            if stage.leaves is None:
                continue
            if number >= running:
                self.archive.forget_stage_state(stage.leaves)
                continue
            try:
                self.archive.stage_state(stage.leaves)
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
        checkpoint = self._begin()
        self.archive.cut_metrics(checkpoint or Checkpoint())
        if checkpoint is None:
            checkpoint = self._enter(0, Checkpoint())
        elif checkpoint.round == 0:
            # A run that was taken back to its beginning keeps only this fact.
            checkpoint = self._enter(0, Checkpoint(taken_back=checkpoint.taken_back))
        self._keep_scores(checkpoint)
        while checkpoint.stage < len(self.stages):
            checkpoint = self._next_checkpoint(checkpoint)
        return self._finish(checkpoint)

    def _next_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint after one more round, or at the start of the next stage."""
        stopped = self._stopped_by(checkpoint)
        if stopped is None:
            outcome = self._round(checkpoint)
            if isinstance(outcome, Checkpoint):
                return outcome
            if outcome is not None:
                self._drop(checkpoint, outcome)
                stopped = outcome.limit
        if stopped is not None:
            checkpoint = replace(checkpoint, stopped=stopped)
        return self._enter(checkpoint.stage + 1, checkpoint)

    def _drop(self, checkpoint: Checkpoint, over: OverBudget) -> None:
        """Discard a round that exceeded a limit, as if it had never happened."""
        self.spool.clear()
        self.over_budget = over
        limit = self.settings.limits[over.limit]
        cost = over.cost[over.limit]
        if checkpoint.round == 0:
            raise FedloomError(
                f"--budget {over.limit} must allow one round, which needs {cost:g}",
                f"got {limit:g}",
                "raise it",
            )
        spent = charged(checkpoint.totals)[over.limit]
        self._notify(
            f"round {over.round} was dropped: it would have cost {cost:g} {over.limit}, "
            f"and {limit - spent:g} are left of the limit"
        )

    def _keep_scores(self, checkpoint: Checkpoint) -> None:
        """Write scores.jsonl from the state.

        The file may be out of date: the process may have been killed between a checkpoint and this
        step, or the run may have been taken back.
        """
        if checkpoint.stage == len(self.stages):
            return
        rows = self.stages[checkpoint.stage].method.scores(checkpoint.state)
        if rows is not None:
            self.archive.keep_scores(rows)

    # Stages and budget

    def _enter(self, stage: int, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint at the start of a stage.

        It has the stage's share of the remaining budget, and the first state of its method.
        """
        handed_on = self._handed_on(checkpoint)
        self._keep_left_state(stage - 1, handed_on.state)
        if stage == len(self.stages):
            return replace(
                checkpoint,
                stage=stage,
                state=handed_on.state,
                versions=handed_on.versions,
            )
        checkpoint = self._describe_all(checkpoint, self.stages[stage].method, stage)
        state = self._first_state(stage, checkpoint, handed_on.state)
        versions: Mapping[int, str] = {}
        if self.stages[stage].keeps_own:
            versions = handed_on.versions
        remaining = self.settings.budget - checkpoint.charged
        return replace(
            checkpoint,
            stage=stage,
            state=state,
            versions=versions,
            began=checkpoint.charged,
            budget=self.settings.stage_budget(self.shares, stage, remaining),
            last_cost=0.0,
            best=None,
            norms={},
            allowance=Allowance.of_stage(
                self.settings.limits,
                checkpoint.totals,
                self.settings.stage_share(self.shares, stage),
            ),
        )

    def _keep_left_state(self, finished_stage: int, state: State) -> None:
        """Save the state that a finished stage hands on, if it has a name for it."""
        if finished_stage < 0:
            return
        leaves = self.stages[finished_stage].leaves
        if leaves is not None:
            self.archive.keep_stage_state(leaves, state)

    def _first_state(self, stage: int, checkpoint: Checkpoint, handed_on: State) -> State:
        """The state with which a stage's method begins."""
        setup = Setup(
            self.settings.task,
            self.settings.population,
            checkpoint.described,
            self.server_data,
            self.settings.tiers,
        )
        method = self.stages[stage].method
        if stage > 0:
            return state_from(method, "init", method.init(setup, handed_on))
        state = state_from(method, "init", method.init(setup, self.start))
        if self.start is None:
            return state
        return fitted(state, self.start)

    def _is_over(self, checkpoint: Checkpoint) -> bool:
        return self._stopped_by(checkpoint) is not None

    def _stopped_by(self, checkpoint: Checkpoint) -> Unit | None:
        """The unit in which the stage has spent its budget or a limit; None if it goes on.

        A stage ends where it comes nearest to its budget, even if that is a little over.
        """
        reserved = self.settings.reserve(self.shares, checkpoint.stage)
        limit = checkpoint.allowance.stopped_by(checkpoint.totals, reserved)
        if limit is not None or self.stages[checkpoint.stage].share is None:
            return limit
        budget = checkpoint.budget
        spent = checkpoint.spent
        if budget <= 0 or spent >= budget or spent + checkpoint.last_cost / 2 > budget:
            return self.settings.unit
        return None

    def _handed_on(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint that a finished stage hands on: its last round, or its best one.

        The best round is the one with the best validation metric.
        """
        if checkpoint.best is None or checkpoint.best.round == checkpoint.round:
            return checkpoint
        # Its file was checked when the run resumed, or was written since.
        return self.archive.load(checkpoint.best.round)

    def _selects(self, stage: int) -> bool:
        """Whether a stage hands on its best round, by the clients' validation metrics."""
        if not self.holds_back:
            return False
        return self.settings.select == "best" or self.stages[stage].select == "best"

    # One round

    def _round(self, checkpoint: Checkpoint) -> Checkpoint | OverBudget | None:
        """The checkpoint after one more round, or None if the method plans no more rounds.

        A round whose plan has no orders asks no client: the server alone works, in `plan` and
        `merge`. Such a round costs what the server computed, but does not count as a round, and it
        needs no replies.
        """
        started = time.perf_counter()
        exchange = self._exchange(self.stages[checkpoint.stage], checkpoint.round + 1, checkpoint)
        planned = self.planner.plan(checkpoint, exchange)
        if planned is None:
            return None
        merged = self._merged(checkpoint, exchange, planned)
        limit = exceeded(self.settings.limits, merged.totals)
        if limit is not None:
            return OverBudget(exchange.number, limit, charged(merged.spent))
        row = self._row(merged, exchange, planned)
        after = self._after_round(checkpoint, merged, exchange, asks_nobody=planned.asks_nobody)
        if self._is_evaluated(after, asks_nobody=planned.asks_nobody):
            after, evaluation = self._assess(after)
            row = replace(row, evaluation=evaluation)
        wall = time.perf_counter() - started
        after = replace(after, totals=after.totals.plus(Totals(wall=wall)))
        row = replace(row, totals=after.totals)
        after = self.archive.save(after, row)
        self._keep_scores(after)
        self._forget(after)
        self.listen(RoundEnded(row, self._share_spent(after)))
        return after

    def _merged(self, checkpoint: Checkpoint, exchange: Exchange, planned: Planned) -> MergedRound:
        """Carry out a planned round, and merge its replies into the server's state."""
        view = planned.view
        stage = self.stages[checkpoint.stage]
        log.debug("round %d: %d orders", exchange.number, len(planned.orders))
        cost_of_questions = exchange.take_questions()
        accounts = exchange.accounts
        accounts.receipts = [*self.prologue, *accounts.receipts]
        self.prologue = []
        orders = exchange.describe(planned.orders)
        gathered = Gathered(())
        if not planned.asks_nobody:
            topology = self.planner.topology_of(stage)
            clock = clock_of(planned, orders, self.settings, topology.hops)
            situation = self.planner.situation(checkpoint, exchange, view, clock)
            gathered = topology.gather(orders, exchange.work, situation)
            accounts.transfers = gathered.transfers
        notes = stage.method.note(planned.state, view)
        with Meter() as merging:
            if exchange.is_lost:
                state = checkpoint.state
            else:
                merged = stage.method.merge(planned.state, orders, gathered.replies, view)
                state = state_from(stage.method, "merge", merged)
        notes = {**notes, **stage.method.note_after(state, view)}
        check_notes(notes)
        server = Totals(rounds=1, server_macs=planned.macs + merging.macs)
        if planned.asks_nobody:
            check_change(checkpoint.state, state)
            server = replace(server, rounds=0)
        span = Span(view.now, view.now + gathered.seconds)
        server = replace(server, simulated=span.end - checkpoint.totals.simulated)
        spent = accounts.totals().plus(gathered.traffic).plus(server)
        totals = checkpoint.totals.plus(spent).plus(cost_of_questions)
        totals = replace(totals, simulated=span.end)  # exactly: the sum would be rounded
        return MergedRound(state, gathered, notes, server.server_macs, span, spent, totals)

    def _after_round(
        self,
        checkpoint: Checkpoint,
        merged: MergedRound,
        exchange: Exchange,
        *,
        asks_nobody: bool,
    ) -> Checkpoint:
        """The checkpoint after a round, which may still be evaluated."""
        cost = self.settings.charge(merged.spent.spent(self.settings.unit), asks_nobody=asks_nobody)
        versions: Mapping[int, str] = exchange.versions
        if exchange.is_lost:
            versions = checkpoint.versions
        return replace(
            checkpoint,
            round=exchange.number,
            state=merged.state,
            versions=versions,
            described=exchange.described,
            charged=checkpoint.charged + cost,
            last_cost=cost,
            totals=merged.totals,
            norms=exchange.bound.history_after(),
            clustering=merged.gathered.clustering or checkpoint.clustering,
            allowance=checkpoint.allowance.after(merged.spent),
            held=self._held(checkpoint, exchange, asks_nobody=asks_nobody),
        )

    def _row(self, merged: MergedRound, exchange: Exchange, planned: Planned) -> MetricsRow:
        """The round's row in metrics.jsonl, without its evaluation and the run's totals."""
        gathered = merged.gathered
        cluster_notes = exchange.stage.method.note_clusters(planned.state)
        row = replace(
            exchange.row(planned.view.progress, merged.notes),
            server_macs=merged.server_macs,
            clusters=with_notes(gathered.clusters, cluster_notes),
            population=gathered.population,
            paces=gathered.paces,
        )
        if self.settings.devices:
            row = replace(row, simulated=merged.span)
        return row

    def _held(
        self,
        checkpoint: Checkpoint,
        exchange: Exchange,
        *,
        asks_nobody: bool,
    ) -> tuple[int, ...]:
        """The rounds whose checkpoints are kept until a round succeeds.

        If most clients fail, an earlier round may have spoiled the model. A round that asks no
        client gives no evidence about that.
        """
        if asks_nobody:
            return checkpoint.held
        if exchange.accounts.succeeded():
            return ()
        return checkpoint.held or tuple(self.archive.rounds()[-2:])

    def _forget(self, checkpoint: Checkpoint) -> None:
        """After a checkpoint, forget the round's replies.

        Versions of client states that only deleted checkpoints named are forgotten too.
        """
        self.needed_versions[checkpoint.round] = checkpoint.versions
        rounds = self.archive.rounds()
        for number in list(self.needed_versions):
            if number not in rounds:
                del self.needed_versions[number]
        self.spool.clear()

    def _share_spent(self, checkpoint: Checkpoint) -> float:
        """The spent share of the whole budget, or of a limit if that is more."""
        if self.settings.budget <= 0:
            return 1.0
        largest = checkpoint.charged / self.settings.budget
        spent = charged(checkpoint.totals)
        for name, limit in self.settings.limits.items():
            largest = max(largest, spent[name] / limit)
        return min(1.0, largest)

    def _exchange(self, stage: Stage, number: int, checkpoint: Checkpoint) -> Exchange:
        return Exchange(
            self.settings,
            self.engine,
            self.spool,
            stage,
            number,
            self.needed_versions,
            versions=dict(checkpoint.versions),
            described=dict(checkpoint.described),
            listen=self.listen,
            bound=UpdateBound(checkpoint.norms, self.settings.norm_bound),
        )

    # Describing

    def _describe_all(self, checkpoint: Checkpoint, method: Method, stage: int) -> Checkpoint:
        """Describe all clients before a stage, if the stage needs it."""
        if not asks_everybody(method, stage, self.settings):
            return checkpoint
        # All clients are asked again: this stage may ask for more than the one before.
        undescribed = replace(checkpoint, described={})
        exchange = self._exchange(self.stages[stage], checkpoint.round + 1, undescribed)
        exchange.describe([Order(client, "describe") for client in range(self.settings.population)])
        self.prologue = exchange.accounts.receipts
        # The sample counts that a client described first remain valid.
        for client in exchange.described.keys() & checkpoint.described.keys():
            samples = checkpoint.described[client].samples
            exchange.described[client] = replace(exchange.described[client], samples=samples)
        return replace(checkpoint, described=exchange.described)

    # Evaluation

    def _is_evaluated(self, checkpoint: Checkpoint, *, asks_nobody: bool) -> bool:
        """Whether this round is evaluated.

        A round that asks no client is not, unless it may be the last one of its stage.
        """
        if checkpoint.round % self.settings.evaluate_every == 0 and not asks_nobody:
            return True
        is_over = self._is_over(checkpoint)
        is_last_stage = checkpoint.stage == len(self.stages) - 1
        if is_over and not is_last_stage:  # so that the result of every stage is known
            return True
        may_end_after_any_round = self.stages[checkpoint.stage].share is None
        return self._selects(checkpoint.stage) and (is_over or may_end_after_any_round)

    def _assess(self, checkpoint: Checkpoint) -> tuple[Checkpoint, Evaluation]:
        """Evaluate the round, and record it if it is the best so far."""
        part: Part = "test"
        if self.holds_back:
            part = "validation"
        evaluated = self.evaluate(checkpoint, part, self._sample(self.settings.evaluate_clients))
        checkpoint = replace(checkpoint, totals=checkpoint.totals.plus(evaluated.totals))
        row = evaluation_row(evaluated, part, self.metric, self.settings.task.labels)
        value = row.value
        if value is None or not self._selects(checkpoint.stage):
            return checkpoint, row
        if self._improves(value, checkpoint.best):
            checkpoint = replace(checkpoint, best=Best(checkpoint.round, value))
        return checkpoint, row

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
        checkpoint: Checkpoint,
        part: Part,
        clients: Sequence[int],
        *,
        final: bool = False,
    ) -> Evaluated:
        """Let clients evaluate the model of a checkpoint, which changes no client's state.

        A client that does not answer has no metrics, but a reason. In the final evaluation clients
        also evaluate the models that the method names, one after the other.
        """
        stage = self.stages[min(checkpoint.stage, len(self.stages) - 1)]
        method = stage.method
        exchange = self._exchange(stage, checkpoint.round, checkpoint)
        orders = []
        for client in clients:
            order = method.serve(checkpoint.state, client)
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
            for name in method.models(checkpoint.state):
                orders = []
                for client in clients:
                    order = method.serve_model(checkpoint.state, name, client)
                    orders.append(evaluation_order(order, part, final=False))
                evaluations = with_model(evaluations, name, exchange.evaluate(orders))
        totals = evaluation_of(exchange.accounts.bookings())
        return Evaluated(tuple(evaluations), totals, exchange.accounts.deaths())

    def _reported(self, checkpoint: Checkpoint) -> tuple[Checkpoint, Reported]:
        """The round that is reported, which is the result of the last stage."""
        if checkpoint.best is not None:
            return checkpoint, Reported(checkpoint.best.round, checkpoint.best.value)
        if not self.settings.judges_reported:
            return checkpoint, Reported(checkpoint.round, None)
        clients = self._sample(self.settings.evaluate_clients)
        evaluated = self.evaluate(checkpoint, "validation", clients)
        checkpoint = replace(checkpoint, totals=checkpoint.totals.plus(evaluated.totals))
        value = mean(values_of(evaluated.own, self.metric.name))
        return checkpoint, Reported(checkpoint.round, value)

    def _finish(self, checkpoint: Checkpoint) -> Outcome:
        """The outcome of the run: test metrics with the model of the chosen round.

        All clients are evaluated, or a sample of 1,000 if there are more.
        """
        started = time.perf_counter()
        checkpoint, reported = self._reported(checkpoint)
        evaluated = self.evaluate(checkpoint, "test", self._sample(MOST_EVALUATED), final=True)
        wall = Totals(wall=time.perf_counter() - started)
        self.archive.tidy(checkpoint)
        self.spool.remove()
        return Outcome(
            clients=evaluated.clients,
            totals=checkpoint.totals.plus(evaluated.totals).plus(wall),
            rounds=checkpoint.round,
            selected=reported.round,
            validation=reported.value,
            state=checkpoint.state,
            taken_back=checkpoint.taken_back,
            clustering=checkpoint.clustering,
            stopped=checkpoint.stopped,
            over_budget=self.over_budget,
        )


def with_notes(
    rows: Sequence[ClusterRow],
    notes: Mapping[int, ClusterNote],
) -> tuple[ClusterRow, ...]:
    """The rows of the clusters, with what the method reports about each."""
    return tuple(row.with_note(notes.get(row.cluster)) for row in rows)
