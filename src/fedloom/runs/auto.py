"""`fedloom auto`: carries out its contest, and decides which contestant's model to use.

The contestants are runs of a comparison (auto_plan.py). The reported round of each gets a figure on
the validation part, and whatever is chosen here is chosen by that. Figures on test data are
reported and decide nothing.

The common winner is the best by mean validation figure. A client uses another contestant's model
only where that is decisive on its own validation part (evaluate/leaderboard.py): both models answer
the same samples, and those right only by one exceed those right only by the other by more than the
root of both counts together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from fedloom.config.models import BudgetConfig, Experiment, validated
from fedloom.data.split import Split
from fedloom.errors import FedloomError, TooFewReplies
from fedloom.evaluate.leaderboard import (
    AnswerQuality,
    Contestant,
    Limits,
    client_fits_limits,
    figures_by_client,
    fits_limits,
    leaderboard,
    on_test,
    rank,
    row_of,
    winner_of_client,
)
from fedloom.evaluate.verdict import in_words, verdict
from fedloom.federation.client.site import scores_on
from fedloom.federation.server.events import Notice
from fedloom.metrics.metric import Metric
from fedloom.records.auto import AutoResult, ClientWinner, LeaderboardRow, OnTest, Spent
from fedloom.records.decision import Decision
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Contest, Plan
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult
from fedloom.records.rows import METRICS_FILE, read_rows
from fedloom.records.totals import Totals
from fedloom.report.leaderboard import decisions_table, leaderboard_table, next_steps
from fedloom.report.notebook import table_html
from fedloom.report.page import try_report
from fedloom.report.progress import Screen
from fedloom.report.versus import write_comparison
from fedloom.runs.auto_plan import UNNAMED, budget_of, contest_of, number_after_rung
from fedloom.runs.comparison import Comparison, ComparisonRunner, comparison_runner
from fedloom.runs.finished import open_finished
from fedloom.runs.results import Run
from fedloom.threads import one_thread
from fedloom.types import Json


@dataclass(frozen=True)
class Auto(Comparison):
    """A finished contest: a comparison, and the decisions that follow from it."""

    result: AutoResult = field(kw_only=True)

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def leaderboard(self) -> list[LeaderboardRow]:
        return self.result.leaderboard

    @property
    def winner(self) -> Run:
        """The run of the common winner: `auto.winner.export("onnx", client=3)`."""
        return self.run_of(self.result.winner.name)

    def run_of(self, name: str) -> Run:
        names = [row.name for row in self.rows]
        return self.runs[names.index(name)]

    def to_json(self) -> Json:
        """What a comparison gives, and what result.json has beside that."""
        comparison = super().to_json()
        decided = {}
        for name, value in self.result.to_json().items():
            if name not in ("runs", "methods"):
                decided[name] = value
        return {"auto": str(self.path), **comparison, **decided}

    def table(self) -> None:
        """Print the verdict, the leaderboard and every decision."""
        from rich.console import Console

        console = Console(markup=False)
        console.print(self.verdict, style="bold", highlight=False)
        console.print(self._leaderboard())
        console.print(decisions_table(self.result.decisions))

    def next_steps(self) -> list[str]:
        return next_steps(self.path, self.winner.path, self.result)

    def _repr_html_(self) -> str:
        from fedloom.report.html import tag

        sentence = tag("p", tag("strong", self.verdict))
        decisions = decisions_table(self.result.decisions)
        return f"{sentence}{table_html(self._leaderboard())}{table_html(decisions)}"

    def _leaderboard(self) -> Table:
        data = self.runs[0].record.data
        place = f"{data.name}, {data.partition}"
        return leaderboard_table(self.result, self.runs[0].metric, place)


def continue_auto(folder: RunFolder, screen: Screen) -> Auto:
    """Carry out a contest: read finished runs, resume started ones, and start the others."""
    with comparison_runner(folder, screen) as runner:
        return ContestRunner(runner, contest_of(runner.plan)).run()


@dataclass(frozen=True)
class Rung:
    """The first runs of the named variants, and which of them get the whole budget."""

    survivors: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    decision: Decision | None = None


@dataclass(frozen=True)
class ContestRunner:
    """A contest that is being carried out."""

    runner: ComparisonRunner
    contest: Contest

    @property
    def plan(self) -> Plan:
        return self.runner.plan

    @property
    def control(self) -> str:
        return self.plan.methods[0]

    @property
    def main(self) -> str:
        return self.plan.methods[1]

    def run(self) -> Auto:
        runs: dict[str, Run] = {}
        runs[self.control], split = self._run(self.control, None)
        runs[self.main], _ = self._run(self.main, split)
        rung = self._rung(split)
        for method in rung.survivors:
            run = self._run_variant(self._name_of_run(method), method, split, 1.0)
            if run is not None:
                runs[method] = run
        result = self._result(runs, rung)
        folder = self.runner.folder
        folder.write_json(RESULT, result.to_json())
        try_report(folder, write_comparison)
        return Auto(folder.path, list(runs.values()), result.methods, result=result)

    def _name_of_run(self, method: str) -> str:
        return f"{self.runner.label(method)}-seed{self.plan.seeds[0]}"

    def _run(self, method: str, split: Split | None) -> tuple[Run, Split]:
        changes = {"budget": budget_of(self.plan, 1.0)}
        name = self._name_of_run(method)
        return self.runner.run_one(name, method, self.plan.seeds[0], changes, split)

    def _run_variant(self, name: str, method: str, split: Split, share: float) -> Run | None:
        """The run of a named variant with this share of the budget; None: its training failed."""
        changes = {"budget": budget_of(self.plan, share)}
        try:
            run, _ = self.runner.run_one(name, method, self.plan.seeds[0], changes, split)
        except TooFewReplies:
            text = "no reply could be used any more: this contestant is left out"
            self.runner.screen.listener(name)(Notice(text))
            return None
        return run

    def _rung(self, split: Split) -> Rung:
        """Run all named variants with a share of the budget, if they are many."""
        variants = self.plan.methods[UNNAMED:]
        if self.contest.rung is None:
            return Rung(variants)
        runs: dict[str, Run] = {}
        for method in variants:
            name = f"rung-{self.runner.label(method)}"
            run = self._run_variant(name, method, split, self.contest.rung)
            if run is not None:
                runs[method] = run
        most = number_after_rung(len(variants))
        survivors = best_of(runs, most, Limits(self.contest.limits))
        names = [self.plan.name_of(method) for method in survivors]
        counts = {self.plan.name_of(method): run.record.validation for method, run in runs.items()}
        decision = Decision(
            decision=f"first rung, {100 * self.contest.rung:g} % of the budget",
            options=[self.plan.name_of(method) for method in variants],
            counts=counts,
            chosen=", ".join(names),
        )
        return Rung(survivors, tuple(runs.values()), decision)

    def _result(self, runs: Mapping[str, Run], rung: Rung) -> AutoResult:
        control = self.plan.name_of(self.control)
        main = self.plan.name_of(self.main)
        results = {self.plan.name_of(method): run.record for method, run in runs.items()}
        contestants = [Contestant(name, result) for name, result in results.items()]
        limits = Limits(self.contest.limits, self._limits_of_tiers(results[main]))
        rows = leaderboard(contestants, control, limits)
        check_chosen(rows, self.contest.limits)
        winner = next(row.name for row in rows if row.chosen)
        right = {row.name: right_answers(runs[self._method(row.name)]) for row in rows}
        clients = winners_of_clients(winner, right, results, limits)
        decisions = list(results[main].decisions)
        if rung.decision is not None:
            decisions.append(rung.decision)
        decisions += [common_decision(rows, right), client_decision(winner, clients)]
        metric = results[winner].judged_by
        words = {name: in_words(name, result) for name, result in results.items()}
        by_method = {method: [run] for method, run in runs.items()}
        result = AutoResult(
            runs=[str(run.path) for run in runs.values()],
            methods=[self.runner.row(method, by_method, None) for method in runs],
            verdict=verdict(rows, clients, control, words, results[winner].decisions, metric),
            leaderboard=rows,
            decisions=decisions,
            spent=self._spent(runs, rung),
            clients=clients,
            note=self.contest.note,
        )
        if any(client.chosen != winner for client in clients):
            return result.replace(mixed=mixed_figures(clients, results, metric))
        return result

    def _limits_of_tiers(self, main: RunResult) -> Mapping[int, Mapping[str, float]]:
        """By client, what the network of its device may cost, if --tiers says so."""
        if not self.plan.tree.get("tiers"):
            return {}
        by_tier = {row.tier: row.limit for row in main.tiers}
        limits = {}
        for client in main.clients:
            if client.tier in by_tier:
                limits[client.client] = by_tier[client.tier]
        return limits

    def _method(self, name: str) -> str:
        return next(method for method in self.plan.methods if self.plan.name_of(method) == name)

    def _spent(self, runs: Mapping[str, Run], rung: Rung) -> Spent:
        records = [run.record for run in (*runs.values(), *rung.runs)]
        macs = 0
        for record in records:
            macs += (record.macs or 0) + record.server_macs
        budget: BudgetConfig = validated(Experiment, self.plan.tree).budget
        share: dict[str, float] = {}
        for run in rung.runs:
            share[run.path.name] = sum(shares_of(run, budget).values())
        for method, run in runs.items():
            name = self.plan.name_of(method)
            steps = shares_of(run, budget)
            if method != self.main:
                share[name] = sum(steps.values())
                continue
            for step, part in steps.items():
                share[f"{name}: {step}"] = part
        return Spent(
            macs=macs,
            bytes=sum(record.traffic.of_training for record in records),
            rounds=sum(record.rounds for record in records),
            share=share,
        )


def winners_of_clients(
    common: str,
    right: Mapping[str, AnswerQuality],
    results: Mapping[str, RunResult],
    limits: Limits,
) -> list[ClientWinner]:
    """The contestant for each client, among those whose network is within its limits.

    `common` is the winner for all clients, and `right` has the contestants' answers.
    """
    winners = []
    for client in sorted(right[common]):
        eligible = {name: right[name] for name in within_limits(client, results, limits)}
        winners.append(winner_of_client(client, common, eligible))
    return winners


def within_limits(client: int, results: Mapping[str, RunResult], limits: Limits) -> list[str]:
    """The contestants whose network for this client is within its limits."""
    names = []
    for name, result in results.items():
        client_result = result.client(client)
        if client_result is not None and client_fits_limits(client_result, result, limits):
            names.append(name)
    return names


def best_of(runs: Mapping[str, Run], count: int, limits: Limits) -> tuple[str, ...]:
    """The `count` methods with the best validation figures, in the order of `runs`.

    If figures are equal, the cheaper method is better. A method whose networks exceed a limit can
    never be chosen, so it does not displace one that fits.
    """
    ranks: dict[str, tuple[bool, tuple[float, float]]] = {}
    for method, run in runs.items():
        if run.record.validation is None:
            continue
        row = row_of(Contestant(method, run.record))
        ranks[method] = (not fits_limits(run.record, limits), rank(row, run.metric))
    best = sorted(ranks, key=lambda method: ranks[method])[:count]
    return tuple(method for method in runs if method in best)


def check_chosen(rows: Sequence[LeaderboardRow], limits: Mapping[str, float]) -> None:
    if any(row.chosen for row in rows):
        return
    limit_text = ", ".join(f"{name}={most:g}" for name, most in limits.items())
    smallest = min(rows, key=lambda row: row.macs or float("inf"))
    raise FedloomError(
        "--limit must leave at least one contestant",
        f"no network is within {limit_text}",
        f"the smallest has {smallest.params:.0f} parameters and {smallest.macs:.0f} MACs",
    )


def right_answers(run: Run) -> AnswerQuality:
    """How good the answers of each client's own model to its validation samples are, one by one."""
    finished = open_finished(run.path)
    site = finished.site
    assert site is not None  # a simulation has all clients at hand
    right = {}
    with one_thread():
        for client in run.record.clients:
            if client.figure is None:
                continue
            part = site.data(client.client).validation
            predict = finished.served(client.client).predictor()
            scores = scores_on(predict, part, finished.task, site.device)
            right[client.client] = goodness(scores, part.y.numpy(), run.record.judged_by)
    return right


