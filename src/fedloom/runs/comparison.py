"""Several methods on the same split, seed by seed, paired.

For every seed one split is made, and every method gets exactly that file. With `equal` macs or
bytes, what the first method spends in its rounds is everybody's budget. With a grid, each method is
first tuned on validation data of the first seed (a quarter of every client's rest, held back), by
the round that its runs report, then trained again on the whole.

A grid tunes what is reported: the first method is tuned and run before the others are tuned, so
that their grids have the budget and the matched width of their own run with that seed. Two things
remain different. The grid's runs have a quarter less to train on, so a budget in MACs lasts for
more rounds. And the first seed's point is used for all seeds, whose budgets and widths differ.
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
from fedloom.data.configured import found_anywhere
from fedloom.data.split import Split
from fedloom.errors import FedloomError, TooFewReplies
from fedloom.evaluate.judgement import judged
from fedloom.evaluate.method_row import mean_macs, mean_params, method_row, with_holm
from fedloom.evaluate.target import first_reached, mean_target
from fedloom.evaluate.tier_rows import tiers_with_holm, with_tiers
from fedloom.federation.engines.local import Pool
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
from fedloom.runs.results import Run, carry_out
from fedloom.runs.warm_start import begun, settled
from fedloom.types import Json


@dataclass(frozen=True)
class Comparison:
    path: Path
    runs: list[Run]
    rows: list[MethodRow]  # one a method
    target: float | None = None  # the validation figure whose costs are told

    @property
    def methods(self) -> list[dict[str, Json]]:
        """The rows as result.json has them.

        The metric over seeds, the difference to the first method, and the cost.
        """
        return [row.to_json() for row in self.rows]

    def to_json(self) -> Json:
        return {"runs": [run.to_json() for run in self.runs], "methods": self.methods}

    def table(self) -> None:
        """Print the comparison."""
        from rich.console import Console

        from fedloom.report.tables import seen

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
        """Where its report is, and what to do with its runs."""
        run = shlex.quote(str(self.runs[0].path))
        lines = [f"report: {self.path / 'report.html'}"]
        if all(row.runs == 1 for row in self.rows):
            lines.append("next: the same with --seeds 0,1,2, which gives differences an interval")
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
        from fedloom.report.tables import comparison_table

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
    """Check every method and setting, then make the folder; nothing is trained yet."""
    check_plan(plan)
    config: Experiment = validated(Experiment, plan.tree)
    data = found_anywhere(config.data)
    tree = {
        **spelled_out(config, plan.tree),
        "data": spelled_out(data, asked_of(data)),
        "options": absolute_options(plan.tree.get("options", {})),
        **shared_start(plan),
    }
    methods = tuple(Variant.parse(method).found_anywhere() for method in plan.methods)
    plan = replace(plan, methods=methods, tree=tree)
    path = None
    if out is not None:
        path = Path(out)
    what = "compare" if plan.contest is None else "auto"
    folder = RunFolder.create("compare", f"{what}-{short_name(data.name)}", path)
    with making(folder.path):
        folder.write_json(PLAN, asdict(plan))
    return folder


def asked_of(data: DataConfig) -> dict[str, Any]:
    """The data of a plan. A partition that nobody asked for is left to the data."""
    asked = data.model_dump(mode="json", exclude_none=True)
    if "partition" not in data.model_fields_set:
        del asked["partition"]
    return asked


def absolute_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with full paths to their files, whatever folder one resumes from."""
    full = dict(options)
    for name, value in options.items():
        if isinstance(value, str):
            full[name] = absolute(value)
    return full


def shared_start(plan: Plan) -> dict[str, Json]:
    """`--init` for all methods and seeds: the same weights, also if the comparison is resumed."""
    init = validated(Experiment, plan.tree).init
    if init is None:
        return {}
    start = begun(init, plan.methods[0])
    return {"init": settled(init, start).model_dump(mode="json", exclude_none=True)}


def continue_comparison(folder: RunFolder, shown: Screen) -> Comparison:
    """Runs that are finished are read, those begun are resumed, the rest are started."""
    with at_work(folder, shown) as bench:
        return bench.run()


@contextmanager
def at_work(folder: RunFolder, shown: Screen) -> Iterator[Bench]:
    """A comparison's folder, locked, and worker processes for all of its runs."""
    with folder.writing(), folder.lock():
        plan = read_plan(folder)
        pool = Pool(worker_count(validated(Experiment, plan.tree).engine.workers))
        try:
            pool.start()
            yield Bench(folder, plan, shown, pool)
        finally:
            pool.close()


@dataclass(frozen=True)
class Terms:
    """What the first method's run of a seed sets for the others; before it, there is nothing."""

    split: Split | None = None
    budget: Mapping[str, Any] = field(default_factory=lambda: ROUNDS)
    target: float | None = None  # parameters, or MACs, of the networks that it found


