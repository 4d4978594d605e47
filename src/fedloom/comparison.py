"""Several methods on the same split, seed by seed, paired.

For every seed one split is made, and every method gets exactly that file. With `equal` macs or bytes, what the
first method spends in its rounds is everybody's budget. With a grid, each method is first tuned on validation
data of the first seed (a quarter of every client's rest, held back), then trained again on the whole.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedloom.config import Experiment, validated
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.evaluate.paired import over_seeds, paired
from fedloom.experiment import create, prepare, reopen, resolve_options, short_name, worker_count
from fedloom.federation.engines.local import Pool
from fedloom.federation.ledger import Totals
from fedloom.folder import RunFolder
from fedloom.report.progress import Screen
from fedloom.result import Run, carry_out
from fedloom.types import Json
from fedloom.variants import configure


@dataclass(frozen=True)
class Plan:
    """What to compare. `tree` is the configuration that all methods share."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, list[Any]]
    tree: Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    path: Path
    runs: list[Run]
    methods: list[Json]  # a row a method: accuracy over seeds, difference to the first, cost

    def to_json(self) -> Json:
        return {"runs": [run.to_json() for run in self.runs], "methods": self.methods}

    def table(self) -> None:
        """Print the comparison."""
        from rich.console import Console

        from fedloom.report.tables import comparison_table

        data = self.runs[0].result["data"]
        Console().print(comparison_table(self.methods, f"{data['name']}, {data['partition']}"))


def create_comparison(plan: Plan, out: str | Path | None) -> RunFolder:
    """Check every method and setting, then make the folder; nothing is trained yet."""
    check(plan)
    name = validated(Experiment, plan.tree).data.name
    folder = RunFolder.create("compare", f"compare-{short_name(name)}", None if out is None else Path(out))
    folder.write_json("compare.json", asdict(plan))
    return folder


def continue_comparison(folder: RunFolder, shown: Screen) -> Comparison:
    """Runs that are finished are read, those begun are resumed, the rest are started."""
    raw = folder.read_json("compare.json")
    plan = Plan(tuple(raw["methods"]), tuple(raw["seeds"]), raw["grid"], raw["tree"])
    pool = Pool(worker_count(validated(Experiment, plan.tree).engine.workers))
    pool.start()
    try:
        return Bench(folder, plan, shown, pool).run()
    finally:
        pool.close()


def check(plan: Plan) -> None:
    """Name a wrong method or option before anything is trained."""
    if not plan.methods or len(set(plan.methods)) != len(plan.methods):
        raise FedloomError(
            "compare must be given different methods", f"got {' '.join(plan.methods) or 'none'}", "name them"
        )
    if len(set(plan.seeds)) != len(plan.seeds) or not plan.seeds:
        raise FedloomError("--seeds must be different whole numbers", f"got {list(plan.seeds)}", "try --seeds 0,1,2")
    for method in plan.methods:
        config = experiment(plan, method, plan.seeds[0], {})
        for point in grid_points(plan.grid):
            resolve_options(config.method, {**config.options, **point})
    prepare(experiment(plan, plan.methods[0], plan.seeds[0], {}))


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
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] if grid else []


