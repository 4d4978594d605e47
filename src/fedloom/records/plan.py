"""What `fedloom compare` is asked for.

It is written on the command line, and kept in the comparison's folder.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan, prod
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.config.models import Experiment, validated
from fedloom.config.variants import LABEL, without_folders
from fedloom.errors import FedloomError
from fedloom.options import as_before
from fedloom.reading import Unreadable, read_json
from fedloom.records.folder import RunFolder

PLAN = "compare.json"
MOST_POINTS = 10_000  # of a grid: each is a run


@dataclass(frozen=True)
class Contest:
    """What `fedloom auto` asks for beside a comparison.

    Its first method is the control, the second the one whose decisions are told.
    """

    # The share of the budget at which the better half of the others goes on; None: all go on.
    rung: float | None = None
    # The most that a network may cost to be chosen: params, macs.
    limits: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # how the budget was settled
    seconds: float = 0.0  # that all of it takes on the machine that it was planned on, about


@dataclass(frozen=True)
class Plan:
    """What to compare. `tree` is the configuration that all methods share."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, list[Any]]
    tree: Mapping[str, Any]
    # fixed networks get the width nearest the parameters that the first method found
    match_params: bool = False
    # what to call a variant in tables and folders
    names: Mapping[str, str] = field(default_factory=dict)
    # the validation figure whose costs are told
    target: float | None = None
    # fixed networks get the width nearest the MACs that the first method's networks have on average
    match_macs: bool = False
    contest: Contest | None = None  # of `fedloom auto`

    def name_of(self, method: str) -> str:
        """What tables call it."""
        return self.names.get(method, without_folders(method))

    def spelled(self, method: str) -> str:
        """A variant as a person writes it, with its label if it has one."""
        name = self.names.get(method, "")
        if not LABEL.fullmatch(name):  # a name that only a program gives
            return method
        return f"{method}@{name}"

    @property
    def matches(self) -> bool:
        """Whether fixed networks get the size of what the first method found."""
        return self.match_params or self.match_macs


class ContestInFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    rung: float | None
    limits: dict[str, float]
    note: str
    seconds: float


class PlanFile(BaseModel):
    """compare.json."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    methods: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    grid: dict[str, list[str | int | float | bool | None]]
    tree: dict[str, Any]
    match_params: bool
    names: dict[str, str]
    target: float | None = None  # an earlier version had none
    match_macs: bool = False  # the same
    contest: ContestInFile | None = None  # the same


def read_plan(folder: RunFolder) -> Plan:
    try:
        raw = PlanFile.model_validate(read_json(folder.path / PLAN))
    except Unreadable as error:  # also: killed before there was anything to resume
        raise no_plan(folder, f"{PLAN} is unusable: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise no_plan(folder, f"{PLAN} is unusable: {where}: {first['msg']}") from None
    tree = as_before(Experiment, raw.tree)
    validated(Experiment, tree)
    contest = None
    if raw.contest is not None:
        contest = Contest(**raw.contest.model_dump())
    return Plan(
        methods=tuple(raw.methods),
        seeds=tuple(raw.seeds),
        grid=raw.grid,
        tree=tree,
        match_params=raw.match_params,
        names=raw.names,
        target=raw.target,
        match_macs=raw.match_macs,
        contest=contest,
    )


def no_plan(folder: RunFolder, found: str) -> FedloomError:
    return FedloomError(
        f"{folder.path} must hold a comparison",
        found,
        "mend it, or start it again",
    )


def parse_target(text: str | None) -> float | None:
    """`0.6`, in the unit of the metric."""
    if text is None:
        return None
    try:
        target = float(text)
    except ValueError:
        target = nan
    if not 0 < target < inf:
        rule = "--target must be a figure above 0, as result.json has it"
        raise FedloomError(rule, f"got {text!r}", "try --target 0.6 for 60 %")
    return target


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2`"""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        rule = "--seeds must be whole numbers of 0 or more"
        raise FedloomError(rule, f"got {text!r}", "try --seeds 0,1,2")
    return tuple(int(part) for part in parts)


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`lr=.1,.03`, once for every option that is tuned."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        values = listed.split(",")
        if not name or not all(values):
            rule = "--grid must look like option=A,B"
            raise FedloomError(rule, f"got {text!r}", "try --grid lr=.1,.03,.01")
        grid[name] = values
    return grid


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; none without a grid."""
    if not grid:
        return []
    count = prod(len(values) for values in grid.values())
    if count > MOST_POINTS:
        raise FedloomError(
            f"--grid must have at most {MOST_POINTS:,} points",
            f"it has {count:,}",
            "tune fewer options or values",
        )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
