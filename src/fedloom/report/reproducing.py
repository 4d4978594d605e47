"""The command that reproduces a comparison, or a contest of `fedloom auto`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from fedloom.config.models import Experiment
from fedloom.config.variants import Variant
from fedloom.records.plan import Plan

# Options of the main contestant that `fedloom auto` has flags for.
FLAGS_OF_MAIN = {
    "network": "--family",
    "sizes": "--sizes",
    "widths": "--widths",
    "prior": "--prior",
}
SAID_BY_FLAGS = (  # settings that the flags above already give
    "seed",
    "budget.equal",
    "budget.amount",
    "budget.rounds",
    "budget.limits",
    "evaluate.hold_back",
)


def command(plan: Plan) -> str:
    """Return the command that reproduces this comparison."""
    if plan.contest is not None:
        return auto_command(plan)
    arguments = ["fedloom", "compare", *map(plan.spelled, plan.methods)]
    arguments += ["--seeds", ",".join(map(str, plan.seeds))]
    for name, values in plan.grid.items():
        arguments += ["--grid", f"{name}={','.join(map(str, values))}"]
    if plan.match_params:
        arguments.append("--match-params")
    if plan.match_macs:
        arguments.append("--match-macs")
    return shlex.join([*arguments, *settings(plan)])


def auto_command(plan: Plan) -> str:
    """Return the command that reproduces a contest, with the budget that was used."""
    assert plan.contest is not None
    main, *further_methods = plan.methods[1:]
    arguments = ["fedloom", "auto", "--seed", str(plan.seeds[0]), "--budget", budget_text(plan)]
    if plan.contest.limits:
        limits = []
        for name, most in plan.contest.limits.items():
            limits.append(f"{name}={most:.15g}")
        arguments += ["--limit", ",".join(limits)]
    for part in Variant.parse(main).parts:
        name, _, value = part.partition("=")
        if name in FLAGS_OF_MAIN:
            arguments += [FLAGS_OF_MAIN[name], as_flag(name, value)]
    for method in further_methods:
        arguments += ["--with", plan.spelled(method)]
    return shlex.join([*arguments, *settings(plan, SAID_BY_FLAGS)])


def as_flag(option: str, value: str) -> str:
    """Write a variant's option as a flag's value: lists have commas instead of slashes.

    The slashes of a network stay: it may be the path of a file.
    """
    if option == "network":
        return value
    return value.replace("/", ",")


def budget_text(plan: Plan) -> str:
    budget = plan.tree["budget"]
    unit = budget["equal"]
    amounts = {unit: budget["amount"]}
    if unit == "rounds":
        amounts = {unit: budget["rounds"]}
    amounts.update(budget.get("limits") or {})
    return ",".join(f"{name}={value:.0f}" for name, value in amounts.items())


def settings(plan: Plan, left_out: tuple[str, ...] = ()) -> list[str]:
    """Return what a plan's configuration changes from the defaults, as `--set` flags.

    Settings whose names begin with one of `left_out` are skipped.
    """
    arguments = []
    defaults = leaves(Experiment().model_dump())
    for name, value in leaves(plan.tree).items():
        is_default = name in defaults and value == defaults[name]
        if not is_default and not name.startswith(left_out):
            arguments += ["--set", f"{name}={text_of(value)}"]
    return arguments


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a configuration: `{"data": {"clients": 8}}` → `{"data.clients": 8}`."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            values.update(leaves(value, f"{path}."))
        else:
            values[path] = value
    return values


def text_of(value: Any) -> str:
    """Write a value as --set reads it."""
    if value is None or isinstance(value, list):
        return json.dumps(value)
    return str(value)
