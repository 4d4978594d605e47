"""`fedloom auto`: contestants on one split and one budget, and which of them to use.

Contestants are the method `auto`, the control (FedAvg with fine-tuning of the small CNN) and every
variant that the user names. They are runs of a comparison, all with a validation part that the
engine holds back from them: the reported round of each gets a figure on it, and whatever is chosen
here is chosen by that. Test figures are told and decide nothing.

More than two named variants run with a quarter of the budget first, and the better half of them
goes on with the whole budget, from the beginning (successive halving with one rung).

The common winner is the best by mean validation figure. A client uses another contestant's model
only where that is decisive on its own validation part (evaluate/leaderboard.py): both models answer
the same samples, and those right only by one exceed those right only by the other by more than the
root of both counts together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedloom.config.models import BudgetConfig, Experiment, validated
from fedloom.config.variants import Labelled, Variant
from fedloom.cost.limits import Limit
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
from fedloom.evaluate.verdict import CONTROL, in_words, verdict
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
from fedloom.runs.auto_budget import MINUTES, ROUNDED_UP, ROUNDS, AskedBudget, Pace, pace_of, settle
from fedloom.runs.auto_latency import sizes_within
from fedloom.runs.comparison import Bench, Comparison, at_work, create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import check
from fedloom.runs.finished import open_finished
from fedloom.runs.least_budget import least_amount
from fedloom.runs.planning import experiment
from fedloom.runs.preparing import prepare
from fedloom.runs.results import Run
from fedloom.threads import one_thread
from fedloom.types import Json

MAIN = "auto"
MAIN_OF_TIERS = "auto-tiers"  # the same with several widths in one network
FIRST_RUNG = 0.25  # of the budget
SIZES = (1.0, 0.7, 0.5, 0.35)  # that `auto` tries where nobody names others
ALL_GO_ON = 2  # so many named variants need no rung


@dataclass(frozen=True)
class Asked:
    """What a person asks for. `tree` is the configuration that all contestants share."""

    tree: Mapping[str, Any] = field(default_factory=dict)
    budget: AskedBudget | None = None
    limit: Limit = field(default_factory=Limit)
    others: Labelled = field(default_factory=Labelled)  # variants that take part too
    options: Mapping[str, str] = field(default_factory=dict)  # of the main contestant
    main: str = MAIN


@dataclass(frozen=True)
class Auto(Comparison):
    """What was found: a comparison, and what follows from it."""

    result: AutoResult | None = None

    @property
    def found(self) -> AutoResult:
        assert self.result is not None  # it has one, once it is finished
        return self.result

    @property
    def verdict(self) -> str:
        return self.found.verdict

    @property
    def leaderboard(self) -> list[LeaderboardRow]:
        return self.found.leaderboard

    @property
    def winner(self) -> Run:
        """The run of the common winner: `auto.winner.export("onnx", client=3)`."""
        return self.run_of(self.found.winner.name)

    def run_of(self, name: str) -> Run:
        names = [row.name for row in self.rows]
        return self.runs[names.index(name)]

    def to_json(self) -> Json:
        shown = self.found.to_json()
        return {"auto": str(self.path), **super().to_json(), **of_auto(shown)}

    def table(self) -> None:
        """Print the verdict, the leaderboard and every decision."""
        from rich.console import Console

        console = Console(markup=False)
        console.print(self.verdict, style="bold", highlight=False)
        console.print(self._leaderboard())
        console.print(decisions_table(self.found.decisions))

    def next_steps(self) -> list[str]:
        return next_steps(self.path, self.winner.path, self.found)

    def _repr_html_(self) -> str:
        from fedloom.report.html import tag

        sentence = tag("p", tag("strong", self.verdict))
        decisions = decisions_table(self.found.decisions)
        return f"{sentence}{table_html(self._leaderboard())}{table_html(decisions)}"

    def _leaderboard(self) -> Table:
        data = self.runs[0].record.data
        return leaderboard_table(self.found, self.runs[0].metric, f"{data.name}, {data.partition}")


def of_auto(shown: Mapping[str, Json]) -> dict[str, Json]:
    """What result.json has beside that of a comparison."""
    return {name: value for name, value in shown.items() if name not in ("runs", "methods")}


# What is asked for


def main_for(options: Mapping[str, str]) -> str:
    """The method whose options these are."""
    if "widths" not in options:
        return MAIN
    if "sizes" in options:
        raise FedloomError(
            "either sizes are tried or widths are trained together",
            "--sizes and --widths are both given",
            "leave one of them out",
        )
    return MAIN_OF_TIERS


def create_auto(asked: Asked, out: str | Path | None) -> RunFolder:
    """Check everything and settle the budget, then make the folder; nothing is trained yet."""
    return create_comparison(plan_of(asked), out)


def plan_of(asked: Asked) -> Plan:
    """The comparison that is made, with a budget in one unit for all."""
    check_limit(asked)
    check_rounds(asked)
    asked = fast_enough(asked)
    plan = without_budget(asked)
    assert plan.contest is not None
    contest = plan.contest
    others = len(plan.methods) - 2
    runs = 2.0 + others
    least_share = 1.0
    if contest.rung is not None:
        runs = 2 + others * contest.rung + number_kept(others)
        least_share = contest.rung
    control = plan.methods[0]
    prepared = prepare(experiment(plan, control, plan.seeds[0], {}))
    check(prepared)
    pace = pace_of(plan.name_of(control), prepared)
    least = least_of_main(plan, prepared.split, asked.budget, pace)
    budget = settle(asked.budget, pace, runs, least_share, least)
    evaluate = dict(plan.tree["evaluate"])
    evaluate.setdefault("every", budget.evaluate_every)
    given = {**asked.tree.get("budget", {}), **budget.config}
    tree = {**plan.tree, "budget": given, "evaluate": evaluate}
    contest = replace(contest, note=budget.note, seconds=round(budget.seconds, 1))
    plan = replace(plan, tree=tree, contest=contest)
    check_first_rung(plan)
    return plan


def check_rounds(asked: Asked) -> None:
    """Rounds are what the control takes if no budget is given."""
    if asked.budget is not None and "rounds" in asked.tree.get("budget", {}):
        raise FedloomError(
            "--rounds must be left out with --budget",
            "both are given",
            "say --budget rounds=N for a budget in rounds",
        )


def check_limit(asked: Asked) -> None:
    """Widths that are trained together have the limits of tiers."""
    if asked.limit != Limit() and asked.tree.get("tiers"):
        raise FedloomError(
            "either all networks have one limit (--limit) or every tier its own (--tiers)",
            "both are given",
            "leave --limit out, or leave --tiers and what belongs to it out",
        )
    if asked.main == MAIN_OF_TIERS and asked.limit != Limit():
        raise FedloomError(
            "--limit must be left out with --widths",
            "both are given",
            "say the limits of tiers of devices by --tiers, or try --sizes instead",
        )


def fast_enough(asked: Asked) -> Asked:
    """With the sizes that keep a limit in milliseconds."""
    if asked.limit.latency_ms is None:
        return asked
    task = prepare(configure(CONTROL, asked.tree)).task
    sizes = list(SIZES)
    if "sizes" in asked.options:
        sizes = parse_sizes(asked.options["sizes"])
    within = sizes_within(task, asked.options.get("network"), sizes, asked.limit.latency_ms)
    listed = "/".join(f"{size:g}" for size in within)
    return replace(asked, options={**asked.options, "sizes": listed})


def parse_sizes(text: str) -> list[float]:
    """`1,.7,.5`"""
    try:
        return [float(part) for part in text.replace("/", ",").split(",")]
    except ValueError:
        rule = "--sizes must be shares of a network's channels"
        raise FedloomError(rule, f"got {text!r}", "try --sizes 1,.7,.5") from None


def without_budget(asked: Asked) -> Plan:
    """The plan with the rounds of the configuration, by which the control is timed."""
    config: Experiment = validated(Experiment, asked.tree)
    check_asked(config)
    main = spelled(asked.main, {**asked.options, **limits_of_main(asked)})
    variants = asked.others
    methods = (CONTROL, main, *variants.methods)
    check_contestants(methods)
    names = dict(variants.names)
    if asked.options or limits_of_main(asked):
        names[Variant.parse(main).with_absolute_paths()] = asked.main
    rung = None
    if len(variants.methods) > ALL_GO_ON:
        rung = FIRST_RUNG
    limits = {}
    for name in ("params", "macs"):
        most = getattr(asked.limit, name)
        if most is not None:
            limits[name] = most
    evaluate = {**asked.tree.get("evaluate", {}), "hold_back": True}
    tree = {**asked.tree, "evaluate": evaluate}
    contest = Contest(rung, limits)
    plan = Plan(methods, (config.seed,), {}, tree, names=names, contest=contest)
    check_names(plan)
    return plan


def check_names(plan: Plan) -> None:
    """Whether tables and folders can tell contestants apart."""
    names = [plan.name_of(method) for method in plan.methods]
    for name in names:
        if names.count(name) > 1:
            raise FedloomError(
                "every contestant must have a name of its own",
                f"two are called {name}",
                f"give one a label, such as --with {name}@other",
            )


def least_of_main(plan: Plan, split: Split, asked: AskedBudget | None, pace: Pace) -> float:
    """What the main contestant takes at least to decide and to train, in rounds of the control.

    A budget in rounds the method itself looks at.
    """
    unit = "macs"
    if asked is not None and asked.unit != MINUTES:
        unit = asked.unit
    if unit == ROUNDS:
        return 0.0
    prepared = prepare(experiment(plan, plan.methods[1], plan.seeds[0], {}), split)
    least = least_amount(prepared, unit)
    if least is None:
        return 0.0
    return ROUNDED_UP * least / pace.a_round(unit)


def limits_of_main(asked: Asked) -> dict[str, str]:
    """What the main contestant may not exceed, as options; only `auto` has such."""
    options = {}
    for name in ("macs", "params"):
        most = getattr(asked.limit, name)
        if most is not None and asked.main == MAIN:
            options[f"limit_{name}"] = repr(most)
    return options


def spelled(method: str, options: Mapping[str, str]) -> str:
    """A variant with these options too."""
    parts = []
    for name, value in options.items():
        if name == "network":
            check_family(value)
        parts.append(f"{name}={value.replace(',', '/')}")
    if not parts:
        return method
    variant = Variant.parse(method)
    return f"{variant.name}:{','.join([*variant.parts, *parts])}"


def check_family(name: str) -> None:
    """Commas part the options of a variant."""
    if "," in name:
        raise FedloomError(
            "the network of --family must have no comma in its name",
            f"got {name!r}",
            "rename its file, or name a space by a TOML file",
        )


def check_asked(config: Experiment) -> None:
    if config.is_federated:
        raise FedloomError(
            "`fedloom auto` must have the clients' data at hand",
            "--federation names sites that keep theirs",
            "use `fedloom run auto --federation DIR`, which decides the same without contestants",
        )
    if config.budget.equal != "rounds" or config.budget.amount is not None:
        raise FedloomError(
            "the budget of `fedloom auto` must be given by --budget",
            f"got --equal {config.budget.equal}",
            "try --budget minutes=10, macs=2T or bytes=50M",
        )


def check_contestants(methods: Sequence[str]) -> None:
    for method in methods:
        if methods.count(method) > 1:
            raise FedloomError(
                "every contestant must take part once",
                f"got {method} twice",
                f"leave it out of --with; {CONTROL} always takes part",
            )


def number_kept(others: int) -> int:
    """How many of the named variants go on after the first rung: the better half."""
    return (others + 1) // 2


def check_first_rung(plan: Plan) -> None:
    """Whether every variant can run with the rung's budget, before anything is trained."""
    contest = plan.contest
    assert contest is not None
    if contest.rung is None:
        return
    split = None
    for method in plan.methods[2:]:
        changes = {"budget": budget_of(plan, contest.rung)}
        prepared = prepare(experiment(plan, method, plan.seeds[0], changes), split)
        split = prepared.split
        check(prepared)


