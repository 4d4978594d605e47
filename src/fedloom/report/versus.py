"""Several runs on one page.

A comparison's folder, finished or not, or any runs beside each other.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedloom.config.models import Experiment
from fedloom.config.variants import Variant
from fedloom.errors import FedloomError
from fedloom.evaluate.judgement import judged
from fedloom.evaluate.method_row import method_row, with_holm
from fedloom.evaluate.tier_rows import tiers_with_holm, with_tiers
from fedloom.reading import Unreadable
from fedloom.records.auto import AutoResult
from fedloom.records.comparison import MethodRow, folder_labels
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun
from fedloom.records.plan import Plan, read_plan
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult
from fedloom.report.groups import Group, Versus
from fedloom.report.page import NAME, page
from fedloom.report.sections import methods
from fedloom.report.story import Reader, standing


def write_comparison(folder: RunFolder) -> Path:
    """Write or refresh a comparison's report.html."""
    folder.write_text(NAME, versus_page(Comparing(folder).read(), folder.path))
    return folder.path / NAME


def versus_page(versus: Versus, beside: Path, *, live: bool = False) -> str:
    """`beside`: the folder that the page stands in, for links to the runs' own reports."""
    title = methods.title(versus)
    if live:  # runs have no reports yet, and sections come and go
        return page(title, methods.sections(versus, None), {}, live=True)

    def link(run: Path) -> str:
        return os.path.relpath(run / NAME, beside)

    return page(title, methods.sections(versus, link), methods.links(versus))


@dataclass
class Comparing:
    """Reads a comparison's folder, again and again for a live page."""

    folder: RunFolder
    readers: dict[str, Reader] = field(default_factory=dict)  # by the names of the runs' folders

    def read(self) -> Versus:
        plan = read_plan(self.folder)
        result = None
        found = None
        damage = None
        rows: list[MethodRow] = []
        try:
            result = self.folder.read_comparison()
            rows = result.methods
            if plan.contest is not None:
                found = AutoResult.read(self.folder.path / RESULT)
        except Unreadable as error:
            damage = self._damage(error)
            rows = []
        groups = self._groups(plan, rows)
        if len(rows) == len(groups):
            rows = [completed(row, group) for row, group in zip(rows, groups, strict=True)]
        return Versus(
            path=self.folder.path,
            standing=standing(self.folder, finished=result is not None),
            groups=groups,
            rows=rows,
            command=command(plan),
            seeds=len(plan.seeds),
            damage=damage,
            contest=plan.contest,
            found=found,
        )

    def _damage(self, error: Unreadable) -> str | None:
        """What is wrong with the file of results, if there is one."""
        if not (self.folder.path / RESULT).exists():
            return None
        remedy = f"`fedloom resume {self.folder.path}` makes it again."
        return f"{RESULT} is damaged: {error}. {remedy}"

    def _groups(self, plan: Plan, rows: Sequence[MethodRow]) -> list[Group]:
        """A group a method, of its runs that have begun.

        Of a finished contest, of those that had the whole budget.
        """
        finalists = {row.method for row in rows}
        names = {method: plan.names.get(method, method) for method in plan.methods}
        labels = folder_labels(list(names.values()))
        groups = []
        for method in plan.methods:
            if plan.contest is not None and finalists and method not in finalists:
                continue
            name = names[method]
            stories = []
            for seed in plan.seeds:
                reader = self._reader(f"{labels[name]}-seed{seed}")
                if reader is not None:
                    stories.append(reader.read())
            groups.append(Group(plan.name_of(method), stories))
        return groups

    def _reader(self, name: str) -> Reader | None:
        """Of a run that has begun."""
        path = self.folder.path / name
        if name not in self.readers and (path / "config.toml").exists():
            self.readers[name] = Reader(RunFolder.open(path))
        return self.readers.get(name)


def completed(row: MethodRow, group: Group) -> MethodRow:
    """A row of an earlier version says little beside its figures: its runs do."""
    if is_complete(row):
        return row
    results = [story.result for story in group.stories if story.result is not None]
    if len(results) != row.runs:
        return row
    return judged(row, results)


def is_complete(row: MethodRow) -> bool:
    """Whether this version wrote it, as far as its names tell."""
    if row.cautions is None or row.cautions.one_class is None:
        return False
    if not row.judged_by.counts_answers:
        return True
    return "pooled_balanced_accuracy" in row.model_fields_set


def command(plan: Plan) -> str:
    """What makes this comparison again."""
    if plan.contest is not None:
        return auto_command(plan)
    words = ["fedloom", "compare", *map(plan.spelled, plan.methods)]
    words += ["--seeds", ",".join(map(str, plan.seeds))]
    for name, values in plan.grid.items():
        words += ["--grid", f"{name}={','.join(map(str, values))}"]
    if plan.match_params:
        words.append("--match-params")
    if plan.match_macs:
        words.append("--match-macs")
    return shlex.join([*words, *settings(plan)])


