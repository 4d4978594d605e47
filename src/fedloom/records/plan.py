"""The plan of a comparison: what `fedloom compare` was asked for.

It is parsed from the command line, and stored in the comparison's folder.
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
MOST_POINTS = 10_000  # the most points of a grid, each of which is a run


@dataclass(frozen=True)
class Contest:
    """What `fedloom auto` asks for in addition to a comparison.

    The first method of the comparison is the control, the second the one whose decisions are
    reported.
    """

    # The share of the budget after which only the better half of the other methods continues;
    # None: all continue.
    rung: float | None = None
    # The most that a network may cost to be chosen: params, macs.
    limits: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # how the budget was determined
    seconds: float = 0.0  # the approximate duration of all runs on the machine that planned them


@dataclass(frozen=True)
class Plan:
    """What to compare. `tree` is the configuration that all methods share."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, list[Any]]
    tree: Mapping[str, Any]
    # Whether fixed networks get the width whose parameters are nearest to those of the network that
    # the first method found.
    match_params: bool = False
    # How variants are called in tables and folders.
    names: Mapping[str, str] = field(default_factory=dict)
    # The validation figure for which the comparison reports what reaching it cost.
    target: float | None = None
    # Whether fixed networks get the width whose MACs are nearest to the average over the first
    # method's networks.
    match_macs: bool = False
    contest: Contest | None = None  # None: this is not a plan of `fedloom auto`

    def name_of(self, method: str) -> str:
        """How tables call a method."""
        return self.names.get(method, without_folders(method))

    def spelled(self, method: str) -> str:
        """A variant as a user writes it, with its label if it has one."""
        name = self.names.get(method, "")
        if not LABEL.fullmatch(name):  # a name that only programs assign
            return method
        return f"{method}@{name}"

    @property
    def matches(self) -> bool:
        """Whether fixed networks get the size of the first method's networks."""
        return self.match_params or self.match_macs


class ContestInFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    rung: float | None
    limits: dict[str, float]
    note: str
    seconds: float


class PlanFile(BaseModel):
    """The content of compare.json."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    methods: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    grid: dict[str, list[str | int | float | bool | None]]
    tree: dict[str, Any]
    match_params: bool
    names: dict[str, str]
    # Files of earlier versions lack the following fields.
    target: float | None = None
    match_macs: bool = False
    contest: ContestInFile | None = None


def read_plan(folder: RunFolder) -> Plan:
    try:
        raw = PlanFile.model_validate(read_json(folder.path / PLAN))
    except Unreadable as error:  # perhaps killed before there was anything to resume
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


def no_plan(folder: RunFolder, problem: str) -> FedloomError:
    return FedloomError(
        f"{folder.path} must hold a comparison",
        problem,
        "correct it, or start it again",
    )


def parse_target(text: str | None) -> float | None:
    """Parse a target such as `0.6`, in the unit of the metric."""
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
    """Parse seeds such as `0,1,2`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        rule = "--seeds must be whole numbers of 0 or more"
        raise FedloomError(rule, f"got {text!r}", "try --seeds 0,1,2")
    return tuple(int(part) for part in parts)


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse texts such as `lr=.1,.03`, one for every option that is tuned."""
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
    """Every combination of the values; an empty list without a grid."""
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
