"""What `fedloom auto` is asked for, and the comparison that this makes: contestants and budget.

Everything is checked and the budget is settled before anything is trained. Contestants are the
method `auto`, the control (FedAvg with fine-tuning of the small CNN) and every variant that the
user names. All have a validation part that the engine holds back from them.

More than two named variants run with a quarter of the budget first, and the better half of them
runs with the whole budget, from the beginning (successive halving with one rung).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedloom.config.models import BudgetConfig, Experiment, validated
from fedloom.config.variants import Labelled, Variant
from fedloom.cost.limits import Limit
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.evaluate.verdict import CONTROL
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Contest, Plan
from fedloom.runs.auto_budget import (
    MINUTES,
    ROUNDED_UP,
    ROUNDS,
    AskedBudget,
    Pace,
    pace_of,
    settle,
)
from fedloom.runs.auto_latency import sizes_within
from fedloom.runs.comparison import create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import check
from fedloom.runs.least_budget import least_amount
from fedloom.runs.planning import experiment
from fedloom.runs.preparing import prepare

MAIN = "auto"
MAIN_OF_TIERS = "auto-tiers"  # the same with several widths in one network
FIRST_RUNG = 0.25  # of the budget
SIZES = (1.0, 0.7, 0.5, 0.35)  # that `auto` tries if the user names none
ALL_GO_ON = 2  # so many named variants need no rung
UNNAMED = 2  # contestants of every plan, before those that the user names: the control, and `auto`


@dataclass(frozen=True)
class AutoRequest:
    """What the user asks for. `tree` is the configuration that all contestants share."""

    tree: Mapping[str, Any] = field(default_factory=dict)
    budget: AskedBudget | None = None
    limit: Limit = field(default_factory=Limit)
    others: Labelled = field(default_factory=Labelled)  # variants that take part too
    options: Mapping[str, str] = field(default_factory=dict)  # of the main contestant
    main: str = MAIN


def create_auto(request: AutoRequest, out: str | Path | None) -> RunFolder:
    """Check everything and settle the budget, then create the folder; nothing is trained yet."""
    return create_comparison(plan_of(request), out)


def plan_of(request: AutoRequest) -> Plan:
    """The comparison that is made, with a budget in one unit for all contestants."""
    check_limit(request)
    check_rounds(request)
    request = with_fast_sizes(request)
    plan = plan_without_budget(request)
    contest = contest_of(plan)
    control = plan.methods[0]
    variants = len(plan.methods) - UNNAMED
    # How many times the budget of one contestant all runs take together.
    whole_budgets = float(UNNAMED + variants)
    least_share = 1.0
    if contest.rung is not None:
        whole_budgets = UNNAMED + variants * contest.rung + number_after_rung(variants)
        least_share = contest.rung
    prepared = prepare(experiment(plan, control, plan.seeds[0], {}))
    check(prepared)
    pace = pace_of(plan.name_of(control), prepared)
    least_rounds = least_rounds_of_main(plan, prepared.split, request.budget, pace)
    budget = settle(request.budget, pace, whole_budgets, least_share, least_rounds)
    evaluate = dict(plan.tree["evaluate"])
    evaluate.setdefault("every", budget.evaluate_every)
    section = {**request.tree.get("budget", {}), **budget.config}
    tree = {**plan.tree, "budget": section, "evaluate": evaluate}
    contest = replace(contest, note=budget.note, seconds=round(budget.seconds, 1))
    plan = replace(plan, tree=tree, contest=contest)
    check_first_rung(plan)
    return plan


def contest_of(plan: Plan) -> Contest:
    assert plan.contest is not None  # every plan of `fedloom auto` has one
    return plan.contest


def plan_without_budget(request: AutoRequest) -> Plan:
    """The plan with the rounds of the configuration, by which the control is timed."""
    config: Experiment = validated(Experiment, request.tree)
    check_config(config)
    main = variant_with(request.main, {**request.options, **limits_of_main(request)})
    variants = request.others
    methods = (CONTROL, main, *variants.methods)
    check_contestants(methods)
    names = dict(variants.names)
    if request.options or limits_of_main(request):
        names[Variant.parse(main).with_absolute_paths()] = request.main
    rung = None
    if len(variants.methods) > ALL_GO_ON:
        rung = FIRST_RUNG
    limits = {}
    for name in ("params", "macs"):
        most = getattr(request.limit, name)
        if most is not None:
            limits[name] = most
    evaluate = {**request.tree.get("evaluate", {}), "hold_back": True}
    tree = {**request.tree, "evaluate": evaluate}
    contest = Contest(rung, limits)
    plan = Plan(methods, (config.seed,), {}, tree, names=names, contest=contest)
    check_names(plan)
    return plan


def least_rounds_of_main(plan: Plan, split: Split, budget: AskedBudget | None, pace: Pace) -> float:
    """What the main contestant needs to decide and to train, in rounds of the control.

    It is 0 if the budget is in rounds: the method itself checks those.
    """
    unit = "macs"
    if budget is not None and budget.unit != MINUTES:
        unit = budget.unit
    if unit == ROUNDS:
        return 0.0
    prepared = prepare(experiment(plan, plan.methods[1], plan.seeds[0], {}), split)
    least = least_amount(prepared, unit)
    if least is None:
        return 0.0
    return ROUNDED_UP * least / pace.a_round(unit)


def limits_of_main(request: AutoRequest) -> dict[str, str]:
    """Limits of the main contestant's network as its options; only `auto` has such options."""
    options = {}
    for name in ("macs", "params"):
        most = getattr(request.limit, name)
        if most is not None and request.main == MAIN:
            options[f"limit_{name}"] = repr(most)
    return options