def budget_of(plan: Plan, share: float) -> dict[str, Any]:
    """A share of every contestant's budget."""
    budget: BudgetConfig = validated(Experiment, plan.tree).budget
    amount = None
    if budget.amount is not None:
        amount = budget.amount * share
    limits = None
    if budget.limits is not None:
        limits = {name: most * share for name, most in budget.limits.items()}
    rounds = max(1, round(budget.rounds * share))
    return {"equal": budget.equal, "amount": amount, "rounds": rounds, "limits": limits}


# The contest


def continue_auto(folder: RunFolder, shown: Screen) -> Auto:
    """Runs that are finished are read, those begun are resumed, the rest are started."""
    with at_work(folder, shown) as bench:
        assert bench.plan.contest is not None
        return Contested(bench, bench.plan.contest).run()


@dataclass(frozen=True)
class Rung:
    """The first runs of the named variants, and who goes on."""

    kept: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    decision: Decision | None = None


@dataclass(frozen=True)
class Contested:
    """One contest on its way."""

    bench: Bench
    contest: Contest

    @property
    def plan(self) -> Plan:
        return self.bench.plan

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
        for method in rung.kept:
            run = self._tried(self._name_of_run(method), method, split, 1.0)
            if run is not None:
                runs[method] = run
        result = self._result(runs, rung)
        folder = self.bench.folder
        folder.write_json(RESULT, result.to_json())
        try_report(folder, write_comparison)
        return Auto(folder.path, list(runs.values()), result.methods, result=result)

    def _name_of_run(self, method: str) -> str:
        return f"{self.bench.label(method)}-seed{self.plan.seeds[0]}"

    def _run(self, method: str, split: Split | None) -> tuple[Run, Split]:
        changes = {"budget": budget_of(self.plan, 1.0)}
        name = self._name_of_run(method)
        return self.bench.one(name, method, self.plan.seeds[0], changes, split)

    def _tried(self, name: str, method: str, split: Split, share: float) -> Run | None:
        """The run of a named variant; None: its training broke down."""
        changes = {"budget": budget_of(self.plan, share)}
        try:
            run, _ = self.bench.one(name, method, self.plan.seeds[0], changes, split)
        except TooFewReplies:
            text = "no reply could be used any more: this contestant is left out"
            self.bench.shown.listener(name)(Notice(text))
            return None
        return run

    def _rung(self, split: Split) -> Rung:
        """Nobody is left out where there are few, and nobody by test data."""
        others = self.plan.methods[2:]
        if self.contest.rung is None:
            return Rung(others)
        runs: dict[str, Run] = {}
        for method in others:
            name = f"rung-{self.bench.label(method)}"
            run = self._tried(name, method, split, self.contest.rung)
            if run is not None:
                runs[method] = run
        kept = best_of(runs, number_kept(len(others)), Limits(self.contest.limits))
        names = [self.plan.name_of(method) for method in kept]
        counts = {self.plan.name_of(method): run.record.validation for method, run in runs.items()}
        decision = Decision(
            decision=f"first rung, {100 * self.contest.rung:g} % of the budget",
            options=[self.plan.name_of(method) for method in others],
            counts=counts,
            chosen=", ".join(names),
        )
        return Rung(kept, tuple(runs.values()), decision)

    def _result(self, runs: Mapping[str, Run], rung: Rung) -> AutoResult:
        contestants = [
            Contestant(self.plan.name_of(method), run.record) for method, run in runs.items()
        ]
        control = self.plan.name_of(self.control)
        main = self.plan.name_of(self.main)
        results = {contestant.name: contestant.result for contestant in contestants}
        limits = Limits(self.contest.limits, self._limits_of_tiers(results[main]))
        rows = leaderboard(contestants, control, limits)
        check_chosen(rows, self.contest.limits)
        winner = next(row.name for row in rows if row.chosen)
        right = {row.name: right_answers(runs[self._method(row.name)]) for row in rows}
        clients = []
        for client in sorted(right[winner]):
            eligible = {name: right[name] for name in within_limits(client, results, limits)}
            clients.append(winner_of_client(client, winner, eligible))
        decisions = list(results[main].decisions)
        if rung.decision is not None:
            decisions.append(rung.decision)
        decisions += [common_decision(rows, right), client_decision(winner, clients)]
        metric = results[winner].judged_by
        words = {name: in_words(name, result) for name, result in results.items()}
        by_method = {method: [run] for method, run in runs.items()}
        result = AutoResult(
            runs=[str(run.path) for run in runs.values()],
            methods=[self.bench.row(method, by_method, None) for method in runs],
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


def within_limits(client: int, results: Mapping[str, RunResult], limits: Limits) -> list[str]:
    """The contestants whose network for this client is within its limits."""
    names = []
    for name, result in results.items():
        client_result = result.client(client)
        if client_result is not None and client_fits_limits(client_result, result, limits):
            names.append(name)
    return names


def best_of(runs: Mapping[str, Run], count: int, limits: Limits) -> tuple[str, ...]:
    """The methods whose runs validate best, in their order; of equals the cheaper.

    A method whose networks exceed a limit can never be chosen, so it does not displace one that
    fits.
    """
    ranks: dict[str, tuple[bool, tuple[float, float]]] = {}
    for method, run in runs.items():
        if run.record.validation is None:
            continue
        row = row_of(Contestant(method, run.record))
        ranks[method] = (not fits_limits(run.record, limits), rank(row, run.metric))
    kept = sorted(ranks, key=lambda method: ranks[method])[:count]
    return tuple(method for method in runs if method in kept)


def check_chosen(rows: Sequence[LeaderboardRow], limits: Mapping[str, float]) -> None:
    if any(row.chosen for row in rows):
        return
    asked = ", ".join(f"{name}={most:g}" for name, most in limits.items())
    smallest = min(rows, key=lambda row: row.macs or float("inf"))
    raise FedloomError(
        "--limit must leave a contestant",
        f"no network keeps {asked}",
        f"the smallest has {smallest.params:.0f} parameters and {smallest.macs:.0f} MACs",
    )


def right_answers(run: Run) -> AnswerQuality:
    """How good each evaluated client's own model answers its validation samples, one by one."""
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
    """Of every answer, the more the better: right or wrong, or how near it comes."""
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
    """For how many clients another model than the common one is decisively better."""
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
    """On test data, each client with the contestant that was chosen for it on validation data."""
    figures = {}
    for client in clients:
        by_client = figures_by_client(results[client.chosen])
        if client.client in by_client:
            figures[client.client] = by_client[client.client]
    return on_test(figures, metric, None)


def shares_of(run: Run, budget: BudgetConfig) -> dict[str, float]:
    """Of one contestant's budget, by phase or stage of the run."""
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
