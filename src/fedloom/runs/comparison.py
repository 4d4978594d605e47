"""Comparing several methods on the same splits, paired by seed.

For every seed one split is made, and every method gets exactly that split. With `equal` macs or
bytes, what the first method spends in its rounds is the budget of all methods. With a grid, each
method is first tuned on validation data of the first seed (a quarter of every client's training
data, held back), by the round that its runs report. Then it is trained again on all training data.

A grid tunes what is reported: the first method is tuned and run before the others are tuned, so
that their grids have the budget and the matched width of their own run with that seed. Two
differences remain. The grid's runs have a quarter less data to train on, so a budget in MACs lasts
for more rounds. And the first seed's point is used for all seeds, whose budgets and widths differ.
"""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.config.variants import Variant
from fedloom.cost.count import macs, parameters
from fedloom.data.configured import with_absolute_paths
from fedloom.data.split import Split
from fedloom.errors import FedloomError, TooFewReplies
from fedloom.evaluate.judgement import judged
from fedloom.evaluate.method_row import mean_macs, mean_params, method_row, with_holm
from fedloom.evaluate.target import first_reached, mean_target
from fedloom.evaluate.tier_rows import tiers_with_holm, with_tiers
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.server.events import Notice
from fedloom.networks.building import build_model
from fedloom.options import spelled_out
from fedloom.records.comparison import ComparisonResult, MethodRow, folder_labels
from fedloom.records.folder import RunFolder, making
from fedloom.records.plan import PLAN, Plan, grid_points, read_plan
from fedloom.records.result import NAME as RESULT
from fedloom.records.rows import METRICS_FILE, read_rows
from fedloom.registry import absolute
from fedloom.report.notebook import table_html
from fedloom.report.progress import Screen
from fedloom.runs.experiment import create, short_name
from fedloom.runs.loop_settings import worker_count
from fedloom.runs.planning import GRID, ROUNDS, check_plan, experiment
from fedloom.runs.preparing import prepare, reopen
from fedloom.runs.results import Run
from fedloom.runs.running import carry_out
from fedloom.runs.warm_start import read_start, stored_config
from fedloom.types import Json


@dataclass(frozen=True)
class Comparison:
    path: Path
    runs: list[Run]
    rows: list[MethodRow]  # one per method
    target: float | None = None  # the validation figure whose costs are reported

    @property
    def methods(self) -> list[dict[str, Json]]:
        """The rows as result.json has them.

        They have the metric over seeds, the difference to the first method, and the cost.
        """
        return [row.to_json() for row in self.rows]

    def to_json(self) -> Json:
        return {"runs": [run.to_json() for run in self.runs], "methods": self.methods}

    def table(self) -> None:
        """Print the comparison."""
        from rich.console import Console

        from fedloom.report.run_table import seen

        console = Console(markup=False)
        console.print(self._table())
        if self._has_tiers:
            console.print(self._tiers_table())
        if self.target is not None:
            console.print(self._targets_table(self.target))
        for run in self.runs:
            if seen(run.record):
                print(f"{run.path.name}:{seen(run.record)}")

    def next_steps(self) -> list[str]:
        """Where the report is, and commands for what to do next."""
        run = shlex.quote(str(self.runs[0].path))
        lines = [f"report: {self.path / 'report.html'}"]
        if all(row.runs == 1 for row in self.rows):
            lines.append("next: the same with --seeds 0,1,2, for confidence intervals")
        lines.append(f"next: fedloom export {run} --client 0")
        return lines

    def _repr_html_(self) -> str:
        tables = table_html(self._table())
        if self._has_tiers:
            tables += table_html(self._tiers_table())
        if self.target is not None:
            tables += table_html(self._targets_table(self.target))
        return tables

    def _table(self) -> Table:
        from fedloom.report.comparison_table import comparison_table

        data = self.runs[0].record.data
        return comparison_table(self.rows, f"{data.name}, {data.partition}")

    @property
    def _has_tiers(self) -> bool:
        return any(row.tiers for row in self.rows)

    def _tiers_table(self) -> Table:
        from fedloom.report.tier_tables import tiers_of_methods

        return tiers_of_methods(self.rows)

    def _targets_table(self, target: float) -> Table:
        from fedloom.report.target_tables import targets_of_methods

        return targets_of_methods(self.rows, target)


def create_comparison(plan: Plan, out: str | Path | None) -> RunFolder:
    """Check every method and setting, then create the folder; nothing is trained yet."""
    check_plan(plan)
    config: Experiment = validated(Experiment, plan.tree)
    data = with_absolute_paths(config.data)
    tree = {
        **spelled_out(config, plan.tree),
        "data": spelled_out(data, given_data(data)),
        "options": absolute_options(plan.tree.get("options", {})),
        **shared_start(plan),
    }
    methods = tuple(Variant.parse(method).with_absolute_paths() for method in plan.methods)
    plan = replace(plan, methods=methods, tree=tree)
    path = None
    if out is not None:
        path = Path(out)
    command = "compare" if plan.contest is None else "auto"
    folder = RunFolder.create("compare", f"{command}-{short_name(data.name)}", path)
    with making(folder.path):
        folder.write_json(PLAN, asdict(plan))
    return folder