def variant_with(method: str, options: Mapping[str, str]) -> str:
    """The method as a variant that has these options in addition to its own."""
    parts = []
    for name, value in options.items():
        if name == "network":
            check_family(value)
        parts.append(f"{name}={value.replace(',', '/')}")
    if not parts:
        return method
    variant = Variant.parse(method)
    return f"{variant.name}:{','.join([*variant.parts, *parts])}"


def main_contestant(options: Mapping[str, str]) -> str:
    """The main contestant that has these options."""
    if "widths" not in options:
        return MAIN
    if "sizes" in options:
        raise FedloomError(
            "either sizes are tried or widths are trained together",
            "--sizes and --widths are both given",
            "leave one of them out",
        )
    return MAIN_OF_TIERS


def with_fast_sizes(request: AutoRequest) -> AutoRequest:
    """The request with those sizes that are within its limit in milliseconds, if it has one."""
    if request.limit.latency_ms is None:
        return request
    task = prepare(configure(CONTROL, request.tree)).task
    sizes = list(SIZES)
    if "sizes" in request.options:
        sizes = parse_sizes(request.options["sizes"])
    within = sizes_within(task, request.options.get("network"), sizes, request.limit.latency_ms)
    listed = "/".join(f"{size:g}" for size in within)
    return replace(request, options={**request.options, "sizes": listed})


def parse_sizes(text: str) -> list[float]:
    """Parse `1,.7,.5` or `1/.7/.5`."""
    try:
        return [float(part) for part in text.replace("/", ",").split(",")]
    except ValueError:
        rule = "--sizes must be shares of a network's channels"
        raise FedloomError(rule, f"got {text!r}", "try --sizes 1,.7,.5") from None


def number_after_rung(variants: int) -> int:
    """How many of the named variants get the whole budget: the better half."""
    return (variants + 1) // 2


def budget_of(plan: Plan, share: float) -> dict[str, Any]:
    """The section `budget` of a contestant's run that has this share of the whole budget."""
    budget: BudgetConfig = validated(Experiment, plan.tree).budget
    amount = None
    if budget.amount is not None:
        amount = budget.amount * share
    limits = None
    if budget.limits is not None:
        limits = {name: most * share for name, most in budget.limits.items()}
    rounds = max(1, round(budget.rounds * share))
    return {"equal": budget.equal, "amount": amount, "rounds": rounds, "limits": limits}


# Checks


def check_rounds(request: AutoRequest) -> None:
    """Refuse --rounds beside --budget: without --budget they are the rounds of the control."""
    if request.budget is not None and "rounds" in request.tree.get("budget", {}):
        raise FedloomError(
            "--rounds must be left out with --budget",
            "both are given",
            "use --budget rounds=N for a budget in rounds",
        )


def check_limit(request: AutoRequest) -> None:
    """Refuse --limit where tiers have limits of their own."""
    if request.limit != Limit() and request.tree.get("tiers"):
        raise FedloomError(
            "either all networks have one limit (--limit) or every tier its own (--tiers)",
            "both are given",
            "leave --limit out, or leave --tiers and what belongs to it out",
        )
    if request.main == MAIN_OF_TIERS and request.limit != Limit():
        raise FedloomError(
            "--limit must be left out with --widths",
            "both are given",
            "give the limits of device tiers with --tiers, or use --sizes instead",
        )


def check_config(config: Experiment) -> None:
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


def check_names(plan: Plan) -> None:
    """Refuse equal names, by which tables and folders could not tell contestants apart."""
    names = [plan.name_of(method) for method in plan.methods]
    for name in names:
        if names.count(name) > 1:
            raise FedloomError(
                "every contestant must have a name of its own",
                f"two are called {name}",
                f"give one a label, such as --with {name}@other",
            )


def check_family(name: str) -> None:
    """Refuse a comma, which separates the options of a variant."""
    if "," in name:
        raise FedloomError(
            "the network of --family must have no comma in its name",
            f"got {name!r}",
            "rename its file, or name a space by a TOML file",
        )


def check_first_rung(plan: Plan) -> None:
    """Refuse a rung whose budget is too small for a variant, before anything is trained."""
    contest = contest_of(plan)
    if contest.rung is None:
        return
    split = None
    for method in plan.methods[UNNAMED:]:
        changes = {"budget": budget_of(plan, contest.rung)}
        prepared = prepare(experiment(plan, method, plan.seeds[0], changes), split)
        split = prepared.split
        check(prepared)
