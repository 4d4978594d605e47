"""Several methods on the same split, seed by seed, paired.

For every seed one split is made, and every method gets exactly that file. With `equal` macs or bytes, what the
first method spends in its rounds is everybody's budget. With a grid, each method is first tuned on validation
data of the first seed (a quarter of every client's rest, held back), then trained again on the whole.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table
from torch import nn

from fedloom.config.models import Experiment, validated
from fedloom.config.variants import found_anywhere as found_in_variant
from fedloom.cost.count import parameters
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.evaluate.paired import over_seeds, paired
from fedloom.federation.engines.local import Pool
from fedloom.metrics.metric import Metric
from fedloom.nets.model import build_model
from fedloom.options import spelled_out
from fedloom.records.findings import most
from fedloom.records.folder import RunFolder, making
from fedloom.records.plan import PLAN, ROUNDS, Plan, check_plan, experiment, grid_points, read_plan
from fedloom.records.totals import Totals, traffic_of
from fedloom.registry import absolute
from fedloom.report.notebook import table_html
from fedloom.report.progress import Screen
from fedloom.runs.configured_data import found_anywhere
from fedloom.runs.experiment import (
    create,
    prepare,
    reopen,
    short_name,
    worker_count,
)
from fedloom.runs.results import Run, carry_out
from fedloom.runs.warm_start import begun, settled
from fedloom.types import Json


@dataclass(frozen=True)
class Comparison:
    path: Path
    runs: list[Run]
    methods: list[Json]  # a row a method: the metric over seeds, difference to the first, cost

    def to_json(self) -> Json:
        return {"runs": [run.to_json() for run in self.runs], "methods": self.methods}

    def table(self) -> None:
        """Print the comparison."""
        from rich.console import Console

        from fedloom.report.tables import seen

        Console(markup=False).print(self._table())
        for run in self.runs:
            if seen(run.result):
                print(f"{run.path.name}:{seen(run.result)}")

    def _repr_html_(self) -> str:
        return table_html(self._table())

    def _table(self) -> Table:
        from fedloom.report.tables import comparison_table

        data = self.runs[0].result["data"]
        return comparison_table(self.methods, f"{data['name']}, {data['partition']}")


def create_comparison(plan: Plan, out: str | Path | None) -> RunFolder:
    """Check every method and setting, then make the folder; nothing is trained yet."""
    check_plan(plan)
    settled: Experiment = validated(Experiment, plan.tree)
    data = found_anywhere(settled.data)
    options = {
        key: absolute(value) if isinstance(value, str) else value for key, value in plan.tree.get("options", {}).items()
    }
    init = shared_start(plan)
    methods = tuple(found_in_variant(method) for method in plan.methods)
    plan = replace(
        plan,
        methods=methods,
        tree={
            **spelled_out(settled, plan.tree),
            "data": data.model_dump(mode="json", exclude_none=True),
            "options": options,
            **init,
        },
    )
    folder = RunFolder.create("compare", f"compare-{short_name(data.name)}", None if out is None else Path(out))
    with making(folder.path):
        folder.write_json(PLAN, asdict(plan))
    return folder


def shared_start(plan: Plan) -> dict[str, Json]:
    """`--init` for all methods and seeds: the same weights, also if the comparison is resumed."""
    init = validated(Experiment, plan.tree).init
    if init is None:
        return {}
    return {"init": settled(init, begun(init, plan.methods[0])).model_dump(mode="json", exclude_none=True)}


def continue_comparison(folder: RunFolder, shown: Screen) -> Comparison:
    """Runs that are finished are read, those begun are resumed, the rest are started."""
    with folder.writing(), folder.lock():
        plan = read_plan(folder)
        pool = Pool(worker_count(validated(Experiment, plan.tree).engine.workers))
        try:
            pool.start()
            return Bench(folder, plan, shown, pool).run()
        finally:
            pool.close()


@dataclass
class Bench:
    """One comparison on its way."""

    folder: RunFolder
    plan: Plan
    shown: Screen
    pool: Pool

    def __post_init__(self) -> None:
        self.labels = labels([self.plan.names.get(method, method) for method in self.plan.methods])

    def run(self) -> Comparison:
        from fedloom.report.page import try_report
        from fedloom.report.versus import write_comparison  # which reads plans

        tuned = {method: self._tune(method) for method in self.plan.methods}
        runs: dict[str, list[Run]] = {method: [] for method in self.plan.methods}
        for seed in self.plan.seeds:
            budget: Mapping[str, Any] = ROUNDS
            split: Split | None = None
            target: float | None = None
            for method in self.plan.methods:
                options = {**self._width(method, seed, split, target), **(tuned[method] or {})}
                changes = {"options": options, "budget": budget}
                done, split = self._one(f"{self._label(method)}-seed{seed}", method, seed, changes, split)
                runs[method].append(done)
                if method == self.plan.methods[0]:
                    budget, target = self._budget(done), mean_params([done])
        first = runs[self.plan.methods[0]]
        rows = [self._named(method, row(method, runs[method], first, tuned[method])) for method in self.plan.methods]
        result = {"runs": [str(run.path) for done in runs.values() for run in done], "methods": rows}
        self.folder.write_json("result.json", result)
        try_report(self.folder, write_comparison)
        return Comparison(self.folder.path, [run for done in runs.values() for run in done], rows)

    def _label(self, method: str) -> str:
        return self.labels[self.plan.names.get(method, method)]

    def _named(self, method: str, figures: Json) -> Json:
        return {"method": method, "name": self.plan.names.get(method, method.rpartition("/")[2]), **figures}

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
            shutil.rmtree(path, ignore_errors=True)  # a kill left it without its configuration: nothing in it counts
            folder, prepared = create(experiment(self.plan, method, seed, changes), path, split)
        return carry_out(folder, prepared, self.shown.listener(name), self.pool), prepared.split

    def _budget(self, first: Run) -> Mapping[str, Any]:
        unit = validated(Experiment, self.plan.tree).budget.equal
        if unit == "rounds":
            return ROUNDS
        sent = first.result["bytes"]
        spent = Totals(0, sent["down"], sent["up"], sent["lan_down"], sent["lan_up"], first.result["macs"])
        return {"equal": unit, "amount": spent.spent(unit)}

    def _width(self, method: str, seed: int, split: Split | None, target: float | None) -> dict[str, float]:
        """For a fixed network that is to have as many parameters as the first method found."""
        config = experiment(self.plan, method, seed, {"budget": ROUNDS})
        if not self.plan.match_params or target is None or "width" in config.options:
            return {}
        task = prepare(config, split).task
        if "width" not in task.options:
            return {}
        return {"width": nearest_width(lambda width: build_model(task, task.options.get("network"), width), target)}

    def _tune(self, method: str) -> dict[str, Any] | None:
        """The grid's best point by validation on the first seed."""
        best: tuple[float, dict[str, Any]] | None = None
        for number, point in enumerate(grid_points(self.plan.grid)):
            changes = {"options": point, "evaluate": {"select": "best"}, "budget": ROUNDS}
            name = f"grid-{self._label(method)}-{number}"
            run, _ = self._one(name, method, self.plan.seeds[0], changes, None)
            value = run.result["validation"]
            if value is not None and (best is None or run.metric.better(value, best[0])):
                best = (value, point)
        if best is None and self.plan.grid:
            found = f"none of {method}'s points could be evaluated"
            raise FedloomError(
                "--grid must have a point that can be chosen", found, "see their run.log; try other values"
            )
        return None if best is None else best[1]