def given_data(data: DataConfig) -> dict[str, Any]:
    """A plan's options of data. If the user gave no partition, the data will decide about it."""
    options = data.model_dump(mode="json", exclude_none=True)
    if "partition" not in data.model_fields_set:
        del options["partition"]
    return options


def absolute_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with absolute paths, so that a comparison can be resumed from any folder."""
    changed = dict(options)
    for name, value in options.items():
        if isinstance(value, str):
            changed[name] = absolute(value)
    return changed


def shared_start(plan: Plan) -> dict[str, Json]:
    """The section of `--init`, with a hash that gives all runs the same weights, also later."""
    init = validated(Experiment, plan.tree).init
    if init is None:
        return {}
    start = read_start(init, plan.methods[0])
    return {"init": stored_config(init, start).model_dump(mode="json", exclude_none=True)}


def continue_comparison(folder: RunFolder, screen: Screen) -> Comparison:
    """Carry out a comparison: read finished runs, resume started ones, and start the others."""
    with comparison_runner(folder, screen) as runner:
        return runner.run()


@contextmanager
def comparison_runner(folder: RunFolder, screen: Screen) -> Iterator[ComparisonRunner]:
    """Lock a comparison's folder, and start worker processes for all of its runs."""
    with folder.writing(), folder.lock():
        plan = read_plan(folder)
        pool = Pool(worker_count(validated(Experiment, plan.tree).engine.workers))
        try:
            pool.start()
            yield ComparisonRunner(folder, plan, screen, pool)
        finally:
            pool.close()


@dataclass(frozen=True)
class Terms:
    """What the first method's run with a seed sets for the others; before that run, defaults."""

    split: Split | None = None
    budget: Mapping[str, Any] = field(default_factory=lambda: ROUNDS)
    target: float | None = None  # parameters or MACs of the networks that it found


@dataclass
class ComparisonRunner:
    """A comparison that is being carried out."""

    folder: RunFolder
    plan: Plan
    screen: Screen
    pool: Pool

    def __post_init__(self) -> None:
        names = [self.plan.names.get(method, method) for method in self.plan.methods]
        self.labels = folder_labels(names)

    def run(self) -> Comparison:
        from fedloom.report.page import try_report
        from fedloom.report.versus import write_comparison  # here, because it reads plans

        tuned: dict[str, dict[str, Any] | None] = {}
        runs: dict[str, list[Run]] = {method: [] for method in self.plan.methods}
        for seed in self.plan.seeds:
            terms = self._first_terms()
            for method in self.plan.methods:
                if method not in tuned:  # only with the first seed
                    tuned[method] = self._tune(method, terms)
                changes = self._changes(method, seed, terms, tuned[method] or {})
                name = f"{self.label(method)}-seed{seed}"
                run, split = self.run_one(name, method, seed, changes, terms.split)
                runs[method].append(run)
                if method == self.plan.methods[0]:
                    terms = Terms(split, self._budget(run, terms), self._size_to_match(run))
        rows = [self.row(method, runs, tuned[method]) for method in self.plan.methods]
        rows = tiers_with_holm(with_holm(rows))
        all_runs = list(chain.from_iterable(runs.values()))
        result = ComparisonResult(runs=[str(run.path) for run in all_runs], methods=rows)
        self.folder.write_json(RESULT, result.to_json())
        try_report(self.folder, write_comparison)
        return Comparison(self.folder.path, all_runs, rows, self.plan.target)

    def row(
        self,
        method: str,
        runs: Mapping[str, Sequence[Run]],
        tuned: Mapping[str, Any] | None,
    ) -> MethodRow:
        first = None
        if method != self.plan.methods[0]:
            first = [run.record for run in runs[self.plan.methods[0]]]
        name = self.plan.name_of(method)
        records = [run.record for run in runs[method]]
        row = judged(method_row(method, name, records, first, tuned), records)
        if self.plan.target is not None:
            row = with_target(row, runs[method], self.plan.target)
        return with_tiers(row, records, first)

    def label(self, method: str) -> str:
        return self.labels[self.plan.names.get(method, method)]

    def _changes(
        self,
        method: str,
        seed: int,
        terms: Terms,
        point: Mapping[str, Any],
    ) -> dict[str, Any]:
        """How a run's configuration differs from the comparison's; also for a grid's runs."""
        width = matched_width(self.plan, method, seed, terms.split, terms.target, point)
        return {"options": {**width, **point}, "budget": terms.budget}

    def run_one(
        self,
        name: str,
        method: str,
        seed: int,
        changes: Mapping[str, Any],
        split: Split | None,
    ) -> tuple[Run, Split]:
        """Read, resume or start one run, on the split that the seed's first method had."""
        path = self.folder.path / name
        if (path / "config.toml").exists():
            folder = RunFolder.open(path)
            if folder.result() is not None:
                return Run.open(path), split or Split.load(path / "split.json")
            prepared = reopen(folder)
        else:
            # a folder without a configuration was left by a process that was killed
            shutil.rmtree(path, ignore_errors=True)
            folder, prepared = create(experiment(self.plan, method, seed, changes), path, split)
        run = carry_out(folder, prepared, self.screen.listener(name), self.pool)
        return run, prepared.split

    def _first_terms(self) -> Terms:
        """The terms of a seed's first run: an amount that the user gave is everybody's budget."""
        budget = validated(Experiment, self.plan.tree).budget
        if budget.equal == "rounds" or budget.amount is None:
            return Terms()
        return Terms(budget={"equal": budget.equal, "amount": budget.amount})

    def _budget(self, first: Run, terms: Terms) -> Mapping[str, Any]:
        """The budget of the other methods: the given amount, or what the first method spent."""
        unit = validated(Experiment, self.plan.tree).budget.equal
        if unit == "rounds" or terms.budget is not ROUNDS:
            return terms.budget
        record = first.record
        if unit == "bytes":
            return {"equal": unit, "amount": record.traffic.of_training}
        if unit == "wan":
            return {"equal": unit, "amount": record.traffic.wan}
        if unit == "seconds":
            assert record.simulated is not None  # comparisons run by the simulated clock
            return {"equal": unit, "amount": record.simulated.seconds}
        assert record.macs is not None  # comparisons are simulations, which measure MACs
        return {"equal": unit, "amount": record.macs + record.server_macs}

    def _size_to_match(self, first: Run) -> float | None:
        """The parameters or MACs that fixed networks are to match."""
        if self.plan.match_macs:
            return mean_macs([first.record])
        return mean_params([first.record])

    def _tune(self, method: str, terms: Terms) -> dict[str, Any] | None:
        """Find the grid's best point with the first seed, on the terms of the reported run.

        A point is judged by the validation figure of the round that its run reports: the last, or
        the best if select = best.
        """
        best: tuple[float, dict[str, Any]] | None = None
        points = grid_points(self.plan.grid)
        for number, point in enumerate(points):
            run = self._run_point(f"grid-{self.label(method)}-{number}", method, point, terms)
            if run is None or run.record.validation is None:
                continue
            value = run.record.validation
            if best is None or run.metric.better(value, best[0]):
                best = (value, point)
        if best is not None:
            return best[1]
        if points:
            raise FedloomError(
                "--grid must have a point that can be judged",
                f"none of the {len(points)} points of {method} got a validation figure",
                "see the run.log of each; try other values",
            )
        return None

    def _run_point(
        self,
        name: str,
        method: str,
        point: dict[str, Any],
        terms: Terms,
    ) -> Run | None:
        """Run one point of the grid; None if training failed, so that it cannot be judged."""
        seed = self.plan.seeds[0]
        changes = {**GRID, **self._changes(method, seed, terms, point)}
        try:
            run, _ = self.run_one(name, method, seed, changes, terms.split)
        except TooFewReplies:
            text = "too few replies could be used: this point of the grid cannot be judged"
            self.screen.listener(name)(Notice(text))
            return None
        return run


