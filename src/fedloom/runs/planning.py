"""Checks a comparison's plan before anything is trained, and configures each of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.config.models import Experiment
from fedloom.data.configured import configured_source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.metrics.metric import metric_of
from fedloom.records.plan import Plan, grid_points
from fedloom.runs.configure import configure, parse_variant, resolve_options
from fedloom.runs.experiment import check
from fedloom.runs.preparing import prepare

# The budget that the first method is given.
ROUNDS: Mapping[str, Any] = {"equal": "rounds", "amount": None}

# How a grid's runs differ from the comparison's: they need validation data to be judged by.
GRID: Mapping[str, Any] = {
    "evaluate": {"hold_back": True},
    "budget": ROUNDS,
}


def check_plan(plan: Plan) -> None:
    """Refuse a wrong method or option before anything is trained."""
    if not plan.methods or len(set(plan.methods)) != len(plan.methods):
        methods = " ".join(plan.methods) or "none"
        raise FedloomError("compare must be given different methods", f"got {methods}", "name them")
    if not plan.seeds or len(set(plan.seeds)) != len(plan.seeds):
        rule = "--seeds must be different whole numbers"
        raise FedloomError(rule, f"got {list(plan.seeds)}", "try --seeds 0,1,2")
    if plan.match_params and plan.match_macs:
        rule = "one of --match-params and --match-macs must say what is matched"
        raise FedloomError(rule, "got both", "leave one out")
    if plan.target is not None:
        check_target(plan.target, plan)
    for method in plan.methods:
        config = experiment(plan, method, plan.seeds[0], {})
        _, fixed_options = parse_variant(method)
        clash = sorted(set(plan.grid) & set(fixed_options))
        if clash:
            raise FedloomError(
                "--grid must tune options that no variant fixes",
                f"{method} fixes {clash[0]}",
                "leave it out of one of them",
            )
        for point in grid_points(plan.grid):
            resolve_options(config.method, {**config.options, **point})
    split: Split | None = None
    for method in most_demanding_first(plan):
        changes: dict[str, Mapping[str, Any]] = {}
        if plan.tree.get("budget", {}).get("amount") is None:
            changes = {"budget": ROUNDS}  # the first run sets the amount
        if plan.grid:  # a grid's runs have fewer samples to train on
            changes = dict(GRID)
        config = experiment(plan, method, plan.seeds[0], changes)
        prepared = prepare(config, split)
        split = prepared.split
        check(prepared)


def most_demanding_first(plan: Plan) -> tuple[str, ...]:
    """All methods of a plan, in the order in which they are checked.

    In a contest `auto` needs more budget than the control. It is checked first, so that the least
    budget that an error names is enough for both.
    """
    if plan.contest is None:
        return plan.methods
    control, main, *others = plan.methods
    return main, control, *others


def check_target(target: float, plan: Plan) -> None:
    """Refuse a figure that the data's metric cannot reach."""
    source = configured_source(experiment(plan, plan.methods[0], plan.seeds[0], {}).data)
    metric = metric_of(source.kind)
    if metric.counts_answers and target > 1:
        rule = f"--target must be {metric.name} between 0 and 1"
        raise FedloomError(rule, f"got {target:g}", "try --target 0.6 for 60 %")


def experiment(plan: Plan, method: str, seed: int, changes: Mapping[str, Any]) -> Experiment:
    tree = {**plan.tree, "seed": seed}
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    if plan.target is not None:  # whether it is reached is measured on validation data
        tree["evaluate"] = {**tree.get("evaluate", {}), "hold_back": True}
    return configure(method, tree)