@dataclass
class Bench:
    """One comparison on its way."""

    folder: RunFolder
    plan: Plan
    shown: Screen
    pool: Pool

    def __post_init__(self) -> None:
        names = [self.plan.names.get(method, method) for method in self.plan.methods]
        self.labels = folder_labels(names)

    def run(self) -> Comparison:
        from fedloom.report.page import try_report
        from fedloom.report.versus import write_comparison  # which reads plans

        tuned: dict[str, dict[str, Any] | None] = {}
        runs: dict[str, list[Run]] = {method: [] for method in self.plan.methods}
        for seed in self.plan.seeds:
            terms = Terms()
            for method in self.plan.methods:
                if method not in tuned:  # it is the first seed
                    tuned[method] = self._tune(method, terms)
                changes = self._changes(method, seed, terms, tuned[method] or {})
                name = f"{self.label(method)}-seed{seed}"
                run, split = self.one(name, method, seed, changes, terms.split)
                runs[method].append(run)
                if method == self.plan.methods[0]:
                    terms = Terms(split, self._budget(run), self._size(run))
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
        own = [run.record for run in runs[method]]
        row = judged(method_row(method, name, own, first, tuned), own)
        if self.plan.target is not None:
            row = with_target(row, runs[method], self.plan.target)
        return with_tiers(row, own, first)

    def label(self, method: str) -> str:
        return self.labels[self.plan.names.get(method, method)]

    def _changes(
        self,
        method: str,
        seed: int,
        terms: Terms,
        point: Mapping[str, Any],
    ) -> dict[str, Any]:
        """What a run has other than the comparison's configuration; a grid's run has it too."""
        width = matched_width(self.plan, method, seed, terms.split, terms.target, point)
        return {"options": {**width, **point}, "budget": terms.budget}

    def one(
        self,
        name: str,
        method: str,
        seed: int,
        changes: Mapping[str, Any],
        split: Split | None,
    ) -> tuple[Run, Split]:
        """One run: read, resumed or started, on the split that the seed's first method had."""
        path = self.folder.path / name
        if (path / "config.toml").exists():
            folder = RunFolder.open(path)
            if folder.result() is not None:
                return Run.open(path), split or Split.load(path / "split.json")
            prepared = reopen(folder)
        else:
            # what a kill left without its configuration does not count
            shutil.rmtree(path, ignore_errors=True)
            folder, prepared = create(experiment(self.plan, method, seed, changes), path, split)
        run = carry_out(folder, prepared, self.shown.listener(name), self.pool)
        return run, prepared.split

    def _budget(self, first: Run) -> Mapping[str, Any]:
        unit = validated(Experiment, self.plan.tree).budget.equal
        if unit == "rounds":
            return ROUNDS
        record = first.record
        if unit == "bytes":
            return {"equal": unit, "amount": record.traffic.of_training}
        if unit == "wan":
            return {"equal": unit, "amount": record.traffic.wan}
        if unit == "seconds":
            assert record.simulated is not None  # it ran here, by the simulated clock
            return {"equal": unit, "amount": record.simulated.seconds}
        assert record.macs is not None  # it ran here, where they are measured
        return {"equal": unit, "amount": record.macs + record.server_macs}

    def _size(self, first: Run) -> float | None:
        """What fixed networks are to match."""
        if self.plan.match_macs:
            return mean_macs([first.record])
        return mean_params([first.record])

    def _tune(self, method: str, terms: Terms) -> dict[str, Any] | None:
        """The grid's best point on the first seed, on the terms of the run that is reported.

        A point is judged by the validation figure of the round that a run reports: the last, or,
        with select = best, the best.
        """
        best: tuple[float, dict[str, Any]] | None = None
        points = grid_points(self.plan.grid)
        for number, point in enumerate(points):
            run = self._point(f"grid-{self.label(method)}-{number}", method, point, terms)
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

    def _point(
        self,
        name: str,
        method: str,
        point: dict[str, Any],
        terms: Terms,
    ) -> Run | None:
        """The run of one point; None: training broke down, so that it cannot be judged."""
        seed = self.plan.seeds[0]
        changes = {**GRID, **self._changes(method, seed, terms, point)}
        try:
            run, _ = self.one(name, method, seed, changes, terms.split)
        except TooFewReplies:
            text = "no reply could be used any more: this point of the grid cannot be judged"
            self.shown.listener(name)(Notice(text))
            return None
        return run


def with_target(row: MethodRow, runs: Sequence[Run], target: float) -> MethodRow:
    """With what the runs had spent when their validation figure reached it."""
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
    """For a fixed network that is to have as many parameters, or MACs, as the first method found.

    `point`: options of a grid, which may choose the network, its head or its width.
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

    `size`: what is counted instead, which must grow with the width.
    """
    low = 0.02
    high = 64.0
    while high / low > 1.0005:  # halved on a logarithmic scale
        middle = math.sqrt(low * high)
        if size(build(middle)) > target:
            high = middle
        else:
            low = middle
    # Both are rounded before they are compared: rounding may cross an edge.
    near = (round(low, 5), round(high, 5))
    return min(near, key=lambda width: abs(size(build(width)) - target))