def auto_command(plan: Plan) -> str:
    """What makes a contest again, with the budget as it was settled."""
    assert plan.contest is not None
    main, *others = plan.methods[1:]
    words = ["fedloom", "auto", "--seed", str(plan.seeds[0]), "--budget", budget_text(plan)]
    if plan.contest.limits:
        limits = [f"{name}={most:.15g}" for name, most in plan.contest.limits.items()]
        words += ["--limit", ",".join(limits)]
    for part in Variant.parse(main).parts:
        name, _, value = part.partition("=")
        if name in FLAGS_OF_MAIN:
            words += [FLAGS_OF_MAIN[name], value.replace("/", ",")]
    for method in others:
        words += ["--with", plan.spelled(method)]
    return shlex.join([*words, *settings(plan, SAID_BY_FLAGS)])


# Options of the main contestant that `fedloom auto` has flags for.
FLAGS_OF_MAIN = {
    "network": "--family",
    "sizes": "--sizes",
    "widths": "--widths",
    "prior": "--prior",
}
SAID_BY_FLAGS = (
    "seed",
    "budget.equal",
    "budget.amount",
    "budget.rounds",
    "budget.limits",
    "evaluate.hold_back",
)


def budget_text(plan: Plan) -> str:
    budget = plan.tree["budget"]
    unit = budget["equal"]
    amounts = {unit: budget["amount"]}
    if unit == "rounds":
        amounts = {unit: budget["rounds"]}
    amounts.update(budget.get("limits") or {})
    return ",".join(f"{name}={value:.0f}" for name, value in amounts.items())


def settings(plan: Plan, but: tuple[str, ...] = ()) -> list[str]:
    """Whatever a plan's configuration has other than by default, as flags."""
    words = []
    defaults = leaves(Experiment().model_dump())
    for name, value in leaves(plan.tree).items():
        is_usual = name in defaults and value == defaults[name]
        if not is_usual and not name.startswith(but):
            words += ["--set", f"{name}={text_of(value)}"]
    return words


def leaves(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """`{"data": {"clients": 8}}` → `{"data.clients": 8}`."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping):
            values.update(leaves(value, f"{path}."))
        else:
            values[path] = value
    return values


def text_of(value: Any) -> str:
    """As --set reads it."""
    if value is None or isinstance(value, list):
        return json.dumps(value)
    return str(value)


def beside_each_other(paths: Sequence[Path]) -> Versus:
    """Finished runs that need not be of one comparison.

    Those of one method with other seeds are taken together.
    """
    runs = [FinishedRun.open(path) for path in paths]
    check_metric(runs)
    grouped_runs = grouped(runs)
    first = grouped_runs[0]
    rows = []
    groups = []
    for group in grouped_runs:
        name = name_of(group, grouped_runs)
        rows.append(row_of(name, group, first))
        stories = [Reader(RunFolder(run.path)).read() for run in group]
        groups.append(Group(name, stories))
    return Versus(
        path=None,
        standing="finished",
        groups=groups,
        rows=tiers_with_holm(with_holm(rows)),
        command=shlex.join(["fedloom", "report", *map(str, paths)]),
        seeds=max(map(len, grouped_runs)),
        alike=all(splits(group) == splits(first) for group in grouped_runs),
    )


def check_metric(runs: Sequence[FinishedRun]) -> None:
    names = sorted({run.metric.name for run in runs})
    if len(names) > 1:
        raise FedloomError(
            "runs beside each other must be judged by one metric",
            f"got {' and '.join(names)}",
            "report them one by one",
        )


def grouped(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Those together that differ by their seed alone.

    Where a seed is there twice, each run is by itself.
    """
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(kind_of(run.record), []).append(run)
    for group in groups.values():
        if len({run.record.seed for run in group}) < len(group):
            return [[run] for run in runs]
    return list(groups.values())


def kind_of(result: RunResult) -> str:
    """Runs that agree in it differ by their seed alone."""
    start = None
    if result.init is not None:
        start = [result.init.hash, result.init.client]
    data = [result.data.name, result.data.partition]
    return json.dumps([result.method, result.options, *data, start])


def name_of(group: Sequence[FinishedRun], groups: Sequence[Sequence[FinishedRun]]) -> str:
    """The method's name; with its folder's where another has the same."""
    method = group[0].record.short_method
    methods = [other[0].record.short_method for other in groups]
    if methods.count(method) == 1:
        return method
    return f"{method} ({group[0].path.resolve().name})"


def row_of(name: str, group: Sequence[FinishedRun], first: Sequence[FinishedRun]) -> MethodRow:
    """A difference to the first only where both ran on the same splits."""
    paired = None
    if group is not first and splits(group) == splits(first):
        paired = by_seed(first)
    runs = by_seed(group)
    row = judged(method_row(name, name, runs, paired, None), runs)
    return with_tiers(row, runs, paired)


def splits(group: Sequence[FinishedRun]) -> list[tuple[int, str]]:
    """The split of each seed."""
    return sorted((run.record.seed, run.record.data.split) for run in group)


def by_seed(group: Sequence[FinishedRun]) -> list[RunResult]:
    return sorted((run.record for run in group), key=lambda record: record.seed)