@dataclass
class Bench:
    """One comparison on its way."""

    folder: RunFolder
    plan: Plan
    shown: Screen
    pool: Pool

    def run(self) -> Comparison:
        tuned = {method: self._tune(method) for method in self.plan.methods}
        runs: dict[str, list[Run]] = {method: [] for method in self.plan.methods}
        for seed in self.plan.seeds:
            budget: Mapping[str, Any] = {"equal": "rounds", "amount": None}
            split: Split | None = None
            for method in self.plan.methods:
                changes = {"options": tuned[method] or {}, "budget": budget}
                done, split = self._one(f"{label(method)}-seed{seed}", method, seed, changes, split)
                runs[method].append(done)
                if method == self.plan.methods[0]:
                    budget = self._budget(done)
        rows = [row(method, runs[method], runs[self.plan.methods[0]], tuned[method]) for method in self.plan.methods]
        result = {"runs": [str(run.path) for done in runs.values() for run in done], "methods": rows}
        self.folder.write_json("result.json", result)
        return Comparison(self.folder.path, [run for done in runs.values() for run in done], rows)

    def _one(
        self, name: str, method: str, seed: int, changes: Mapping[str, Any], split: Split | None
    ) -> tuple[Run, Split]:
        """One run: read, resumed or started, on the split that the seed's first method was given."""
        path = self.folder.path / name
        if (path / "config.toml").exists():
            folder, prepared = RunFolder.open(path), None
            if folder.result() is not None:
                return Run.open(path), split or Split.load(path / "split.json")
            prepared = reopen(folder)
        else:
            discard(path)
            folder, prepared = create(experiment(self.plan, method, seed, changes), path, split)
        return carry_out(folder, prepared, self.shown.listener(name), self.pool), prepared.split

    def _budget(self, first: Run) -> Mapping[str, Any]:
        unit = validated(Experiment, self.plan.tree).budget.equal
        if unit == "rounds":
            return {"equal": "rounds", "amount": None}
        sent = first.result["bytes"]
        spent = Totals(0, sent["down"], sent["up"], sent["lan_down"], sent["lan_up"], first.result["macs"])
        return {"equal": unit, "amount": spent.spent(unit)}

    def _tune(self, method: str) -> dict[str, Any] | None:
        """The grid's best point by validation on the first seed."""
        best: tuple[float, dict[str, Any]] | None = None
        for number, point in enumerate(grid_points(self.plan.grid)):
            changes = {"options": point, "evaluate": {"select": "best"}, "budget": {"equal": "rounds", "amount": None}}
            name = f"grid-{label(method)}-{number}"
            run, _ = self._one(name, method, self.plan.seeds[0], changes, None)
            value = run.result["validation"]
            if value is not None and (best is None or value > best[0]):
                best = (value, point)
        return None if best is None else best[1]


def discard(path: Path) -> None:
    """A run folder that a kill left without its configuration: nothing in it counts yet."""
    for name in ("run.json", "split.json", "run.lock"):
        (path / name).unlink(missing_ok=True)


def label(method: str) -> str:
    """A variant's name as a folder's name."""
    return re.sub(r"[^\w.=,-]+", "_", short_name(method) if ".py:" in method else method)


def row(method: str, runs: Sequence[Run], first: Sequence[Run], tuned: Mapping[str, Any] | None) -> Json:
    """One method over its seeds."""

    def seeds(values: Sequence[float | None]) -> Json:
        found = [value for value in values if value is not None]
        mean, std = over_seeds(found) if found else (None, None)
        return {"mean": mean, "std": std}

    mine, theirs = [run.accuracy["mean"] for run in runs], [run.accuracy["mean"] for run in first]
    gap = None if runs is first else paired(theirs, mine)
    sizes = [row["params"] for run in runs for row in run.result["clients"] if row["params"] is not None]
    traffic = [sum(run.result["bytes"][part] for part in ("down", "up", "lan_down", "lan_up")) for run in runs]
    return {
        "method": method, "runs": len(runs), "tuned": tuned, "accuracy": seeds(mine),
        "difference": None if gap is None else {"mean": gap.difference, "low": gap.low, "high": gap.high},
        "pooled": seeds([run.accuracy["pooled"] for run in runs]),
        "worst": seeds([run.accuracy["worst"] for run in runs]),
        "global": seeds([run.result["global"] for run in runs]),
        "params": fmean(sizes) if sizes else None, "rounds": fmean(run.result["rounds"] for run in runs),
        "macs": fmean(run.result["macs"] for run in runs), "bytes": fmean(traffic),
        "seconds": fmean(run.result["seconds"] for run in runs),
    }  # fmt: skip