def with_target(row: MethodRow, runs: Sequence[Run], target: float) -> MethodRow:
    """Add what the runs had spent when their validation figure reached the target."""
    reached = []
    for run in runs:
        rows = read_rows(run.path / METRICS_FILE)
        reached.append(first_reached(rows, target, row.judged_by))
    count = sum(costs is not None for costs in reached)
    return row.replace(target=mean_target(reached), target_reached=count)


def matched_width(
    plan: Plan,
    method: str,
    seed: int,
    split: Split | None,
    target: float | None,
    point: Mapping[str, Any],
) -> dict[str, float]:
    """The width at which a fixed network matches the parameters or MACs of the first method's.

    `point` are options of a grid, which may choose the network, its head or its width.
    """
    config = experiment(plan, method, seed, {"budget": ROUNDS, "options": point})
    if not plan.matches or target is None or "width" in config.options:
        return {}
    task = prepare(config, split).task
    if "width" not in task.options:
        return {}
    network = task.options.get("network")
    head = task.options.get("head", "auto")

    def build(width: float) -> nn.Module:
        return build_model(task, network, width, head=head)

    def macs_of(net: nn.Module) -> int:
        return macs(net, task.shape)

    if plan.match_macs:
        return {"width": nearest_width(build, target, macs_of)}
    return {"width": nearest_width(build, target)}


def nearest_width(
    build: Callable[[float], nn.Module],
    target: float,
    size: Callable[[nn.Module], int] = parameters,
) -> float:
    """The width factor whose network has the number of parameters nearest to `target`.

    `size` may count something else, which must grow with the width.
    """
    low = 0.02
    high = 64.0
    while high / low > 1.0005:  # bisection on a logarithmic scale
        middle = math.sqrt(low * high)
        if size(build(middle)) > target:
            high = middle
        else:
            low = middle
    # Both are rounded before they are compared, because rounding may change a channel count.
    near = (round(low, 5), round(high, 5))
    return min(near, key=lambda width: abs(size(build(width)) - target))