def goodness(scores: np.ndarray, y: np.ndarray, metric: Metric) -> np.ndarray:
    """How good every answer is; a larger value is better.

    Classes are right or wrong. Of other metrics it is the answer's log-likelihood, or for labels
    that are numbers the negative squared error.
    """
    if metric.counts_answers:
        good: np.ndarray = scores.argmax(axis=1) == y
    elif y.dtype.kind == "f":  # numbers
        good = -np.square(scores[:, 0] - y)
    else:
        likelihood = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        good = likelihood[np.arange(len(y)), y]
    return good


def common_decision(rows: Sequence[LeaderboardRow], right: Mapping[str, AnswerQuality]) -> Decision:
    counts: dict[str, dict[str, Json]] = {}
    for row in rows:
        answers = right[row.name].values()
        counts[row.name] = {"mean": row.validation}
        if all(part.dtype == bool for part in answers):
            counts[row.name]["correct"] = sum(int(part.sum()) for part in answers)
        counts[row.name]["samples"] = sum(len(part) for part in answers)
    return Decision(
        decision="contestant",
        options=[row.name for row in rows],
        counts=counts,
        chosen=next(row.name for row in rows if row.chosen),
    )


def client_decision(common: str, clients: Sequence[ClientWinner]) -> Decision:
    """For how many clients each contestant is chosen."""
    counts = {common: 0}
    for client in clients:
        counts[client.chosen] = counts.get(client.chosen, 0) + 1
    chosen = "one contestant for all"
    if len(counts) > 1:
        chosen = "the client's own, where decisive"
    return Decision(
        decision="contestant of each client",
        options=["one contestant for all", "the client's own, where decisive"],
        counts=counts,
        chosen=chosen,
    )


def mixed_figures(
    clients: Sequence[ClientWinner],
    results: Mapping[str, RunResult],
    metric: Metric,
) -> OnTest:
    """Test figures, each client's with the contestant that validation data chose for it."""
    figures = {}
    for client in clients:
        by_client = figures_by_client(results[client.chosen])
        if client.client in by_client:
            figures[client.client] = by_client[client.client]
    return on_test(figures, metric, None)


def shares_of(run: Run, budget: BudgetConfig) -> dict[str, float]:
    """The shares of one contestant's budget that its run spent, by phase or stage."""
    whole = float(budget.rounds)
    if budget.equal != "rounds" and budget.amount is not None:
        whole = budget.amount
    shares: dict[str, float] = {}
    before = Totals()
    for row in read_rows(run.path / METRICS_FILE):
        spent = row.totals.spent(budget.equal) - before.spent(budget.equal)
        shares[row.phase] = shares.get(row.phase, 0.0) + spent / whole
        before = row.totals
    return shares
