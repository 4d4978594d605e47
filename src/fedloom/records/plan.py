"""What `fedloom compare` is asked for: read from the command line or a folder, checked before anything is trained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.config.models import Experiment, validated
from fedloom.config.variants import configure, parse_variant
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.options import as_before
from fedloom.reading import Unreadable, read_json
from fedloom.records.folder import RunFolder
from fedloom.runs.experiment import check, prepare, resolve_options

PLAN = "compare.json"
MOST_POINTS = 10_000  # of a grid: each is a run
ROUNDS: Mapping[str, Any] = {"equal": "rounds", "amount": None}  # the budget that the first method is given


@dataclass(frozen=True)
class Plan:
    """What to compare. `tree` is the configuration that all methods share."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, list[Any]]
    tree: Mapping[str, Any]
    match_params: bool = False  # fixed networks get the width nearest the parameters that the first method found
    names: Mapping[str, str] = field(default_factory=dict)  # what to call a variant in tables and folders


class PlanFile(BaseModel):
    """compare.json."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    methods: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    grid: dict[str, list[str | int | float | bool | None]]
    tree: dict[str, Any]
    match_params: bool
    names: dict[str, str]


def read_plan(folder: RunFolder) -> Plan:
    try:
        raw = PlanFile.model_validate(read_json(folder.path / PLAN))
    except Unreadable as error:  # also: killed before there was anything to resume
        raise no_plan(folder, f"{PLAN} is unusable: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise no_plan(folder, f"{PLAN} is unusable: {where}: {first['msg']}") from None
    tree = as_before(Experiment, raw.tree)
    validated(Experiment, tree)
    return Plan(tuple(raw.methods), tuple(raw.seeds), raw.grid, tree, raw.match_params, raw.names)


def no_plan(folder: RunFolder, found: str) -> FedloomError:
    return FedloomError(f"{folder.path} must hold a comparison", found, "mend it, or start it again")


def check_plan(plan: Plan) -> None:
    """Name a wrong method or option before anything is trained."""
    if not plan.methods or len(set(plan.methods)) != len(plan.methods):
        raise FedloomError(
            "compare must be given different methods", f"got {' '.join(plan.methods) or 'none'}", "name them"
        )
    if len(set(plan.seeds)) != len(plan.seeds) or not plan.seeds:
        raise FedloomError("--seeds must be different whole numbers", f"got {list(plan.seeds)}", "try --seeds 0,1,2")
    for method in plan.methods:
        config = experiment(plan, method, plan.seeds[0], {})
        clash = sorted(set(plan.grid) & set(parse_variant(method)[1]))
        if clash:
            found = f"{method} fixes {clash[0]}"
            raise FedloomError("--grid must tune options that no variant fixes", found, "leave it out of one of them")
        for point in grid_points(plan.grid):
            resolve_options(config.method, {**config.options, **point})
    split: Split | None = None
    for method in plan.methods:
        prepared = prepare(experiment(plan, method, plan.seeds[0], {"budget": ROUNDS}), split)
        split = prepared.split
        check(prepared)


def experiment(plan: Plan, method: str, seed: int, changes: Mapping[str, Any]) -> Experiment:
    tree = {**plan.tree, "seed": seed}
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    return configure(method, tree)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2`"""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise FedloomError("--seeds must be whole numbers of 0 or more", f"got {text!r}", "try --seeds 0,1,2")
    return tuple(int(part) for part in parts)


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`lr=.1,.03`, once for every option that is tuned."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not all(values.split(",")):
            raise FedloomError("--grid must look like option=A,B", f"got {text!r}", "try --grid lr=.1,.03,.01")
        grid[name] = values.split(",")
    return grid


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    count = prod(len(values) for values in grid.values())
    if count > MOST_POINTS:
        found = f"it has {count:,}"
        raise FedloomError(f"--grid must have at most {MOST_POINTS:,} points", found, "tune fewer options or values")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] if grid else []