def nearest_width(build: Callable[[float], nn.Module], target: float) -> float:
    """The width factor whose network has the number of parameters nearest to `target`."""
    low, high = 0.02, 64.0
    while high / low > 1.0005:  # halved on a logarithmic scale; parameters grow with the width
        middle = math.sqrt(low * high)
        low, high = (low, middle) if parameters(build(middle)) > target else (middle, high)
    near = (round(low, 5), round(high, 5))  # rounded before they are compared: rounding may cross an edge
    return min(near, key=lambda width: abs(parameters(build(width)) - target))


def mean_params(runs: Sequence[Run]) -> float | None:
    """Of the networks that clients ended with, where they are known."""
    sizes = [row["params"] for run in runs for row in run.result["clients"] if row["params"] is not None]
    return fmean(sizes) if sizes else None


def labels(methods: Sequence[str]) -> dict[str, str]:
    """Variants' names as folders' names; a number tells apart those that look alike without their path."""
    names = [re.sub(r"[^\w.=,-]+", "_", re.sub(r"^.*\.py:", "", method)) for method in methods]
    alike = [f"{name}-{number}" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]
    return dict(zip(methods, alike, strict=True))


def gap(metric: Metric, first: Sequence[float], mine: Sequence[float]) -> Json:
    """The paired difference, and whether it is for the better: null where its interval holds 0, or there is none."""
    found = paired(first, mine)
    low, high = found.low, found.high
    told = low is not None and high is not None and (low > 0 or high < 0)
    better = metric.better(found.difference, 0.0) if told else None
    return {"mean": found.difference, "low": low, "high": high, "better": better}


def row(method: str, runs: Sequence[Run], first: Sequence[Run], tuned: Mapping[str, Any] | None) -> Json:
    """One method over its seeds."""

    def seeds(values: Sequence[float | None]) -> Json:
        found = [value for value in values if value is not None]
        mean, std = over_seeds(found) if found else (None, None)
        return {"mean": mean, "std": std}

    metric = runs[0].metric
    mine, theirs = [run.figures["mean"] for run in runs], [run.figures["mean"] for run in first]
    traffic = [traffic_of(run.result["bytes"]) for run in runs]
    return {
        "method": method, "runs": len(runs), "tuned": tuned, "metric": metric.name,
        "lower_is_better": metric.lower_is_better, metric.name: seeds(mine),
        "difference": None if runs is first or None in (*mine, *theirs) else gap(metric, theirs, mine),
        "pooled": seeds([run.figures["pooled"] for run in runs]),
        "worst": seeds([run.figures["worst"] for run in runs]),
        "global": seeds([run.result["global"] for run in runs]),
        "params": mean_params(runs), "rounds": fmean(run.result["rounds"] for run in runs),
        "macs": seeds([run.result["macs"] for run in runs])["mean"], "bytes": fmean(traffic),
        "seconds": fmean(run.result["seconds"] for run in runs),
        "memory": most(run.result.get("memory") for run in runs),
        "seen": most((run.result.get("init") or {}).get("seen") for run in runs),
    }  # fmt: skip
